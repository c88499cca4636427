"""Tables of the local mechanisms in exact arithmetic: private, unbiased, run as they are."""

import operator
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
import pytest

from dpcore import local
from dpcore.local import discrete, optimal, tables
from dpcore.local.tables import RowTable

EPSILONS = [1e-3, 0.05, 0.61, 1.0, 2.5, 6.0, 20.0, 20.1, 44.5, 50.0]
FEWEST = {"laplace": 32, "pm": 2, "pm-sub": 2, "pm-opt": 3, "hm": 4, "hm-tp": 5, "hm-j": 5}
LEVELS = [(name, levels) for name, fewest in FEWEST.items() for levels in (None, fewest)]
NAMES = [("duchi", None), ("three-outputs", None), *LEVELS]
SHIPPED = sorted(optimal._tables())


def below_exp(epsilon: float) -> Fraction:
    """A rational just below e**epsilon, by Python's decimals."""
    nearest = Fraction(Decimal(epsilon).exp(Context(prec=70)))
    return nearest * (1 - Fraction(1, 10**65))


def make(name: str, epsilon: float, n_levels: int | None) -> local.Mechanism:
    return local.make(name, epsilon, **({} if n_levels is None else {"n_levels": n_levels}))


def largest_ratio(table: RowTable) -> Fraction:
    columns = [column for column in zip(*table.rows, strict=True) if any(column)]
    assert all(min(column) > 0 for column in columns)
    pairs = [(max(column), min(column)) for column in columns]
    return max(Fraction(most, least) for most, least in pairs)


def check(table: RowTable, epsilon: float) -> None:
    assert table.bits == 128 or (table.bits == 64 and epsilon <= 20)
    assert all(sum(row) == 1 << table.bits and min(row) >= 0 for row in table.rows)
    assert largest_ratio(table) <= below_exp(epsilon)
    assert list(table.outputs) == sorted(table.outputs)
    # Sums of products of integers: the outputs are multiples of 1 / unit.
    unit = max(value.as_integer_ratio()[1] for value in table.outputs)
    outputs = [int(Fraction(value) * unit) for value in table.outputs]
    n = len(table.rows) - 1
    for i, row in enumerate(table.rows):
        mean = Fraction(sum(map(operator.mul, row, outputs)), unit << table.bits)
        assert abs(mean - Fraction(2 * i - n, n)) <= Fraction(1, 10**12)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize(("name", "n_levels"), NAMES)
def test_tables_are_private_and_unbiased(name, n_levels, epsilon):
    mechanism = make(name, epsilon, n_levels)
    assert mechanism.event.epsilon <= epsilon
    check(mechanism.table, mechanism.event.epsilon)
    # Nearly all of epsilon is used, so noise that is needlessly large would not go unnoticed
    # either. Levels further apart than the peak of a piecewise law is wide blur it.
    if name in ("duchi", "three-outputs") or (n_levels is None and epsilon <= 6):
        assert largest_ratio(mechanism.table) >= below_exp(epsilon * (1 - 1.01e-6))


@pytest.mark.parametrize(("epsilon", "n_outputs", "objective"), SHIPPED)
def test_shipped_optimal_tables_are_private_and_unbiased(epsilon, n_outputs, objective):
    mechanism = local.OptimalOutputs(epsilon, n_outputs=n_outputs, objective=objective)
    check(mechanism.table, mechanism.event.epsilon)
    assert largest_ratio(mechanism.table) >= below_exp(epsilon * (1 - 1.01e-6))


def test_all_common_epsilons_are_shipped():
    shipped = {(epsilon, n) for epsilon, n, objective in SHIPPED if objective == "worst"}
    assert shipped >= {(e, n) for e in (0.5, 1.0, 2.0, 3.0, 4.0, 5.0) for n in (4, 8, 16, 64)}


@pytest.mark.parametrize("epsilon", [0.9, 5.0, 30.0])
@pytest.mark.parametrize(("name", "n_levels"), NAMES)
def test_alias_tables_hold_exactly_the_rows(name, n_levels, epsilon):
    """What the kernel reads, column by column, has the probabilities that were proved."""
    table = make(name, epsilon, n_levels).table
    log2_columns = max(1, (len(table.outputs) - 1).bit_length())
    for row in table.rows[:: max(1, len(table.rows) // 16)]:
        cuts, aliases = tables._alias(row, log2_columns, table.bits)
        found = [0] * (1 << log2_columns)
        for column, ((high, low), alias) in enumerate(zip(cuts, aliases, strict=True)):
            cut = 1 << 128 if alias == column else high << 64 | low
            found[column] += cut
            found[alias] += (1 << 128) - cut
        unit = 1 << (128 + log2_columns - table.bits)
        assert found == [w * unit for w in row] + [0] * (len(found) - len(row))


@pytest.mark.parametrize("epsilon", [0.5, 3.0, 25.0])
@pytest.mark.parametrize("name", [name for name in local.NAMES if name != "optimal"])
def test_values_between_grid_points_are_private(name, epsilon):
    """Mixtures of neighbouring rows with the very weights that the kernel uses."""
    table = local.make(name, epsilon).table
    rng = np.random.default_rng(5)
    laws = []
    for x in [0.1, -0.1, *rng.uniform(-1, 1, 12).tolist()]:
        position = (x + 1.0) * (table.n_intervals / 2.0)
        cell = int(position)
        up = int((position - cell) * 2**64)
        pair = zip(table.rows[cell], table.rows[cell + 1], strict=True)
        laws.append([low * (2**64 - up) + high * up for low, high in pair])
    bound = below_exp(epsilon)
    for column in zip(*laws, *[[w << 64 for w in row] for row in table.rows[::32]], strict=True):
        assert max(column) <= bound * min(column)


def two_outputs(ratio: Fraction) -> tuple[list[Fraction], list[list[Fraction]]]:
    c = (ratio + 1) / (ratio - 1)
    one = Fraction(1)
    return [-c, c], [[ratio, one], [one, ratio]]


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 8.0, 25.0, 50.0])
def test_the_bound_is_that_of_epsilon_and_no_other(epsilon):
    """A part in 10**9 below e**epsilon passes, a part in 10**9 above does not."""
    ratio, room = below_exp(epsilon), Fraction(1, 10**9)
    check(RowTable.build(Fraction(epsilon), *two_outputs(ratio * (1 - room))), epsilon)
    with pytest.raises(ArithmeticError, match="less private"):
        RowTable.build(Fraction(epsilon), *two_outputs(ratio * (1 + room)))


def tampered(change: str) -> tuple[list[Fraction], list[list[Fraction]]]:
    law = discrete.piecewise(Fraction(2), 1.5, 9)
    outputs = list(law.outputs)
    rows = [[Fraction(w) / sum(row) for w in row] for row in law.rows]
    match change:
        case "nothing":
            pass
        case "one probability is larger":
            rows[0][0] *= Fraction(1001, 1000)
        case "one probability is smaller":
            rows[-1][0] *= Fraction(999, 1000)
        case "one probability is 0":
            rows[-1][0] = Fraction(0)
        case "one probability is negative":
            rows[7][3] *= -1
        case "one row is of another input":
            rows[100] = rows[101]
        case "rows are in reverse":
            rows.reverse()
        case "one output has moved by 1e-10":
            outputs[-1] += Fraction(1, 10**10)
        case "all outputs are larger":
            outputs = [y * Fraction(1001, 1000) for y in outputs]
    return outputs, rows


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ("one probability is larger", "less private"),
        ("one probability is smaller", "less private"),
        ("one probability is 0", "less private"),
        ("one probability is negative", "less private"),
        ("one row is of another input", "biased"),
        ("rows are in reverse", "biased"),
        ("one output has moved by 1e-10", "biased"),
        ("all outputs are larger", "biased"),
    ],
)
def test_tampered_tables_are_refused(change, fault):
    check(RowTable.build(Fraction(2), *tampered("nothing")), 2.0)
    with pytest.raises(ArithmeticError, match=f"came out {fault}"):
        RowTable.build(Fraction(2), *tampered(change))


@pytest.mark.parametrize("name", [name for name in local.NAMES if name != "optimal"])
def test_a_table_does_not_pass_for_a_smaller_epsilon(name):
    table = local.make(name, 2.0).table
    assert table.is_private(Fraction(2))
    assert not table.is_private(Fraction(2) * (1 - Fraction(1, 10**5)))


def test_tables_of_another_shape_are_refused():
    outputs, rows = two_outputs(Fraction(2))
    with pytest.raises(ValueError, match="zip"):
        RowTable.build(Fraction(1), outputs, [rows[0], [*rows[1], Fraction(1)]])
    with pytest.raises(ValueError, match="zip"):
        RowTable.build(Fraction(1), outputs[:1], rows)


def test_long_tails_take_128_bits():
    assert local.Laplace(0.01).table.bits == 128
    assert local.Piecewise(20.0).table.bits == 64
    assert local.Piecewise(np.nextafter(20.0, 21.0)).table.bits == 128


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("v", [2, 17, 1000])
def test_categories_are_private(epsilon, v):
    """The exact chances that are sampled; a report of OUE has two bits that depend on the value."""
    grr, oue = local.GRR(epsilon, v), local.OUE(epsilon, v)
    assert grr.event.epsilon == oue.event.epsilon <= epsilon
    bound, full = below_exp(grr.event.epsilon), below_exp(epsilon * (1 - 1.01e-6))
    assert full <= grr.p / grr.q <= bound
    assert grr.p + (v - 1) * grr.q == 1
    assert full <= oue.p * (1 - oue.q) / ((1 - oue.p) * oue.q) <= bound
