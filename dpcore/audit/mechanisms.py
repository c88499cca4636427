"""The audit of a mechanism by running it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore._checks import check_flag, check_generator, check_index, check_name
from dpcore._release import check_noise
from dpcore.audit.result import Audit, Claim, check_confidence, make_claim
from dpcore.audit.search import Finding, Views, search, summarise
from dpcore.audit.subjects import Subject, local_subject, release_subject
from dpcore.errors import ParameterError
from dpcore.noise import Noise

__all__ = ["mechanism", "run_audit"]

Array = npt.NDArray[Any]

_CELLS = 1 << 25  # outputs held at a time
_SHORT = 3_000, 5_000  # least and most calls on short arrays
_LONGEST = 40
_LAGS = (1, 2, 8, 16, 64, 256, 1024, 4096, 65536)


def mechanism(
    m: Any,
    inputs: Sequence[Any] | None = None,
    *,
    epsilon: float | None = None,
    delta: float = 0.0,
    mu: float | None = None,
    trials: int = 200_000,
    confidence: float = 1 - 1e-6,
    batch: bool = False,
    name: str | None = None,
    noise: Noise | None = None,
    random_state: int = 0,
) -> Audit:
    """Lower bound on the epsilon of a mechanism, from running it on neighbouring inputs.

    Parameters
    ----------
    m : mechanism of dpcore.local, or callable
        A `Mechanism`, `GRR`, `OUE`, `DuchiMulti` or `Tuple`, whose worst inputs are known; or a
        function from data to a number or an array of numbers of a fixed shape.
    inputs : sequence, for a callable
        Two or more inputs, all of them neighbours of the first.
    epsilon, delta : float
        The claim. By default that of the mechanism; a callable needs one.
    mu : float, instead of epsilon
        The claim of mu-GDP, that is, of Gaussian noise of 1 / mu times the sensitivity. The bound
        is then much closer to the truth than with delta alone.
    trials : int
        Number of runs, over all inputs; half of them choose sets, half are counted. Outputs of
        many elements lower it, so that 2**25 of them are held at a time.
    confidence : float
        Chance, at least, that a mechanism that keeps its claim passes.
    batch : bool
        Whether the callable takes many inputs at once, stacked along the first axis, and gives an
        output for each. Otherwise it is called once for every run.
    name : str, optional
        What to call it.
    noise : Noise, optional
        For local mechanisms: the source, not a pinned stream; a secure one by default.
    random_state : int
        Seed of the order of the inputs.

    Returns
    -------
    Audit

    Notes
    -----
    Sets of outputs are searched for in every element, the first and the last included; in the
    likelihood ratio under the claimed law where that is known, or else in the projection on the
    change of the output and in the l1 distances; in the first and last element of short arrays; and
    in pairs of outputs. A pair is two elements of one call, at several distances, or two calls:
    with noise of its own, an output next to another tells no more than alone.

    Privacy
    -------
    The bound is Clopper-Pearson, by an incomplete beta function of dpcore's own: for every set,
    ``log((p - delta) / q)`` with the lower bound of its share p under one input and the upper bound
    of its share q under the other, corrected for the number of sets. Epsilon is at least that, with
    `confidence`, if runs are independent. Passing is no proof: a leak on other inputs, or rarer
    than about 20 in `trials`, goes unseen. Nothing is charged to a ledger for local mechanisms:
    the inputs are made up.

    Cost
    ----
    About twice `trials` runs of the mechanism, some 10**6 per second for local mechanisms, and
    3,000 to 5,000 calls on short arrays, the more the greater epsilon is.

    Examples
    --------
    >>> import dpcore
    >>> from dpcore import audit, local
    >>> result = audit.mechanism(local.Duchi(1.0), trials=100_000)
    >>> result.passed, 0.9 < result.lower_bound <= 1
    (True, True)

    A sensitivity stated as half of what it is:

    >>> release = lambda x: dpcore.laplace(x, epsilon=1, sensitivity=1)
    >>> audit.mechanism(release, [[0], [2]], epsilon=1, batch=True, trials=100_000).passed
    False
    """
    count = check_index(trials, "trials", least=1000)
    level = check_confidence(confidence)
    batch = check_flag(batch, "batch")
    check_generator(random_state)
    if name is not None:
        check_name(name, "name")
    if inputs is not None:
        if not callable(m):
            raise ParameterError("The 'm' parameter must be callable where 'inputs' are given.")
        claim = make_claim(epsilon, delta, mu)
        title = name or str(getattr(m, "__name__", "release"))
        subject = release_subject(m, inputs, title, batch)
    else:
        loss = getattr(m, "epsilon", None) if epsilon is None and mu is None else epsilon
        if loss is None and mu is None:
            raise ParameterError("The 'inputs' parameter must be given for a callable.")
        claim = make_claim(loss, delta, mu)
        source = check_noise(noise)
        if source.pinned:
            raise ParameterError("The 'noise' parameter must not be a pinned stream.")
        subject = local_subject(m, source.for_ledger(prepaid=True), claim, count)
    return run_audit(subject, claim, count, level, random_state, name)


def run_audit(
    subject: Subject,
    claim: Claim,
    trials: int,
    confidence: float,
    random_state: int,
    name: str | None = None,
) -> Audit:
    """Run a subject and search its outputs."""
    random = np.random.default_rng(random_state)
    width = subject.run(np.zeros(1, np.intp)).shape[1]
    trials = max(1000, min(trials, _CELLS // width))
    findings = list(_single(subject, claim, trials, random))
    findings += _coupled(subject, claim, trials // 2, random)
    if subject.batched:
        # So many that an element without noise would be told from epsilon.
        calls = np.clip(400 * np.exp(min(claim.epsilon, 20.0)), *_SHORT)
        findings += _short(subject, claim, min(int(calls), trials // 10), random)
    return summarise(name or subject.name, claim, findings, confidence, trials)


def _single(
    subject: Subject, claim: Claim, trials: int, random: np.random.Generator
) -> Iterator[Finding]:
    """Outputs one by one, under every pair of neighbours."""
    # Half of the runs go to the pair that tells most.
    which = random.integers(0, len(subject.inputs), trials)
    first = random.random(trials) < 0.5
    which[first] = np.array(subject.pairs[0])[which[first] % 2]
    outputs = subject.run(which)
    for a, b in subject.pairs:
        views = Views.split(outputs[which == a], outputs[which == b])
        if views:
            where = f"{subject.inputs[a]} against {subject.inputs[b]}"
            yield from search(views, subject.statistics((a, b), views), claim, where)


def _coupled(
    subject: Subject, claim: Claim, trials: int, random: np.random.Generator
) -> Iterator[Finding]:
    """Two outputs side by side, of which the input of one changes: shared noise shows there."""
    pair = np.array(subject.pairs[0])
    which = [random.integers(0, 2, trials) for _ in range(2)]
    outputs = [subject.run(pair[numbers]) for numbers in which]
    places = np.arange(trials)
    couples = [("two calls", outputs, which, places, places)]
    for lag in (*_LAGS, trials // 2):
        if 2 * lag <= trials:
            # Couples that share no element, so that they are independent.
            first = places[(places % (2 * lag) < lag) & (places + lag < trials)]
            title = f"elements {lag} apart"
            couples.append((title, [outputs[0]] * 2, [which[0]] * 2, first, first + lag))
    for title, parts, numbers, first, second in couples:
        kept = numbers[0][first] == 0
        first, second = first[kept], second[kept]
        changed = numbers[1][second] == 1
        rows = _beside(parts[0][first], parts[1][second])
        views = Views.split(rows[~changed], rows[changed])
        if views:
            yield from search(views, subject.couplings(views), claim, title)


def _beside(first: Array, second: Array) -> Array:
    """Rows of both, in a type that holds differences."""
    whole = first.dtype.kind in "iub"
    return np.concatenate([first, second], axis=1, dtype=np.int64 if whole else np.float64)


def _short(
    subject: Subject, claim: Claim, calls: int, random: np.random.Generator
) -> Iterator[Finding]:
    """The first and the last element of arrays of 1 to 40, and the two side by side."""
    pair = np.array(subject.pairs[0])
    lengths = random.integers(1, _LONGEST + 1, calls)
    ends: dict[str, list[Array]] = {"first": [], "last": []}
    choices = {key: random.integers(0, 2, calls) for key in ends}
    for i, length in enumerate(lengths.tolist()):
        which = random.integers(0, 2, length)
        which[0] = choices["first"][i] if length > 1 else choices["last"][i]
        which[-1] = choices["last"][i]
        outputs = subject.run(pair[which])
        ends["first"].append(outputs[0])
        ends["last"].append(outputs[-1])
    choices["first"] = np.where(lengths > 1, choices["first"], choices["last"])
    tables = {key: np.array(rows) for key, rows in ends.items()}
    for key, table in tables.items():
        views = Views.split(table[choices[key] == 0], table[choices[key] == 1])
        if views:
            statistics = subject.statistics(subject.pairs[0], views)
            yield from search(views, statistics, claim, f"{key} of a short array")
    kept = (lengths > 1) & (choices["first"] == 0)
    rows, changed = _beside(tables["first"][kept], tables["last"][kept]), choices["last"][kept]
    views = Views.split(rows[changed == 0], rows[changed == 1])
    if views:
        yield from search(views, subject.couplings(views), claim, "both ends of a short array")
