"""What a forecaster says about its privacy: the exchange, and training where that is private."""

from __future__ import annotations

import math

import numpy as np

from dpcore.accounting import Event, Privacy
from dpcore.errors import InsecureNoiseError, ParameterError
from dpcore.learners.forecast.exchange import ReleasedCounts

__all__ = [
    "check_publishable",
    "exchange_privacy",
    "group_loss",
    "training_privacy",
    "windows_of_a_reading",
]

_PLAIN = (
    "weights, predictions, errors, checkpoints and pickles of a node, which come from its own "
    "readings without noise or hold them: keep them in the node"
)
_TRAINED = (
    "the training of models on the same readings, whose loss comes on top for whoever sees both: "
    "see training_privacy_"
)
_EXCHANGE = (
    "histograms of nodes that fell back on their own bucket, which is exact: see sources_",
    "mean and deviation by which the series are standardised: give public ones as scale",
    "which readings are missing, bin edges and who is whose neighbour",
    "a vehicle or person behind several readings: the loss of g readings is g times epsilon",
    "other bins, bucket lengths, periods or epsilons on the same readings, and fits by clones or "
    "other objects, which draw again what this one has drawn: losses add up",
    "whether readings were changed between two fits: buckets that are the same are not drawn again",
)
_TRAINING = (
    "the forecaster itself and its pickles, which hold all raw readings, and its checkpoints: only "
    "what published() returns may leave the node",
    "a checkpoint that is copied and continued twice: without a pinned stream each run draws the "
    "rest anew",
    "forecasts, which take in the node's own latest readings as they are, training losses, "
    "validation errors and errors on test data",
    "mean and deviation by which the series are standardised: give public ones as scale",
    "which readings are missing, and the numbers of steps and windows",
    "choosing parameters, or the best of several fits, by results on the same data",
    "rounding of single-precision gradients beyond the margin of 1e-4 of the clip norm",
)


def exchange_privacy(
    sent: ReleasedCounts | None, epsilon: float | None, *, private_training: bool
) -> Privacy:
    """Of everything that nodes sent each other, for one reading that is replaced."""
    texts = (_TRAINED if private_training else _PLAIN, *_EXCHANGE)
    if sent is None:
        return Privacy(0.0, 0.0, "reading", "replace", (), texts)
    if epsilon is None:
        return Privacy(np.inf, 0.0, "reading", "replace", (), texts, private=False)
    return Privacy.of(sent.events, not_covered=texts, private=sent.private)


def windows_of_a_reading(
    width: int, horizon: int, stride: int, *, own_bucket: int | None = None
) -> int:
    """In how many training windows of its node one reading can be, where none is missing.

    Parameters
    ----------
    width, horizon, stride : int
        Steps of a window, steps that it predicts, and steps from one window to the next.
    own_bucket : int, optional
        Steps of a bucket where windows also take in the node's own exact histogram.

    Examples
    --------
    >>> windows_of_a_reading(12, 12, 1), windows_of_a_reading(12, 12, 24)
    (24, 1)
    >>> windows_of_a_reading(12, 12, 1, own_bucket=12)
    35
    """
    reach = width + horizon
    if own_bucket is not None:
        # A bucket may end so much later than the reading, and is the latest one for so long.
        reach += max(0, 2 * own_bucket - 1 - width)
    return -(-reach // stride)


def group_loss(epsilon: float, delta: float, size: int) -> tuple[float, float]:
    """Epsilon and delta of `size` windows together, by group privacy; delta is at most 1.

    >>> group_loss(0.5, 1e-6, 1)
    (0.5, 1e-06)
    >>> loss, chance = group_loss(0.5, 1e-6, 4)
    >>> loss, round(chance * 1e6, 3)
    (2.0, 9.849)
    """
    most = math.log(2 / delta)
    if size * epsilon > most or epsilon == 0:
        return size * epsilon, min(1.0, size * delta) if epsilon == 0 else 1.0
    factor = math.fsum(math.exp(i * epsilon) for i in range(size))
    return size * epsilon, min(1.0, delta * factor)


def check_publishable(trained: Privacy | None, *, public_scale: bool) -> None:
    """Refuse to publish models that no guarantee covers."""
    if trained is None:
        raise ParameterError("The 'train' parameter must be 'dp-sgd' for what is published.")
    if not trained.private:
        raise InsecureNoiseError("Models trained with insecure noise must not be published.")
    if not public_scale:
        raise ParameterError(
            "The 'scale' parameter must be given for what is published: mean and deviation of "
            "readings are not private."
        )


def training_privacy(event: Event, delta: float, windows: int, *, private: bool) -> Privacy:
    """Of the weights of one node after any step, for one of its windows added or removed.

    Parameters
    ----------
    windows : int
        In how many one reading can be; see `windows_of_a_reading`.
    """
    found = Privacy.of([event], delta)
    # A reading that is replaced takes its windows out and puts others in.
    loss, chance = group_loss(found.epsilon, found.delta, 2 * windows)
    text = (
        f"one reading, which is in up to {windows} windows, or more where it bridges a gap: by "
        f"group privacy a replaced one has epsilon {loss:.4g} at delta {chance:.2g}"
    )
    return Privacy.of([event], delta, not_covered=(text, *_TRAINING), private=private)
