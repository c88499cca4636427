"""The learner: series of all nodes in, forecasts out, one private exchange in between."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from dpcore._checks import check_choice, check_index
from dpcore.accounting import Privacy, PureEvent
from dpcore.errors import DataError, ParameterError
from dpcore.learners.forecast.exchange import (
    ReleasedCounts,
    bucket_counts,
    neighbour_histograms,
    own_histograms,
    release_counts,
)
from dpcore.noise import Noise
from dpcore.series import Bins, check_neighbours

__all__ = ["PrivateForecaster"]

_INPUTS = ("neighbours", "own", "clock")
_NOT_COVERED = (
    "weights, predictions, errors and checkpoints of a node, which come from its own readings "
    "without noise: keep them in the node",
    "histograms of nodes that fell back on their own bucket, which is exact: see sources_",
    "mean and deviation by which the series are standardised: give public ones as scale",
    "which readings are missing, bin edges and who is whose neighbour",
    "a vehicle or person behind several readings: the loss of g readings is g times epsilon",
    "other bins or bucket lengths on the same readings: losses add up",
)


class PrivateForecaster(BaseEstimator):
    """Every node forecasts its own series; neighbours help with noisy histograms alone.

    Parameters
    ----------
    bins : Bins or sequence of Bins
        Public edges in raw units, for the channel or for each.
    epsilon : float or None
        Privacy loss of one reading; None for histograms without noise, which protect nobody.
    model : {"gate", "exchange", "local"}
        "local" sends nothing. "gate" trains both and lets each node choose by the error on the
        validation part of its own series: its own decision, which nobody else learns.
    inputs : tuple of {"neighbours", "own", "clock"}
        What the dense layer takes in besides the window: the neighbours' histogram, the node's own
        exact one, the hour of day. "neighbours" is left out in local models.
    width, horizon, hidden, input_norm, output_norm, kernel
        As for `HistogramLSTM`.
    bucket, average, smoothing, max_age
        Steps of a bucket, and how receivers join what they hold; see
        `dpcore.learners.forecast.exchange.neighbour_histograms`.
    n_epochs, batch_size, learning_rate
        Adam on shuffled windows, the same times at every node.
    loss_space : {"standardised", "instance"}
        Where errors are measured: after the window's normalisation is undone, or before.
    stride : int
        Every so many-th window is trained on.
    validation : float
        Last part of the training windows, held out for the gate and for `patience`.
    patience : int, optional
        A node stops after so many epochs without a better validation error, with its best weights.
    clip_norm : float, optional
        Largest length of the gradient of a node.
    scale : tuple of (mean, deviation), optional
        Public numbers, or arrays with one per channel, for standardising. By default they are
        computed over the training part of all nodes.
    steps_per_day : int
        For "clock".
    noise : Noise, optional
    period : str
        As for `dpcore.proportions.release_label_counts`.
    random_state : int
        First weights and the order of windows.
    device : str
        "cpu" or another of torch's.
    checkpoint : path, optional
        File that is replaced after every epoch. `fit` with the same data and options goes on from
        it, with the histograms that were released before the first epoch: they are not drawn again.
        It holds models, so it is as confidential as the readings.
    progress : bool
        Print a line with the loss after each epoch to the standard error.

    Attributes
    ----------
    models_ : dict of str to HistogramLSTM
        "local", "exchange" or both.
    gate_ : ndarray of bool, shape (n_nodes,)
        Nodes that use the exchange.
    validation_errors_ : dict of str to ndarray
        What the gate went by; empty without a validation part.
    histories_ : dict of str to ndarray
        Training loss by epoch and node.
    sent_ : ReleasedCounts or None
        What travelled.
    sources_ : ndarray of int8 or None
        What each histogram was made of; see `neighbour_histograms`.
    n_train_ : int
    privacy_ : Privacy

    Privacy
    -------
    Pure epsilon-DP for one reading (all channels of a node at one step, replaced) against whoever
    sees everything that is sent. Only histograms of disjoint buckets are sent, drawn once for all
    neighbours, for training and for forecasts. Models are trained on raw readings and are not
    private: see `privacy_`.

    Cost
    ----
    One program for all nodes; memory is that of the series and of one minibatch of windows.

    Examples
    --------
    >>> from dpcore.data import traffic
    >>> from dpcore.series import Bins, neighbours_from_adjacency
    >>> from dpcore.learners import PrivateForecaster
    >>> road = traffic(n_nodes=4, days=4, seed=0)
    >>> forecaster = PrivateForecaster(Bins.relative(80.0, 10), epsilon=0.5, n_epochs=1, stride=4)
    >>> forecaster = forecaster.fit(
    ...     road.series[:, :, 0], neighbours_from_adjacency(road.adjacency), n_train=900
    ... )
    >>> forecaster.predict([1000, 1100]).shape, forecaster.privacy_.epsilon <= 0.5
    ((2, 4, 12), True)
    """

    def __init__(
        self,
        bins: Bins | Sequence[Bins],
        *,
        epsilon: float | None = 0.5,
        model: str = "gate",
        inputs: tuple[str, ...] = ("neighbours",),
        width: int = 12,
        horizon: int = 12,
        hidden: int = 16,
        input_norm: str = "instance",
        output_norm: str = "instance",
        kernel: str = "auto",
        bucket: int = 12,
        average: str = "counts",
        smoothing: float = 1.0,
        max_age: int = 24,
        n_epochs: int = 5,
        batch_size: int = 64,
        learning_rate: float = 0.01,
        loss_space: str = "standardised",
        stride: int = 1,
        validation: float = 0.1,
        patience: int | None = None,
        clip_norm: float | None = None,
        scale: tuple[Any, Any] | None = None,
        steps_per_day: int = 288,
        noise: Noise | None = None,
        period: str = "",
        random_state: int = 0,
        device: str = "cpu",
        checkpoint: str | Path | None = None,
        progress: bool = False,
    ) -> None:
        self.bins = bins
        self.epsilon = epsilon
        self.model = model
        self.inputs = inputs
        self.width = width
        self.horizon = horizon
        self.hidden = hidden
        self.input_norm = input_norm
        self.output_norm = output_norm
        self.kernel = kernel
        self.bucket = bucket
        self.average = average
        self.smoothing = smoothing
        self.max_age = max_age
        self.n_epochs = n_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.loss_space = loss_space
        self.stride = stride
        self.validation = validation
        self.patience = patience
        self.clip_norm = clip_norm
        self.scale = scale
        self.steps_per_day = steps_per_day
        self.noise = noise
        self.period = period
        self.random_state = random_state
        self.device = device
        self.checkpoint = checkpoint
        self.progress = progress

    def fit(
        self,
        series: npt.ArrayLike,
        neighbours: Sequence[Any] | None = None,
        *,
        n_train: int | None = None,
        node_ids: Sequence[int | str] | None = None,
    ) -> PrivateForecaster:
        """Release the histograms of the whole series, once, and train on its first part.

        Parameters
        ----------
        series : array_like of shape (n_times, n_nodes) or (n_times, n_nodes, n_channels)
            Raw units; NaN where a reading is missing. A gap is bridged by the last reading where
            it is an input, and left out of loss, errors and histograms.
        neighbours : list of lists of int, optional
            For each node those whose histograms it receives; none by default.
        n_train : int, optional
            Steps to train on; all by default. Forecasts may be asked for later ones.
        node_ids : sequence of int or str, optional
            Names that noise and the ledger go by; 0, 1, ... by default.
        """
        from dpcore.learners.forecast.training import read_checkpoint

        raw = self._check_series(series)
        self._check_options()
        self.n_nodes_, self.n_channels_ = raw.shape[1:]
        self._flat = np.ndim(series) == 2
        bins = [self.bins] if isinstance(self.bins, Bins) else list(self.bins)
        self._bins = bins * self.n_channels_ if len(bins) == 1 else bins
        self._neighbours = check_neighbours(neighbours or [[]] * self.n_nodes_, self.n_nodes_)
        self._ids = list(range(self.n_nodes_)) if node_ids is None else list(node_ids)
        if len(self._ids) != self.n_nodes_ or len(set(self._ids)) != self.n_nodes_:
            raise ParameterError("The 'node_ids' parameter must name every node, each once.")
        self.n_train_ = check_index(
            len(raw) if n_train is None else n_train, "n_train", limit=len(raw) + 1
        )
        if self.n_train_ < self.width + self.horizon:
            raise ParameterError("The 'n_train' parameter must leave a window to train on.")
        self._raw = raw
        self._set_scale()
        fingerprint = self._fingerprint()
        path = None if self.checkpoint is None else Path(self.checkpoint)
        stored = None if path is None else read_checkpoint(path, fingerprint)
        counts = bucket_counts(raw, self._bins, self.bucket)
        # Outlives this call: fitting the same data with other options must not draw again.
        self._drawn: dict[str, ReleasedCounts] = getattr(self, "_drawn", {})
        self.sent_: ReleasedCounts | None = None
        if stored is not None:
            self.sent_ = _from_stored(stored["sent"])
        elif self.model != "local":
            known = self._drawn.get(self._release_name())
            self.sent_ = self._release(counts, 0) if known is None else known
        if self.sent_ is not None:
            self._drawn[self._release_name()] = self.sent_
        self._exact = counts
        self._join()
        self._train(path, fingerprint, stored)
        self.privacy_ = self._privacy()
        return self

    def extend(self, series: npt.ArrayLike) -> PrivateForecaster:
        """Append readings that follow; buckets that they complete are released, each once."""
        check_is_fitted(self, "models_")
        raw = np.concatenate([self._raw, self._check_series(series)])
        known = len(self._exact)
        first = known * self.bucket
        added = bucket_counts(raw[first:], self._bins, self.bucket)
        if self.sent_ is not None and len(added):
            self.sent_ = self.sent_.followed_by(self._release(added, known))
        self._raw = raw
        self._exact = np.concatenate([self._exact, added])
        if self.sent_ is not None:
            self._drawn[self._release_name()] = self.sent_
        self._join()
        self.privacy_ = self._privacy()
        return self

    def predict(self, times: npt.ArrayLike | None = None) -> npt.NDArray[np.float64]:
        """Forecasts in raw units: (n, n_nodes, [n_channels,] horizon).

        Parameters
        ----------
        times : array_like of int, optional
            Steps of the last reading that each forecast may use; by default those after the
            training part for which all that follows is known.
        """
        import torch

        check_is_fitted(self, "models_")
        starts = self._starts(times, 0)
        gate = torch.from_numpy(np.repeat(self.gate_, self.n_channels_))[:, None, None]
        parts = []
        with torch.no_grad():
            for begin in range(0, len(starts), 512):
                part = torch.from_numpy(starts[begin : begin + 512]).to(self.device)
                found = {
                    name: model.forward_groups(*self._data(name).inputs(part)).cpu()
                    for name, model in self.models_.items()
                }
                only = next(iter(found.values()))
                both = len(found) == 2
                parts.append(torch.where(gate, found["exchange"], found["local"]) if both else only)
        grouped = torch.cat(parts, dim=1).double().numpy()
        shape = (self.n_nodes_, self.n_channels_, len(starts), self.horizon)
        values: npt.NDArray[np.float64] = grouped.reshape(shape).transpose(2, 0, 1, 3)
        values = values * self._deviation[:, None] + self._mean[:, None]
        return values[:, :, 0] if self._flat else values

    def errors(
        self, times: npt.ArrayLike | None = None, *, model: str | None = None
    ) -> npt.NDArray[np.float64]:
        """Mean squared errors (n_nodes, n_channels, horizon), standardised; NaN if unknown.

        `model` asks for "local" or "exchange" rather than what the gate chose.
        """
        from dpcore.learners.forecast.training import squared_errors

        check_is_fitted(self, "models_")
        starts = self._starts(times, self.horizon)
        found = {}
        for name in self.models_ if model is None else [model]:
            total, count = squared_errors(self.models_[name], self._data(name), starts)
            mean = np.where(count > 0, total / np.maximum(count, 1), np.nan)
            found[name] = mean.reshape(self.n_nodes_, self.n_channels_, self.horizon)
        if len(found) == 1:
            return next(iter(found.values()))
        return np.where(self.gate_[:, None, None], found["exchange"], found["local"])

    def score(self, times: npt.ArrayLike | None = None) -> float:
        """Minus the mean squared error of the first channel, in standardised units."""
        return -float(np.nanmean(self.errors(times)[:, 0]))

    def _check_series(self, series: npt.ArrayLike) -> npt.NDArray[np.float64]:
        raw = np.asarray(series, dtype=np.float64)
        raw = raw[:, :, None] if raw.ndim == 2 else raw
        if raw.ndim != 3 or 0 in raw.shape[1:]:
            raise ParameterError("The 'series' parameter must be times by nodes (by channels).")
        if np.isinf(raw).any():
            raise DataError("The 'series' parameter must hold finite numbers or NaN.")
        return raw

    def _check_options(self) -> None:
        check_choice(self.model, "model", ("gate", "exchange", "local"))
        check_choice(self.loss_space, "loss_space", ("standardised", "instance"))
        for name in self.inputs:
            check_choice(name, "inputs", _INPUTS)
        for name in ("bucket", "n_epochs", "batch_size", "stride", "width", "horizon"):
            check_index(getattr(self, name), name, least=1)
        if not 0 <= self.validation < 1:
            raise ParameterError("The 'validation' parameter must lie in [0, 1).")
        if self.validation == 0 and (self.model == "gate" or self.patience is not None):
            raise ParameterError("The 'validation' parameter must be above 0 to choose by it.")

    def _set_scale(self) -> None:
        if self.scale is None:
            part = self._raw[: self.n_train_].reshape(-1, self.n_channels_)
            if np.isnan(part).all(axis=0).any():
                raise DataError("The 'series' parameter must hold readings of every channel.")
            mean, deviation = np.nanmean(part, axis=0), np.nanstd(part, axis=0)
        else:
            shape = (self.n_channels_,)
            mean, deviation = (np.broadcast_to(np.float64(each), shape) for each in self.scale)
        self._mean, self._deviation = mean, np.where(deviation > 0, deviation, 1.0)

    def _fingerprint(self) -> str:
        """Of everything that the releases and the training are a function of."""
        names = sorted(set(self.get_params()) - {"checkpoint", "progress", "noise", "device"})
        digest = hashlib.sha256(repr([(name, getattr(self, name)) for name in names]).encode())
        digest.update(
            repr((self.n_train_, self._ids, [n.tolist() for n in self._neighbours])).encode()
        )
        digest.update(np.ascontiguousarray(self._raw).tobytes())
        return digest.hexdigest()

    def _release_name(self) -> str:
        """Of everything that the released counts are a function of, besides the noise."""
        named = (self.epsilon, self._bins, self.bucket, self._ids, self.period)
        digest = hashlib.sha256(repr(named).encode())
        digest.update(np.ascontiguousarray(self._raw).tobytes())
        return digest.hexdigest()

    def _release(self, counts: npt.NDArray[Any], first: int) -> ReleasedCounts:
        return release_counts(
            counts, self._bins, self.bucket, epsilon=self.epsilon, noise=self.noise,
            node_ids=self._ids, first=first, period=self.period,
        )  # fmt: skip

    def _join(self) -> None:
        """Tensors of the series and of what every node holds."""
        import torch

        x = (self._raw - self._mean) / self._deviation
        missing = np.isnan(x)
        steps = np.arange(len(x)).reshape(-1, 1, 1)
        last = np.maximum.accumulate(np.where(missing, -1, steps), axis=0)
        filled = np.take_along_axis(x, last.clip(0), axis=0)
        filled[last < 0] = 0.0

        def tensor(values: npt.NDArray[Any], dtype: Any = torch.float32) -> Any:
            grouped = values.reshape(len(values), self.n_nodes_ * self.n_channels_, -1)
            moved = np.ascontiguousarray(np.moveaxis(grouped, 0, 1))
            return torch.from_numpy(moved).to(self.device, dtype)

        self._series = tensor(filled)[:, :, 0].contiguous()
        self._observed = tensor(~missing, torch.bool)[:, :, 0] if missing.any() else None
        self._sides = {"own": tensor(own_histograms(self._exact))}
        self.sources_ = None
        if self.sent_ is not None:
            histograms, self.sources_ = neighbour_histograms(
                self.sent_, self._neighbours, self._exact, average=self.average,
                smoothing=self.smoothing, max_age=self.max_age,
            )  # fmt: skip
            self._sides["neighbours"] = tensor(histograms)

    def _data(self, name: str) -> Any:
        from dpcore.learners.forecast.training import WindowData

        used = [i for i in self.inputs if name == "exchange" or i != "neighbours"]
        sides = [self._sides[i] for i in used if i != "clock"]
        clock = self.steps_per_day if "clock" in used else 0
        return WindowData(
            self._series, self._observed, sides, self.bucket, clock, self.width, self.horizon,
            self.n_nodes_,
        )  # fmt: skip

    def _train(self, path: Path | None, fingerprint: str, stored: dict[str, Any] | None) -> None:
        from dpcore.learners.forecast.model import HistogramLSTM
        from dpcore.learners.forecast.training import Options, train, write_checkpoint

        last = self.n_train_ - self.width - self.horizon + 1
        border = round(last * (1 - self.validation))
        starts = np.arange(0, border, self.stride)
        # Windows within this distance of the border share steps with both sides.
        held_out = np.arange(border + self.width + self.horizon - 1, last, self.stride)
        if self.validation > 0 and held_out.size == 0:
            raise ParameterError("The 'validation' parameter must leave windows to validate on.")
        options = Options(
            self.n_epochs, self.batch_size, self.learning_rate, self.loss_space, self.patience,
            self.clip_norm, self.random_state, self.progress,
        )  # fmt: skip
        content = stored or {
            "fingerprint": fingerprint,
            "sent": _to_store(self.sent_),
            "models": {},
        }
        if path is not None and stored is None:
            write_checkpoint(path, content)  # before any training: what was drawn must not be lost
        self.models_, self.histories_, self.validation_errors_ = {}, {}, {}
        for name in ("local", "exchange") if self.model == "gate" else (self.model,):
            data = self._data(name)
            model = HistogramLSTM(
                self.n_nodes_, self.n_channels_, width=self.width, horizon=self.horizon,
                hidden=self.hidden, n_bins=data.n_side, input_norm=self.input_norm,
                output_norm=self.output_norm, kernel=self.kernel, random_state=self.random_state,
            ).to(self.device)  # fmt: skip

            def save(state: dict[str, Any], name: str = name) -> None:
                if path is not None:
                    content["models"][name] = state
                    write_checkpoint(path, content)

            state = train(
                model, data, starts, held_out, options, name=name,
                resume=content["models"].get(name), after_epoch=save,
            )  # fmt: skip
            self.models_[name] = model
            self.histories_[name] = np.array(state["losses"])
            if held_out.size:
                found = state["best_error"] if self.patience is not None else state["error"]
                self.validation_errors_[name] = found.numpy()
        if self.model == "gate":
            self.gate_ = self.validation_errors_["exchange"] < self.validation_errors_["local"]
        else:
            self.gate_ = np.full(self.n_nodes_, self.model == "exchange")

    def _starts(self, times: npt.ArrayLike | None, ahead: int) -> npt.NDArray[np.int64]:
        """First steps of the windows that end at the given times."""
        limit = len(self._raw) - ahead
        if times is None:
            times = np.arange(self.n_train_ + self.width - 1, len(self._raw) - self.horizon)
        chosen = np.asarray(times, dtype=np.int64).ravel()
        if chosen.size == 0 or chosen.min() < self.width - 1 or chosen.max() >= limit:
            raise ParameterError(
                "The 'times' parameter must name steps with a window, within range."
            )
        return chosen - (self.width - 1)

    def _privacy(self) -> Privacy:
        if self.sent_ is None:
            return Privacy(0.0, 0.0, "reading", "replace", (), _NOT_COVERED)
        if self.epsilon is None:
            return Privacy(np.inf, 0.0, "reading", "replace", (), _NOT_COVERED, private=False)
        return Privacy.of(self.sent_.events, not_covered=_NOT_COVERED, private=self.sent_.private)


def _to_store(sent: ReleasedCounts | None) -> dict[str, Any] | None:
    import torch

    if sent is None:
        return None
    return {
        "counts": torch.from_numpy(np.asarray(sent.counts)),
        "sizes": torch.from_numpy(sent.sizes),
        "events": [(e.mechanism, e.epsilon, e.adjacency, e.unit) for e in sent.events],
        "private": sent.private,
    }


def _from_stored(stored: dict[str, Any] | None) -> ReleasedCounts | None:
    if stored is None:
        return None
    events = tuple(
        PureEvent(mechanism=mechanism, epsilon=epsilon, adjacency=adjacency, unit=unit)
        for mechanism, epsilon, adjacency, unit in stored["events"]
    )
    return ReleasedCounts(
        stored["counts"].numpy(), stored["sizes"].numpy(), events, stored["private"]
    )
