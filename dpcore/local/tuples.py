"""Many attributes per device: a few of them, drawn at random, are reported with more budget each.

>>> import numpy as np
>>> from dpcore.local import Categorical, Numeric, Reports, Tuple
>>> schema = [Numeric("age", 0, 100), Numeric("speed", 0, 50), Categorical("fuel", ["gas", "oil"])]
>>> collector = Tuple(schema, epsilon=4.0)
>>> ages, fuels = np.full(100_000, 40.0), np.array(["gas", "oil"] * 50_000)
>>> message = collector.encode({"age": ages, "speed": ages / 4, "fuel": fuels}).to_bytes()
>>> result = collector.estimate(Reports.from_bytes(message, collector))
>>> low, high = result["age"].interval(0.999999)
>>> bool(low < 40 < high)
True
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore import wire
from dpcore._charge import prepay
from dpcore._checks import (
    INDEX_LIMIT,
    as_array,
    check_choice,
    check_index,
    check_name,
    check_positive,
    exact,
)
from dpcore._events import PureEvent
from dpcore._parallel import for_ranges
from dpcore._release import check_noise, check_start
from dpcore.errors import DataError, ParameterError
from dpcore.local import continuous
from dpcore.local.base import Estimate, Mechanism
from dpcore.local.categorical import (
    GRR,
    OUE,
    Frequencies,
    best_categorical,
)
from dpcore.local.reports import BITS, CODES, INDICES, PAIRS, Reports, TupleEstimate
from dpcore.local.schema import Attribute, Categorical, Numeric, check_schema
from dpcore.local.tables import local_event
from dpcore.noise import Noise
from dpcore_ext.sample import integers as fill_integers

__all__ = [
    "SplitBudget",
    "Tuple",
    "sampled_variance",
]

Columns = Mapping[str, npt.ArrayLike] | npt.ArrayLike

_BLOCK = 1 << 20  # values held at a time
_BEST_LOSS = Fraction(5, 2)  # loss of one report at which sampling pays most
_OBJECTIVES = ("worst", "at_zero")
_AUTO = ("duchi", "three-outputs", "pm", "pm-sub", "pm-opt", "hm", "hm-tp", "hm-j")


class Tuple:
    """A local randomiser for records of many attributes.

    Every device draws k of the d attributes at random, without replacement, and reports each with
    the loss epsilon / k. Estimates are over all devices: one that did not draw an attribute counts
    as 0 there, one that did as d / k times its report.

    Parameters
    ----------
    schema : sequence of Numeric and Categorical
        The attributes, in order: public.
    epsilon : float
        Privacy loss of a whole record.
    mechanism : str
        For numbers: a name of `dpcore.local.NAMES`, or "auto" for the best published one under
        the objective.
    k : int, optional
        Attributes per device; by default max(1, min(d, floor(epsilon / 2.5))).
    objective : {"worst", "at_zero"}
        What "auto" and "optimal" make small: the largest variance of an estimate over all values,
        or the variance at the middle of the bounds. Where k < d, what counts is the mean square of
        a report rather than its variance.
    **options
        Further parameters of the mechanism, such as n_levels.

    Attributes
    ----------
    d, k : int
        Numbers of attributes, and of those reported.
    epsilon_per_report : float
        epsilon / k, rounded down.
    numeric : Mechanism or None
        What numbers are reported with, on the scale from -1 to 1.
    categorical : dict of int to GRR or OUE
        What each categorical attribute is reported with: the one with the lower variance.
    n_bits : int
        Bits of one (attribute, code) pair on the wire, OUE bits aside.

    Privacy
    -------
    epsilon-local-DP for the whole record: any two records give any set of pairs with probabilities
    that differ by at most a factor of e**epsilon. The attributes are drawn without looking at the
    record, and k reports that are each epsilon / k-local-DP compose. It covers one record per
    device: records of the same device, reported again, add up. That a device reports, when, which
    attributes it drew, and that its record is valid, are not protected.

    Cost
    ----
    Per device: k exact samples for the choice, k table look-ups for numbers, k exact samples for
    every different length of short lists, as many look-ups as categories for a long list that was
    drawn; k * n_bits on the wire.

    Examples
    --------
    >>> collector = Tuple([Numeric(f"x{j}", -1, 1) for j in range(16)], 5.0, "three-outputs")
    >>> collector.k, collector.n_bits
    (2, 6)
    """

    def __init__(
        self,
        schema: Sequence[Attribute],
        epsilon: float,
        mechanism: str = "hm-j",
        *,
        k: int | None = None,
        objective: str = "worst",
        **options: Any,
    ) -> None:
        self.schema = check_schema(schema)
        loss = check_positive(epsilon, "epsilon")
        if loss > 1000:
            raise ParameterError("The 'epsilon' parameter must be at most 1000.")
        self.epsilon, self.d = float(loss), len(self.schema)
        chosen = max(1, min(self.d, math.floor(loss / _BEST_LOSS))) if k is None else k
        self.k = check_index(chosen, "k", least=1)
        if self.k > self.d:
            raise ParameterError("The 'k' parameter must be at most the number of attributes.")
        self.epsilon_per_report = share(min(loss, Fraction(self.epsilon)), self.k)
        self.objective = check_choice(objective, "objective", _OBJECTIVES)
        self.categorical: dict[int, GRR | OUE] = {
            j: best_categorical(self.epsilon_per_report, len(attribute.labels))
            for j, attribute in enumerate(self.schema)
            if isinstance(attribute, Categorical)
        }
        self.numeric = self._mechanism(mechanism, options)
        self._is_numeric = np.array([isinstance(a, Numeric) for a in self.schema])
        sizes = [self._alphabet(j) for j in range(self.d)]
        self._sizes, self._offsets = np.array(sizes), np.cumsum([0, *sizes[:-1]])

    def _mechanism(self, name: str, options: dict[str, Any]) -> Mechanism | None:
        from dpcore import local  # it imports this module

        if len(self.categorical) == self.d:
            return None
        check_name(name, "mechanism")
        loss, partial = self.epsilon_per_report, self.k < self.d
        if name == "auto":
            name = min(_AUTO, key=lambda n: _score(n, loss, self.objective, partial))
        if name == "optimal":
            worst = "second_moment" if partial else "worst"
            options = {"objective": worst if self.objective == "worst" else "at_zero"} | options
        return local.make(name, loss, **options)

    def _alphabet(self, attribute: int) -> int:
        """Number of codes of an attribute."""
        oracle = self.categorical.get(attribute)
        if oracle is None:
            return self._numeric.n_outputs
        return oracle.n_categories if isinstance(oracle, GRR) else 1

    @property
    def _numeric(self) -> Mechanism:
        if self.numeric is None:
            raise ParameterError("The 'schema' parameter must have a numeric attribute for this.")
        return self.numeric

    @cached_property
    def _parts(self) -> list[tuple[int, int, int]]:
        """Messages of a Reports object: part, attribute, bits per code."""
        total = int(self._sizes.sum())
        code = (CODES, 0, wire.n_bits_for(int(self._sizes.max())))
        if self.k == self.d:
            parts = [code]
        elif total <= 1 << wire.MAX_BITS:
            parts = [(PAIRS, 0, wire.n_bits_for(total))]
        else:
            parts = [(INDICES, 0, wire.n_bits_for(self.d)), code]
        return parts + [(BITS, j, 8) for j in self._unary]

    @property
    def n_bits(self) -> int:
        return sum(n_bits for part, _, n_bits in self._parts if part != BITS)

    @cached_property
    def _unary(self) -> dict[int, OUE]:
        return {j: o for j, o in self.categorical.items() if isinstance(o, OUE)}

    def encode(self, columns: Columns, *, noise: Noise | None = None, start: int = 0) -> Reports:
        """Randomise records: what devices send.

        Parameters
        ----------
        columns : mapping of names to columns, or array_like of shape (n_devices, d)
            One row per device. In an array, categories are those of the schema as well; a float
            array can hold categories that are integers.
        noise : Noise, optional
            Source of randomness; a secure one by default.
        start : int
            Index of the first device in the release.
        """
        table = self._columns(columns)
        n, source = len(table[0]), check_noise(noise)
        first = check_start(start, n)
        return self.encode_numbers(
            lambda j, a, b: self.schema[j].to_numbers(table[j][a:b]), n, source, first
        )

    def encode_numbers(
        self, read: Callable[[int, int, int], npt.NDArray[Any]], n: int, source: Noise, start: int
    ) -> Reports:
        """Reports of n records of which read(j, a, b) gives attribute j of those from a to b.

        As `Numeric.to_numbers` and `Categorical.to_numbers` give it.
        """
        if (start + n) * self.k > INDEX_LIMIT:
            raise ParameterError("The 'start' parameter must keep all indices times k below 2**62.")
        release = self._release(source)
        index = np.empty((n, self.k), np.uint8 if self.d <= 256 else np.uint16)
        code = np.empty((n, self.k), np.uint8 if self._sizes.max() <= 256 else np.uint16)
        step = max(1, _BLOCK // self.d)
        bits: list[dict[int, npt.NDArray[np.uint8]]] = [{} for _ in range(0, n, step)]

        def work(begin: int, end: int) -> None:
            for i in range(begin, end):
                a, b = i * step, min(i * step + step, n)
                numbers = np.empty((b - a, self.d))
                # All columns are read and checked, whichever were drawn.
                for j in range(self.d):
                    numbers[:, j] = read(j, a, b)
                bits[i] = self._encode(release, start + a, numbers, index[a:b], code[a:b])

        for_ranges(work, len(bits), least=1)
        joined = {j: np.concatenate([part[j] for part in bits]) for j in self._unary}
        return Reports(
            self,
            source.mark(index),
            source.mark(code),
            {j: source.mark(own) for j, own in joined.items()},
        )

    def _release(self, source: Noise) -> Noise:
        """A source for the parts of one release, fresh or pinned as the one given."""
        name = ("local tuple", self._digest.hex())
        return prepay(source, self.event, *name).release(*name)

    @property
    def event(self) -> PureEvent:
        """What the reports of one record cost."""
        return local_event("local tuple", Fraction(self.epsilon_per_report), self.k)

    def _encode(
        self,
        noise: Noise,
        start: int,
        numbers: npt.NDArray[np.float64],
        index: npt.NDArray[Any],
        code: npt.NDArray[Any],
    ) -> dict[int, npt.NDArray[np.uint8]]:
        """Fills index and code for one block of records; returns the bits of long lists."""
        n, k, first = len(numbers), self.k, start * self.k
        if k == self.d:
            index[:], values, numeric = np.arange(k), numbers, self._is_numeric
        else:
            chosen = choose(noise, start, n, self.d, k)
            index[:], values = chosen, np.take_along_axis(numbers, chosen, axis=1)
            numeric = self._is_numeric[chosen]
        if self.numeric is None:
            code[:] = 0
        elif not self.categorical:
            code[:] = self.numeric.encode(values, noise=noise, start=first)
        else:
            # Slots of categories are encoded as 0 and not used.
            code[:] = self.numeric.encode(values * numeric, noise=noise, start=first)
            code *= numeric
        bits, shifts, flat = {}, {}, code.reshape(-1)
        for j, oracle in self.categorical.items():
            slots = np.arange(j, n * k, k) if k == self.d else np.flatnonzero(index == j)
            drawn = values.reshape(-1)[slots].astype(np.int64)
            if isinstance(oracle, OUE):
                own = noise.stream("attribute", j)
                bits[j] = oracle.encode_at(own, start + slots // k, drawn)
            else:
                # A slot has one attribute, so lists of one length can share its noise.
                v = oracle.n_categories
                if v not in shifts:
                    shifts[v] = oracle.shifts(noise, first, n * k)
                flat[slots] = oracle.shifted(drawn, shifts[v][slots])
        return bits

    def estimate(self, reports: Reports | bytes) -> TupleEstimate:
        """Means and frequencies of all attributes among the devices."""
        if isinstance(reports, bytes | bytearray | memoryview):
            reports = Reports.from_bytes(reports, self)
        if not isinstance(reports, Reports) or reports.collector != self:
            raise ParameterError("The 'reports' parameter must be reports of this collector.")
        self._check(reports)
        pairs = self._offsets[reports.index] + reports.code
        counts = np.bincount(np.asarray(pairs).reshape(-1), minlength=int(self._sizes.sum()))
        own = np.split(counts, self._offsets[1:])
        reported = [int(part.sum()) for part in own]
        for j, oracle in self._unary.items():
            own[j] = oracle.supports(reports.bits[j])
        return self.estimate_counts(own, reported, len(reports))

    def estimate_counts(
        self, counts: Sequence[npt.NDArray[Any]], reported: Sequence[int], n: int
    ) -> TupleEstimate:
        """Means and frequencies from what n devices sent.

        For every attribute, `counts` says how often each code was sent, or each bit was set where
        the report consists of bits, and `reported` says how many devices reported it.
        """
        results: dict[str, Estimate | Frequencies] = {}
        for j, attribute in enumerate(self.schema):
            oracle = self.categorical.get(j)
            if oracle is not None:
                scale = self.d / self.k
                results[attribute.name] = oracle.debias(counts[j], reported[j], n, scale)
            elif isinstance(attribute, Numeric):
                results[attribute.name] = self._mean(attribute, counts[j], n)
        return TupleEstimate(results, n)

    def _mean(self, attribute: Numeric, counts: npt.NDArray[Any], n: int) -> Estimate:
        values = self._numeric.outputs * (self.d / self.k)
        mean = float(counts @ values) / n
        spread = max(0.0, float(counts @ np.square(values)) / n - mean * mean)
        error = math.sqrt(spread / (n - 1)) if n > 1 else math.inf
        half = attribute.half_width
        return Estimate(attribute.centre + mean * half, error * half, n)

    def variance(self, x: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Variance of one device's contribution to the mean of a numeric attribute.

        For values x from -1 to 1 in units of half the width of the bounds; divide by the number of
        devices for the noise of an estimate.
        """
        values = np.clip(np.asarray(x, dtype=np.float64), -1, 1)
        return sampled_variance(self._numeric.variance(values), values, self.d, self.k)

    @cached_property
    def worst_case_variance(self) -> float:
        """Largest `variance` over all values: between grid points it is a concave parabola."""
        table = self._numeric.table
        points = np.linspace(-1, 1, table.n_intervals + 1)
        slopes = np.diff(table.second_moments) * table.n_intervals / 2 * (self.d / self.k)
        tops = np.clip(slopes / 2, points[:-1], points[1:])
        return float(self.variance(np.concatenate([points, tops])).max())

    def error_bound(self, n: int, confidence: float = 0.95) -> float:
        """A bound on the errors of all numeric means at once, for n devices.

        In units of half the width of an attribute's bounds. By Bernstein's inequality and the union
        bound: no approximation is involved, and the bound covers the noise for the devices as they
        are, not the drawing of the devices.
        """
        count = check_index(n, "n", least=1)
        level = float(exact(confidence, "confidence"))
        if not 0 < level < 1:
            raise ParameterError("The 'confidence' parameter must lie between 0 and 1.")
        most = float(np.abs(self._numeric.outputs).max()) * self.d / self.k + 1
        log = math.log(2 * int(self._is_numeric.sum()) / (1 - level)) / count
        root = math.sqrt((most * log / 3) ** 2 + 2 * self.worst_case_variance * log)
        return most * log / 3 + root

    def _columns(self, columns: Columns) -> list[npt.NDArray[Any]]:
        if isinstance(columns, Mapping):
            names = {attribute.name for attribute in self.schema}
            if set(columns) != names:
                raise ParameterError("The 'columns' parameter must have the names of the schema.")
            table = [as_array(columns[attribute.name], "columns") for attribute in self.schema]
        else:
            matrix = as_array(columns, "columns")
            if matrix.ndim != 2 or matrix.shape[1] != self.d:
                raise ParameterError(
                    "The 'columns' parameter must have a column for every attribute."
                )
            table = list(matrix.T)
        if any(column.ndim != 1 or len(column) != len(table[0]) for column in table):
            raise ParameterError("The 'columns' parameter must hold columns of one length.")
        if len(table[0]) == 0:
            raise ParameterError("The 'columns' parameter must not be empty.")
        return table

    def _check(self, reports: Reports) -> None:
        """Refuse what no device sends: the server trusts nothing else."""
        index, code = np.asarray(reports.index), np.asarray(reports.code)
        if index.dtype.kind not in "iu" or code.dtype.kind not in "iu":
            raise ParameterError("The 'reports' parameter must hold arrays of integers.")
        if index.ndim != 2 or index.shape != code.shape or index.shape[1] != self.k:
            raise ParameterError("The 'reports' parameter must hold k pairs per device.")
        if len(index) == 0:
            raise ParameterError("The 'reports' parameter must not be empty.")
        in_range = int(index.min()) >= 0 and int(index.max()) < self.d
        if not in_range or (code < 0).any() or (code >= self._sizes[index]).any():
            raise DataError("The 'reports' parameter must hold codes of this collector.")
        if self.k == self.d:
            distinct = bool((index == np.arange(self.d)).all())
        else:
            distinct = not (np.diff(np.sort(index, axis=1), axis=1) == 0).any()
        if not distinct:
            raise DataError("The 'reports' parameter must hold k attributes of every device.")
        if set(reports.bits) != set(self._unary):
            raise ParameterError("The 'reports' parameter must hold bits for the long lists.")
        for j, oracle in self._unary.items():
            if len(oracle.checked_reports(reports.bits[j])) != (index == j).sum():
                raise DataError("The 'reports' parameter must hold bits of every report.")

    def _assemble(self, n: int, found: Mapping[tuple[int, int], npt.NDArray[Any]]) -> Reports:
        """Reports from the contents of their parts."""
        if (PAIRS, 0) in found:
            pairs = found[PAIRS, 0].astype(np.int64)
            index = np.searchsorted(self._offsets, pairs, side="right") - 1
            code = pairs - self._offsets[index]
        else:
            code = found[CODES, 0]
            everything = np.tile(np.arange(self.d), n) if self.k == self.d else None
            index = found[INDICES, 0] if everything is None else everything
        small = np.uint8 if self._sizes.max() <= 256 else np.uint16
        if code.size and int(code.max()) >= self._sizes.max():
            raise DataError("The 'reports' parameter must hold codes of this collector.")
        return Reports(
            self,
            index.astype(np.uint8 if self.d <= 256 else np.uint16).reshape(n, self.k),
            code.astype(small).reshape(n, self.k),
            {j: found[BITS, j].reshape(-1, oracle.n_bytes) for j, oracle in self._unary.items()},
        )

    @cached_property
    def _digest(self) -> bytes:
        """Names the collector: equal for equal schemas and laws only."""
        state = hashlib.sha256(repr((self.schema, self.epsilon_per_report, self.k)).encode())
        if self.numeric is not None:
            state.update(self.numeric._digest)
        for j, oracle in self.categorical.items():
            state.update(repr((j, oracle.name, oracle.p, oracle.q)).encode())
        return state.digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tuple) and self._digest == other._digest

    def __hash__(self) -> int:
        return hash(self._digest)

    def __repr__(self) -> str:
        numeric = None if self.numeric is None else self.numeric.name
        return (
            f"<{type(self).__name__}: {self.k} of {self.d} attributes, "
            f"epsilon={self.epsilon!r}, numeric={numeric!r}>"
        )


class SplitBudget(Tuple):
    """The baseline for many attributes: all are reported, with the loss epsilon / d each.

    Numbers are reported one by one; `DuchiMulti` reports all at once, and knows no categories.

    Parameters
    ----------
    schema, epsilon, mechanism
        As for `Tuple`; the mechanism is Laplace's by default.

    Privacy
    -------
    As for `Tuple`, with k = d.

    Cost
    ----
    As for `Tuple`; attributes are known from their place and take no bits.

    Examples
    --------
    >>> SplitBudget([Numeric("a", 0, 1), Numeric("b", 0, 1)], 1.0).epsilon_per_report
    0.5
    """

    def __init__(
        self,
        schema: Sequence[Attribute],
        epsilon: float,
        mechanism: str = "laplace",
        **options: Any,
    ) -> None:
        schema = check_schema(schema)
        super().__init__(schema, epsilon, mechanism, k=len(schema), **options)


def sampled_variance(
    variance: npt.ArrayLike, x: npt.ArrayLike, d: int, k: int
) -> npt.NDArray[np.float64]:
    """Variance of d / k times a report that is made with chance k / d, and 0 otherwise.

    Parameters
    ----------
    variance : array_like
        Variance of the report itself, at the values x.
    """
    square = np.square(np.asarray(x, dtype=np.float64))
    return np.asarray(d / k * (np.asarray(variance) + square) - square)


def choose(noise: Noise, start: int, n: int, d: int, k: int) -> npt.NDArray[np.int64]:
    """For devices start, start + 1, ...: k of d attributes, all ordered choices equally likely."""
    if k == d:
        return np.tile(np.arange(d), (n, 1))
    out = np.empty((n, k), np.int64)
    keys = [noise.key_for("local tuple choice", d, slot) for slot in range(k)]

    def work(begin: int, end: int) -> None:
        draw = np.empty(end - begin, np.int64)
        for slot, key in enumerate(keys):
            fill_integers(key, 0, d - slot, start + begin, draw)
            # The draw counts attributes not chosen yet: step over those that are, in order.
            for taken in np.sort(out[begin:end, :slot], axis=1).T:
                draw += draw >= taken
            out[begin:end, slot] = draw

    for_ranges(work, n)
    return out


def _score(name: str, epsilon: float, objective: str, partial: bool) -> float:
    """What the choice of a mechanism makes small."""
    law = continuous.continuous(name, epsilon)
    if objective == "at_zero":
        return law.variance(0.0)
    # The mean square grows with |x| for all of them.
    return law.variance(1.0) + 1 if partial else law.worst_case_variance


def share(epsilon: Fraction, k: int) -> float:
    """epsilon / k as a float that is not above it."""
    share = float(epsilon / k)
    return share if Fraction(share) * k <= epsilon else math.nextafter(share, 0.0)
