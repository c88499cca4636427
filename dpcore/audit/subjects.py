"""What can be audited, in one form: inputs, which of them are neighbours, and a way to run them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore.audit.result import Claim
from dpcore.audit.search import Statistic, Views, predicted
from dpcore.errors import ParameterError
from dpcore.local.base import Mechanism
from dpcore.local.categorical import GRR, OUE
from dpcore.local.duchi_multi import DuchiMulti
from dpcore.local.schema import Categorical, Numeric
from dpcore.local.tuples import Tuple
from dpcore.noise import Noise

__all__ = ["Subject", "local_subject", "release_subject"]

Array = npt.NDArray[Any]
Pair = tuple[int, int]

_MOST_INPUTS = 16
_MOST_PAIRS = 4
_MOST_COLUMNS = 64


@dataclass(frozen=True)
class Subject:
    """Something to audit.

    Attributes
    ----------
    inputs : tuple of str
        Names of the inputs.
    pairs : tuple of (int, int)
        Neighbouring inputs; the first pair is the one that is expected to tell most.
    run : callable
        From the numbers of inputs, one per run, to an array with one row per run.
    joint : callable
        Statistics beyond the single columns for a pair: the claimed law, where it is known.
    coded : bool
        Whether outputs are codes, which are equal or not; otherwise they are numbers.
    batched : bool
        Whether many runs are one call.
    """

    name: str
    inputs: tuple[str, ...]
    pairs: tuple[Pair, ...]
    run: Callable[[Array], Array]
    joint: Callable[[int, int], list[Statistic]]
    coded: bool
    batched: bool

    def statistics(self, pair: Pair, views: Views) -> list[Statistic]:
        """Every column, what is known of the law, and what the runs to choose on suggest."""
        width = views.chosen[0].shape[1]
        title = "the output" if width == 1 else "element {} of the output"
        # Of wide outputs one pair tells about all elements; the others have their joint statistics.
        shown = range(width) if width <= _MOST_COLUMNS or pair == self.pairs[0] else ()
        columns = [Statistic(title.format(j), _column(j)) for j in shown]
        found = columns + self.joint(*pair)
        if not self.coded and width > 1:
            found += _directions(views)
        return found

    def couplings(self, views: Views) -> list[Statistic]:
        """What shared noise shows in: rows hold two outputs side by side."""
        width = views.chosen[0].shape[1] // 2
        unequal = Statistic(
            "number of elements that differ",
            lambda rows: (rows[:, :width] != rows[:, width:]).sum(axis=1),
        )
        if not self.coded:
            shown = range(width) if width <= _MOST_COLUMNS else (0, width - 1)
            gaps = [Statistic(f"difference of the elements {j}", _gap(j, width)) for j in shown]
            return [unequal, *gaps]
        most = int(max(part.max() for part in views.chosen)) + 1
        if width > 1 or most > 64:
            return [unequal]
        return [Statistic("the codes as one number", lambda rows: rows[:, 0] * most + rows[:, 1])]


def _column(j: int) -> Callable[[Array], Array]:
    return lambda rows: rows[:, j]


def _gap(j: int, width: int) -> Callable[[Array], Array]:
    return lambda rows: rows[:, width + j] - rows[:, j]


def _directions(views: Views) -> list[Statistic]:
    """Sufficient statistics of Gaussian and Laplace noise, centred where the outputs are."""
    middles = [np.median(part, axis=0) for part in views.chosen]
    step = middles[1] - middles[0]
    return [
        Statistic("projection on the change", lambda rows: rows @ step),
        Statistic(
            "difference of the distances",
            lambda rows: np.abs(rows - middles[0]).sum(1) - np.abs(rows - middles[1]).sum(1),
        ),
        Statistic("sum of the elements", lambda rows: rows.sum(axis=1)),
    ]


def _nothing(first: int, second: int) -> list[Statistic]:
    return []


def _consecutive(n: int) -> tuple[Pair, ...]:
    """All neighbours in a circle, the farthest first."""
    return ((0, n - 1), *((i, i + 1) for i in range(n - 1) if n > 2))


def local_subject(m: Any, noise: Noise, claim: Claim, trials: int) -> Subject:
    """A local randomiser with inputs that tell most about it."""
    if isinstance(m, Mechanism):
        return _of_number(m, noise, claim, trials)
    if isinstance(m, GRR | OUE):
        return _of_category(m, noise)
    if isinstance(m, DuchiMulti):
        return _of_signs(m, noise)
    if isinstance(m, Tuple):
        return _of_record(m, noise, claim, trials)
    raise ParameterError(
        "The 'm' parameter must be a mechanism of dpcore.local, or a function with 'inputs'."
    )


def _of_number(m: Mechanism, noise: Noise, claim: Claim, trials: int) -> Subject:
    pairs = _worst_rows(m, claim, trials)
    rows = sorted({row for pair in pairs for row in pair})
    places = np.linspace(0, 1, m.table.n_intervals + 1)[rows]
    values = m.lower * (1 - places) + m.upper * places
    return Subject(
        name=m.name,
        inputs=tuple(f"{value:.6g}" for value in values),
        pairs=tuple((rows.index(a), rows.index(b)) for a, b in pairs),
        run=lambda which: np.asarray(m.encode(values[which], noise=noise)).reshape(-1, 1),
        joint=_nothing,
        coded=True,
        batched=True,
    )


def _worst_rows(m: Mechanism, claim: Claim, trials: int) -> list[Pair]:
    """Pairs of grid points whose rows are expected to give the greatest bounds, and the ends."""
    chances = m.table.probabilities
    high, low = chances.argmax(axis=0), chances.argmin(axis=0)
    pairs = {(0, m.table.n_intervals), *zip(high.tolist(), low.tolist(), strict=True)}
    n = trials / _MOST_PAIRS / 2

    def score(pair: Pair) -> float:
        p, q = chances[pair[0]], chances[pair[1]]
        order = np.argsort(-p / q)
        return float(predicted(np.cumsum(p[order]) * n, n, np.cumsum(q[order]) * n, n, claim).max())

    distinct = [pair for pair in sorted(pairs, key=score, reverse=True) if pair[0] != pair[1]]
    ends = (0, m.table.n_intervals)
    return list(dict.fromkeys([*distinct[: _MOST_PAIRS - 1], ends]))


def _of_category(m: GRR | OUE, noise: Noise) -> Subject:
    n = min(m.n_categories, _MOST_INPUTS)
    values = np.linspace(0, m.n_categories - 1, n).astype(np.int64)

    def run(which: Array) -> Array:
        reports = np.asarray(m.encode(values[which], noise=noise))
        if isinstance(m, GRR):
            return reports.reshape(-1, 1)
        return np.unpackbits(reports, axis=1, count=m.n_categories, bitorder="little")

    def bits(first: int, second: int) -> list[Statistic]:
        a, b = values[first], values[second]
        return [
            Statistic(
                f"the bits {a} and {b} as a number", lambda rows: rows[:, a] + 2 * rows[:, b]
            ),
            Statistic("number of bits set", lambda rows: rows.sum(axis=1)),
        ]

    return Subject(
        name=m.name,
        inputs=tuple(f"category {value}" for value in values),
        pairs=_consecutive(n),
        run=run,
        joint=bits if isinstance(m, OUE) else _nothing,
        coded=True,
        batched=True,
    )


def _of_signs(m: DuchiMulti, noise: Noise) -> Subject:
    """All ones against all minus ones, and against one minus one at every place."""
    places = np.unique(np.linspace(0, m.d - 1, _MOST_INPUTS - 2).astype(np.int64))
    values = np.ones((2 + len(places), m.d))
    values[1] = -1
    values[np.arange(len(places)) + 2, places] = -1

    def counts(first: int, second: int) -> list[Statistic]:
        total = Statistic("number of ones", lambda rows: rows.sum(axis=1, dtype=np.int64))
        if second < 2:
            return [total]
        j = places[second - 2]
        return [
            total,
            Statistic(
                f"number of ones, and element {j},",
                lambda rows: rows.sum(axis=1, dtype=np.int64) + (m.d + 1) * rows[:, j].astype(int),
            ),
        ]

    return Subject(
        name="duchi-multi",
        inputs=("all 1", "all -1", *(f"-1 at {j}" for j in places)),
        pairs=tuple((0, i) for i in range(1, len(values))),
        run=lambda which: np.asarray(m.encode(values[which], noise=noise)),
        joint=counts,
        coded=True,
        batched=True,
    )


def _of_record(m: Tuple, noise: Noise, claim: Claim, trials: int) -> Subject:
    """Records that differ in every attribute; long lists are gone through."""
    sizes = [oracle.n_categories for oracle in m.categorical.values()]
    n = min(_MOST_INPUTS, max([2, *sizes]))
    ends = np.array([-1.0, 1.0])
    if m.numeric is not None:
        rows = np.array(_worst_rows(m.numeric, claim, trials)[0])
        ends = 2 * rows / m.numeric.table.n_intervals - 1
    records, ranks = {}, {}
    for j, attribute in enumerate(m.schema):
        if isinstance(attribute, Categorical):
            size = m.categorical[j].n_categories
            ranks[j] = (
                np.linspace(0, size - 1, n).astype(np.int64) if size >= n else np.arange(n) % size
            )
            records[attribute.name] = np.array(attribute.labels)[ranks[j]]
        elif isinstance(attribute, Numeric):
            records[attribute.name] = (
                attribute.centre + attribute.half_width * ends[np.arange(n) % 2]
            )
    unary = {j: oracle for j, oracle in m.categorical.items() if isinstance(oracle, OUE)}

    def run(which: Array) -> Array:
        """A column per attribute, 0 where it is not reported; then one per bit of long lists."""
        reports = m.encode({name: column[which] for name, column in records.items()}, noise=noise)
        index = np.asarray(reports.index).astype(np.intp)
        table = np.zeros((len(which), m.d), np.int32)
        np.put_along_axis(table, index, np.asarray(reports.code).astype(np.int32) + 1, axis=1)
        parts = [table]
        for j, oracle in unary.items():
            bits = np.unpackbits(
                np.asarray(reports.bits[j]), axis=1, count=oracle.n_categories, bitorder="little"
            )
            part = np.zeros((len(which), oracle.n_categories), np.int32)
            part[np.flatnonzero((index == j).any(axis=1))] = bits + 1
            parts.append(part)
        return np.concatenate(parts, axis=1)

    def ratios(first: int, second: int) -> list[Statistic]:
        tables = _log_ratios(m, ends, ranks, first, second)
        return [
            Statistic(
                "logarithm of the claimed ratio",
                lambda rows: np.round(sum(t[rows[:, j]] for j, t in tables.items()), 9),
            )
        ]

    return Subject(
        name="split-budget" if m.k == m.d else "tuple",
        inputs=tuple(f"record {i}" for i in range(n)),
        pairs=tuple((i, (i + 1) % n) for i in range(n if n > 2 else 1)),
        run=run,
        joint=ratios,
        coded=True,
        batched=True,
    )


def _log_ratios(
    m: Tuple, ends: Array, ranks: dict[int, Array], first: int, second: int
) -> dict[int, Array]:
    """By column: the log ratio of what is reported, 0 for nothing, under the claimed laws."""
    tables: dict[int, Array] = {}
    after = m.d
    for j in range(m.d):
        oracle = m.categorical.get(j)
        if oracle is None:
            assert m.numeric is not None
            a, b = (m.numeric.pmf(ends[i % 2]) for i in (first, second))
            tables[j] = np.concatenate([[0.0], np.log(a / b)])
            continue
        here = [int(ranks[j][i]) for i in (first, second)]
        p, q = float(oracle.p), float(oracle.q)
        if isinstance(oracle, GRR):
            table = np.zeros(oracle.n_categories + 1)
            if here[0] != here[1]:
                table[here[0] + 1], table[here[1] + 1] = np.log(p / q), np.log(q / p)
            tables[j] = table
        else:
            if here[0] != here[1]:
                gain = np.array([0.0, np.log((1 - p) / (1 - q)), np.log(p / q)])
                tables[after + here[0]], tables[after + here[1]] = gain, -gain
            after += oracle.n_categories
    return tables


def release_subject(
    release: Callable[[Any], Any], inputs: Sequence[Any], name: str, batch: bool
) -> Subject:
    """A function of the data, with inputs that are all neighbours of the first."""
    if len(inputs) < 2:
        raise ParameterError("The 'inputs' parameter must hold two inputs or more.")
    if batch:
        stacked = np.stack([np.asarray(value) for value in inputs])

    def run(which: Array) -> Array:
        if batch:
            outputs = np.asarray(release(stacked[which]))
        else:
            outputs = np.array([np.asarray(release(inputs[i])) for i in which])
        if len(outputs) != len(which) or outputs.dtype.kind not in "iufb":
            raise ParameterError("The 'm' parameter must give numbers, as many for every input.")
        return outputs.reshape(len(which), -1)

    return Subject(
        name=name,
        inputs=tuple(f"input {i}" for i in range(len(inputs))),
        pairs=tuple((0, i) for i in range(1, len(inputs))),
        run=run,
        joint=_nothing,
        coded=False,
        batched=batch,
    )
