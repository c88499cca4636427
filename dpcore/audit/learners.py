"""The audit of a learner: can its result tell whether a record took part?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore._checks import (
    check_callable,
    check_choice,
    check_generator,
    check_index,
    check_list,
    check_name,
)
from dpcore.audit.bounds import one_run_epsilon
from dpcore.audit.result import Audit, Claim, check_confidence, make_claim
from dpcore.audit.search import Views, search, summarise
from dpcore.audit.subjects import release_subject
from dpcore.errors import DataError, ParameterError

__all__ = ["from_estimator", "learner"]

Array = npt.NDArray[Any]
FitPredict = Callable[[Array, Array, Array, Array], Any]

_SHARES = (1.0, 0.5, 0.25, 0.1, 0.05)  # of the canaries that are guessed, in one run


def learner(
    fit_predict: FitPredict,
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    canaries: tuple[npt.ArrayLike, npt.ArrayLike],
    *,
    epsilon: float | None = None,
    delta: float = 0.0,
    mu: float | None = None,
    method: str = "two-worlds",
    adjacency: str = "add-remove",
    trials: int = 1000,
    confidence: float = 1 - 1e-6,
    name: str = "learner",
    random_state: int = 0,
) -> Audit:
    """Lower bound on the epsilon of a learner, from training it with and without canaries.

    Parameters
    ----------
    fit_predict : callable
        ``fit_predict(X, y, canary_X, canary_y)`` trains on X and y, with fresh noise, and gives
        numbers computed from what it learned. With "two-worlds" they may be anything of a fixed
        shape: scores of the canary, predictions, or the parameters themselves, which tell most.
        With "one-run" they are one score per canary, higher where it seems to have taken part.
        `from_estimator` makes one from a scikit-learn estimator.
    X, y : array_like
        The other records.
    canaries : (array_like, array_like)
        Records X and y that may take part, chosen to be seen: far from the others, or with a
        wrong label. One for "two-worlds", many for "one-run".
    epsilon, delta, mu : float
        The claim: epsilon and delta; or mu-GDP and delta, for full-batch Gaussian noise. Bounds
        with mu need far fewer trials.
    method : {"two-worlds", "one-run"}
        Train `trials` times, with the canary in about half of the runs; or once, with each of many
        canaries in by a fair coin.
    adjacency : {"add-remove", "replace"}
        Whether the canary is added, or takes the place of the first record; "one-run" adds.
    trials : int
        Number of trainings for "two-worlds".
    confidence : float
        Chance, at least, that a learner that keeps its claim passes.
    name : str
        What to call it.
    random_state : int
        Seed of the coins.

    Returns
    -------
    Audit

    Privacy
    -------
    "two-worlds" bounds epsilon as `dpcore.audit.mechanism` does: by Clopper-Pearson on the runs
    that did not choose the set. "one-run" uses the theorem of Steinke, Nasr and Jagielski (2023):
    of r guesses about canaries that took part by coins of their own, no (epsilon, delta)-DP learner
    gets more right than so many, however it mixes them. Guesses are the r canaries of the highest
    and lowest scores, for five numbers r, with a correction for five. It needs the guarantee under
    add-remove, and with mu it takes the epsilon and delta that mu implies. Its delta weighs as much
    as there are canaries: unless it is far below ``(1 - confidence) / len(canaries)``, lower the
    confidence, or nothing is seen. Either way epsilon is at
    least the bound, with `confidence`; how much is seen depends on the canaries and the scores, and
    passing is no proof. Data given here get no protection: use public or made-up records.

    Cost
    ----
    `trials` trainings, or one.

    Examples
    --------
    A learner that publishes the noisy sum of its labels, and claims twice the noise it adds:

    >>> import numpy as np
    >>> import dpcore
    >>> from dpcore import audit
    >>> def fit_predict(X, y, canary_X, canary_y):
    ...     return dpcore.laplace(y.sum(), epsilon=2.0, sensitivity=1)
    >>> data, canary = (np.zeros((9, 1)), np.zeros(9, int)), (np.zeros((1, 1)), np.ones(1, int))
    >>> audit.learner(fit_predict, *data, canary, epsilon=2.0, trials=10_000).passed
    True
    >>> audit.learner(fit_predict, *data, canary, epsilon=1.0, trials=10_000).passed
    False
    """
    claim, level = make_claim(epsilon, delta, mu), check_confidence(confidence)
    world = check_choice(adjacency, "adjacency", ("add-remove", "replace"))
    check_callable(fit_predict, "fit_predict")
    check_name(name, "name")
    data = (_records(X, "X"), _records(y, "y"))
    extra = tuple(_records(part, "canaries") for part in check_list(canaries, "canaries"))
    if len(extra) != 2 or len(extra[0]) != len(extra[1]) or len(extra[0]) == 0:
        raise ParameterError("The 'canaries' parameter must be arrays X and y of one length.")
    if len(data[0]) != len(data[1]) or len(data[0]) == 0:
        raise ParameterError("The 'X' and 'y' parameters must be arrays of one length.")
    if any(one.shape[1:] != other.shape[1:] for one, other in zip(data, extra, strict=True)):
        raise ParameterError("The 'canaries' parameter must have the shape of the other records.")
    random = check_generator(random_state)
    if check_choice(method, "method", ("two-worlds", "one-run")) == "one-run":
        if world == "replace":
            raise ParameterError("The 'adjacency' parameter must be 'add-remove' for one run.")
        return _one_run(fit_predict, data, extra, claim, level, random, name)
    if len(extra[0]) != 1:
        raise ParameterError("The 'canaries' parameter must hold one record for two worlds.")
    kept = [part[world == "replace" :] for part in data]
    worlds = [data, tuple(np.concatenate(both) for both in zip(kept, extra, strict=True))]
    count = check_index(trials, "trials", least=100)

    def train(records: tuple[Array, Array]) -> Any:
        return fit_predict(*records, extra[0], extra[1])

    subject = release_subject(train, worlds, name, batch=False)
    which = random.permutation(np.arange(count) % 2)
    outputs = subject.run(which)
    views = Views.split(outputs[which == 1], outputs[which == 0])
    statistics = subject.statistics((1, 0), views)
    findings = list(search(views, statistics, claim, "with the canary against without"))
    return summarise(name, claim, findings, level, count)


def _records(part: Any, name: str) -> Array:
    """An array of numbers, booleans or strings, one entry or row for each record."""
    try:
        array = np.asarray(part)
    except (TypeError, ValueError):
        array = np.empty(())
    if array.ndim == 0 or array.dtype.kind not in "biufUS":
        raise ParameterError(f"The '{name}' parameter must be an array with a row per record.")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise DataError(f"The '{name}' parameter must hold finite numbers only.")
    return array


def _one_run(
    fit_predict: FitPredict,
    data: tuple[Array, ...],
    extra: tuple[Array, ...],
    claim: Claim,
    confidence: float,
    random: np.random.Generator,
    name: str,
) -> Audit:
    m = len(extra[0])
    taken = random.integers(0, 2, m).astype(np.bool_)
    records = [np.concatenate([part, more[taken]]) for part, more in zip(data, extra, strict=True)]
    scores = np.asarray(fit_predict(*records, *extra), dtype=np.float64)
    if scores.shape != (m,):
        raise ParameterError("The 'fit_predict' parameter must give one score per canary.")
    # Ties are broken by coins, not by the order of the canaries.
    order = np.lexsort((random.random(m), scores))
    guesses = sorted({max(1, int(m * share) // 2) for share in _SHARES})
    alpha = (1 - confidence) / len(guesses)
    best, worst = 0.0, "none"
    for half in guesses:
        r = min(2 * half, m)
        right = int(taken[order[m - (r - r // 2) :]].sum() + (~taken[order[: r // 2]]).sum())
        bound = one_run_epsilon(m, r, right, claim.delta, alpha)
        if bound > best:
            best, worst = bound, f"{right} right of {r} guesses about {m} canaries"
    return Audit(name, claim.epsilon, claim.delta, best, confidence, m, len(guesses), worst)


def from_estimator(
    make: Callable[[], Any], score: Callable[[Any, Array, Array], Any] | None = None
) -> FitPredict:
    """A `fit_predict` for `learner` from a factory of scikit-learn estimators.

    Parameters
    ----------
    make : callable
        Gives a new estimator at every call, with noise of its own.
    score : callable, optional
        ``score(fitted, X, y)`` gives numbers for canaries. By default: the logarithm of the
        probability of y; else the margin of y; else minus the squared error of the prediction.

    Privacy
    -------
    None: scores are computed from the records given, whatever the estimator guarantees. Use public
    or made-up records.

    Cost
    ----
    One training and one scoring of the canaries for each call of what is returned.

    Examples
    --------
    >>> import numpy as np
    >>> from dpcore import audit
    >>> class Mean:
    ...     def fit(self, X, y):
    ...         self.mean_ = y.mean()
    ...         return self
    ...     def predict(self, X):
    ...         return np.full(len(X), self.mean_)
    >>> audit.from_estimator(Mean)(np.zeros((2, 1)), np.ones(2), np.zeros((1, 1)), np.zeros(1))
    array([-1.])
    """
    check_callable(make, "make")
    chosen = _score if score is None else check_callable(score, "score")

    def fit_predict(X: Array, y: Array, canary_X: Array, canary_y: Array) -> Any:
        estimator = make()
        fitted = estimator.fit(X, y)
        return chosen(estimator if fitted is None else fitted, canary_X, canary_y)

    return fit_predict


def _score(fitted: Any, X: Array, y: Array) -> Array:
    if hasattr(fitted, "predict_proba"):
        columns = np.searchsorted(fitted.classes_, y)
        chances = np.asarray(fitted.predict_proba(X))[np.arange(len(y)), columns]
        return np.asarray(np.log(np.maximum(chances, 1e-300)))
    if hasattr(fitted, "decision_function"):
        margins = np.asarray(fitted.decision_function(X))
        columns = np.searchsorted(fitted.classes_, y)
        if margins.ndim == 1:
            return np.where(columns == 1, margins, -margins)
        return np.asarray(margins[np.arange(len(y)), columns])
    error = np.asarray(fitted.predict(X), dtype=np.float64) - y
    return np.asarray(-np.square(error))
