"""Rows are judged exactly, variances by brute force, by an independent linear programme in all
probabilities at once, and against the published mechanisms and the equally spaced optimum.
"""

from __future__ import annotations

import math
import sys
import time
from decimal import Context, Decimal
from fractions import Fraction
from importlib import resources

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linprog

from dpcore.errors import ParameterError
from dpcore.local.optimal import Solution, optimal, shipped, solve

# epsilon: HM-TP, HM-J, then 4, 8, 16 and 64 equally spaced outputs; ends of half a unit added.
TABLE = {
    0.5: (16.6708, 16.6708, 16.6708, 16.2264, 16.0657, 16.0072),
    1.0: (4.4176, 4.2671, 4.3618, 4.0752, 4.0065, 3.9925),
    2.0: (0.9843, 0.9817, 0.9617, 0.8851, 0.8724, 0.8665),
    3.0: (0.3554, 0.3528, 0.3895, 0.3233, 0.3098, 0.3052),
    4.0: (0.1548, 0.1522, 0.2301, 0.1446, 0.1318, 0.1281),
    5.0: (0.0726, 0.0707, 0.1767, 0.0747, 0.0613, 0.0584),
}
COUNTS = (4, 8, 16, 64)
EPSILONS = (0.1, 0.2, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
OTHER_EPSILONS = (0.5, 1.0, 2.0, 2.5, 3.0, 4.0, 5.0)
DIGITS = Context(prec=60)


def duchi(epsilon: float) -> float:
    return 1 / math.tanh(epsilon / 2)


def inputs(solution: Solution) -> list[Fraction]:
    n_intervals = len(solution.rows) - 1
    return [Fraction(2 * i - n_intervals, n_intervals) for i in range(n_intervals + 1)]


def second_moments(solution: Solution) -> np.ndarray:
    return solution.rows @ solution.outputs**2


def check(solution: Solution, epsilon: float, n_outputs: int) -> None:
    """Everything that the rows promise, in exact arithmetic."""
    outputs, rows = solution.outputs, solution.rows
    assert solution.epsilon == epsilon
    assert outputs.dtype == rows.dtype == np.float64
    assert 2 <= len(outputs) <= n_outputs
    assert rows.shape == (len(rows), len(outputs))
    assert (np.diff(outputs) > 0).all()
    assert (outputs == -outputs[::-1]).all()
    assert (rows == rows[::-1, ::-1]).all()
    assert rows.min() > 0
    positions = [Fraction(y) for y in outputs.tolist()]
    for x, row in zip(inputs(solution), rows.tolist(), strict=True):
        law = [Fraction(p) for p in row]
        assert abs(sum(law, Fraction(0)) - 1) <= Fraction(1, 10**15)
        mean = sum((p * y for p, y in zip(law, positions, strict=True)), Fraction(0))
        assert abs(mean - x) <= Fraction(1, 10**13)
    bound = Fraction((Decimal(epsilon) * (1 - Decimal("2e-7"))).exp(DIGITS))
    for column in rows.T:
        assert Fraction(float(column.max())) <= bound * Fraction(float(column.min()))


def brute_force_variance(solution: Solution) -> float:
    grid = np.array([float(x) for x in inputs(solution)])
    x = np.linspace(-1, 1, 200_001)
    return float(np.max(np.interp(x, grid, second_moments(solution)) - x**2))


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("n_outputs", COUNTS)
def test_shipped_rows_are_exact(epsilon: float, n_outputs: int) -> None:
    solution = shipped(epsilon, n_outputs)
    assert solution is not None
    check(solution, epsilon, n_outputs)
    brute = brute_force_variance(solution)
    assert brute <= solution.worst_case_variance * (1 + 1e-12)
    assert solution.worst_case_variance <= brute * (1 + 1e-6) + 1e-9


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_more_outputs_are_never_worse_than_fewer_or_than_two(epsilon: float) -> None:
    found = [optimal(epsilon, n_outputs).worst_case_variance for n_outputs in COUNTS]
    assert found == sorted(found, reverse=True)
    assert found[0] < duchi(epsilon) ** 2


@pytest.mark.parametrize("epsilon", TABLE)
def test_variance_beats_equal_spacing_and_published_mechanisms(epsilon: float) -> None:
    published, spaced = TABLE[epsilon][:2], TABLE[epsilon][2:]
    for n_outputs, limit in zip(COUNTS, spaced, strict=True):
        assert optimal(epsilon, n_outputs).worst_case_variance < limit
    assert optimal(epsilon, 16).worst_case_variance < 0.97 * min(published)


def test_eight_outputs_beat_published_mechanisms_at_every_table_epsilon() -> None:
    for epsilon, (hm_tp, hm_j, *_) in TABLE.items():
        assert optimal(epsilon, 8).worst_case_variance < min(hm_tp, hm_j)


@pytest.mark.parametrize("objective", ["second_moment", "at_zero"])
@pytest.mark.parametrize("epsilon", OTHER_EPSILONS)
@pytest.mark.parametrize("n_outputs", [8, 16])
def test_other_objectives(objective: str, epsilon: float, n_outputs: int) -> None:
    solution = shipped(epsilon, n_outputs, objective)
    assert solution is not None
    check(solution, epsilon, n_outputs)
    moments, worst = second_moments(solution), second_moments(optimal(epsilon, n_outputs))
    if objective == "second_moment":
        # No mechanism found has a smaller largest second moment than the two outputs of Duchi.
        assert moments.max() <= duchi(epsilon) ** 2 * (1 + 1e-4)
        assert moments.max() < worst.max()
    else:
        assert moments.min() == moments[len(moments) // 2]
        assert moments.min() < worst.min()


def test_at_zero_matches_three_outputs_at_two_and_a_half() -> None:
    assert second_moments(optimal(2.5, 16, "at_zero")).min() < 0.22685


@pytest.mark.parametrize(
    ("epsilon", "n_outputs", "limit"),
    [(1.0, 4, 4.155), (3.0, 8, 0.3145), (5.0, 16, 0.0600), (2.0, 64, 0.8662)],
)
def test_fresh_solutions(epsilon: float, n_outputs: int, limit: float) -> None:
    solution = solve(epsilon, n_outputs)
    check(solution, epsilon, n_outputs)
    assert solution.worst_case_variance < limit


@pytest.mark.parametrize("epsilon", [0.05, 1.7, 20.0])
@pytest.mark.parametrize("n_outputs", [2, 3, 5, 9])
def test_any_epsilon_and_number_of_outputs(epsilon: float, n_outputs: int) -> None:
    solution = solve(epsilon, n_outputs)
    check(solution, epsilon, n_outputs)
    limits = {
        0.05: {2: 1600.68, 3: 1600.68, 5: 1600.2, 9: 1600.1},
        1.7: {2: 2.10, 3: 1.34, 5: 1.313, 9: 1.278},
        20.0: {2: 1.001, 3: 0.2501, 5: 0.06251, 9: 0.015626},
    }
    assert solution.worst_case_variance < limits[epsilon][n_outputs]


def test_two_outputs_are_those_of_duchi() -> None:
    solution = solve(1.0, 2)
    assert solution.outputs == pytest.approx([-duchi(1.0), duchi(1.0)], rel=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.05, 1.3, 20.0])
@pytest.mark.parametrize("n_outputs", [127, 256])
def test_many_outputs(epsilon: float, n_outputs: int) -> None:
    solution = solve(epsilon, n_outputs)
    check(solution, epsilon, n_outputs)
    limit = {0.05: 1600.02, 1.3: 2.313, 20.0: 2.2 / (n_outputs - 1) ** 2}[epsilon]
    assert solution.worst_case_variance < limit


@pytest.mark.slow
@pytest.mark.parametrize("n_outputs", COUNTS)
def test_time_to_solve(n_outputs: int) -> None:
    begun = time.process_time()
    solve(1.7, n_outputs)
    assert time.process_time() - begun < 5


@pytest.mark.parametrize(("epsilon", "n_outputs"), [(0.5, 8), (1.0, 16), (3.0, 8), (5.0, 16)])
def test_full_programme_finds_nothing_better_at_the_same_positions(
    epsilon: float, n_outputs: int
) -> None:
    # The programme sees grid inputs only: on a coarse grid it would win by what lies between them.
    solution = shipped(epsilon, n_outputs, n_intervals=256)
    assert solution is not None
    x = np.array([float(v) for v in inputs(solution)])
    reached = float(np.max(second_moments(solution) - x**2))
    assert full_programme(epsilon, solution.outputs, 256) >= reached * (1 - 2e-4)


def full_programme(epsilon: float, y: np.ndarray, n_intervals: int) -> float:
    """Least worst variance over the grid inputs, with every probability a variable."""
    x = np.linspace(-1, 1, n_intervals + 1)
    n, k = len(x), len(y)
    each, least = sparse.identity(n * k), sparse.csr_matrix(np.tile(np.eye(k), (n, 1)))

    def moment(values: np.ndarray) -> sparse.spmatrix:
        return sparse.kron(sparse.identity(n), values[np.newaxis])

    # Columns: the laws, the smallest probability of each output, the bound on the variances.
    equal = sparse.bmat([[moment(np.ones(k)), sparse.csr_matrix((n, k + 1))], [moment(y), None]])
    above = sparse.bmat(
        [
            [moment(y**2), None, -np.ones((n, 1))],
            [each, -math.exp(epsilon) * least, None],
            [-each, least, None],
        ]
    )
    found = linprog(
        np.append(np.zeros(n * k + k), 1.0),
        A_ub=above.tocsr(),
        b_ub=np.concatenate([x**2, np.zeros(2 * n * k)]),
        A_eq=equal.tocsr(),
        b_eq=np.concatenate([np.ones(n), x]),
        method="highs-ipm",
    )
    assert found.status == 0
    return float(found.fun)


@pytest.mark.parametrize(("epsilon", "n_outputs"), [(0.1, 64), (1.0, 16), (10.0, 64)])
def test_room_for_rounding_to_64_bits(epsilon: float, n_outputs: int) -> None:
    rows = optimal(epsilon, n_outputs).rows
    integers = [[math.floor(Fraction(p) * 2**64) for p in row] for row in rows.tolist()]
    for row in integers:
        row[row.index(max(row))] += 2**64 - sum(row)
    bound = Fraction(Decimal(epsilon).exp(DIGITS))
    for column in zip(*integers, strict=True):
        assert max(column) < bound * min(column)


@pytest.mark.parametrize("n_intervals", [1, 2, 3, 7, 100])
def test_any_input_grid(n_intervals: int) -> None:
    solution = shipped(1.0, 8, n_intervals=n_intervals)
    assert solution is not None
    assert len(solution.rows) == n_intervals + 1
    check(solution, 1.0, 8)
    assert solution.worst_case_variance == pytest.approx(brute_force_variance(solution), rel=1e-6)


def test_default_input_grid_costs_little() -> None:
    for epsilon in (0.5, 2.0, 5.0, 10.0):
        fine = shipped(epsilon, 16, n_intervals=4096)
        usual = shipped(epsilon, 16)
        assert fine is not None
        assert usual is not None
        assert usual.worst_case_variance <= 1.0011 * fine.worst_case_variance


def test_results_are_kept_and_read_only() -> None:
    solution = optimal(1.0, 4)
    assert optimal(1, 4, "worst") is solution
    for array in (solution.outputs, solution.rows):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0.0


def test_same_search_same_result() -> None:
    first, second = solve(1.1, 4), solve(1.1, 4)
    assert (first.rows == second.rows).all()


def test_other_parameters_are_not_shipped() -> None:
    assert shipped(1.0, 5) is None
    assert shipped(1.7, 8) is None
    assert shipped(0.1, 8, "at_zero") is None


def test_file_is_small() -> None:
    file = resources.files("dpcore.local") / "optimal_tables.npz"
    assert len(file.read_bytes()) < 100_000


def test_without_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    assert shipped(0.75, 8) is not None
    with pytest.raises(ImportError, match=r"dpcore\[accounting\]"):
        solve(0.76, 8)


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"epsilon": 0.04}, "epsilon"),
        ({"epsilon": 20.1}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"epsilon": "1"}, "epsilon"),
        ({"n_outputs": 1}, "n_outputs"),
        ({"n_outputs": 257}, "n_outputs"),
        ({"n_outputs": 8.0}, "n_outputs"),
        ({"n_outputs": True}, "n_outputs"),
        ({"objective": "best"}, "objective"),
        ({"n_intervals": 0}, "n_intervals"),
        ({"n_intervals": 1 << 17}, "n_intervals"),
    ],
)
def test_parameters_are_checked(changed: dict[str, object], name: str) -> None:
    arguments: dict[str, object] = {"epsilon": 1.0, "n_outputs": 8, **changed}
    for function in (optimal, shipped, solve):
        with pytest.raises(ParameterError, match=f"'{name}'"):
            function(**arguments)  # type: ignore[arg-type]
