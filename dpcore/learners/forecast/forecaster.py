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

from dpcore._checks import check_array, check_executor, check_list
from dpcore.errors import ParameterError
from dpcore.learners._fitting import all_or_nothing
from dpcore.learners.forecast.exchange import (
    ReleasedCounts,
    bucket_counts,
    neighbour_histograms,
    own_histograms,
)
from dpcore.learners.forecast.guarantee import (
    check_publishable,
    exchange_privacy,
    training_privacy,
    windows_of_a_reading,
)
from dpcore.learners.forecast.options import (
    check_options,
    check_series,
    choose_steps,
    find_scale,
)
from dpcore.learners.forecast.store import DrawnCounts, Scheme, from_stored, to_store
from dpcore.noise import Noise
from dpcore.series import Bins, check_neighbours, check_node_ids

__all__ = ["PrivateForecaster"]


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
        Largest length of the gradient of a node, or with "dp-sgd" of a single window, 1 by default.
    train : {"plain", "dp-sgd"}
        "dp-sgd" trains each node's model so that it may be published: gradients of single windows
        are clipped and summed with exact Gaussian noise. Only for "local" and "exchange" and
        without `patience`, which choose by exact errors.
    train_epsilon, train_delta : float
        Privacy of the training of one model, for one window of its node.
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
        Of the exchange; of the training where nothing is exchanged and training is private.
    training_privacy_ : Privacy or None
        Of each node's weights under "dp-sgd".

    Privacy
    -------
    Pure epsilon-DP for one reading (all channels of a node at one step, replaced) against whoever
    sees everything that is sent. Only histograms of disjoint buckets are sent, drawn once for all
    neighbours, for training and for forecasts. Models are trained on raw readings and are not
    private: see `privacy_`.

    With "dp-sgd" the weights of a node are (train_epsilon, train_delta)-DP for one of its training
    windows, with all that it takes in and predicts, added or removed. That is not one reading:
    windows overlap, so a reading is in up to (width + horizon) / stride of them, and by group
    privacy its loss is so many times larger, twice that if it is replaced. `training_privacy_` says
    how much; only a stride of width + horizon or more keeps the factor at two. A ledger in force is
    charged once per node; it cannot add losses of windows to those of readings, so "exchange" is
    refused inside of one. Forecasts take in raw readings and are not covered.

    The object itself, and so a pickle of it, holds all raw readings and exact counts. Only
    `models_` may be published, and only after "dp-sgd" with a public `scale`: see `published`.

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
        train: str = "plain",
        train_epsilon: float = 4.0,
        train_delta: float = 1e-5,
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
        self.train = train
        self.train_epsilon = train_epsilon
        self.train_delta = train_delta
        self.scale = scale
        self.steps_per_day = steps_per_day
        self.noise = noise
        self.period = period
        self.random_state = random_state
        self.device = device
        self.checkpoint = checkpoint
        self.progress = progress

    @all_or_nothing("_drawn")
    def fit(
        self,
        series: npt.ArrayLike,
        neighbours: Sequence[Any] | None = None,
        *,
        n_train: int | None = None,
        train_steps: npt.ArrayLike | None = None,
        node_ids: Sequence[int | str] | None = None,
        executor: Any = None,
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
        train_steps : array_like of bool, shape (n_times,), optional
            The same where they are not the first ones, as for folds: a window is trained on if all
            of its steps and all that it predicts are among them.
        node_ids : sequence of int or str, optional
            Names that noise and the ledger go by; 0, 1, ... by default.
        executor : object with a method map, optional
            Where histograms are drawn and joined, some nodes at a time; see
            `dpcore.learners.forecast.exchange.release_counts`. It changes no bit.
        """
        from dpcore.learners.forecast.private_training import Budget, make_budget
        from dpcore.learners.forecast.training import read_checkpoint

        check_executor(executor)
        raw = check_series(series)
        check_options(self)
        self.n_nodes_, self.n_channels_ = raw.shape[1:]
        self._flat = np.ndim(series) == 2
        bins = [self.bins] if isinstance(self.bins, Bins) else check_list(self.bins, "bins")
        bins = bins * self.n_channels_ if len(bins) == 1 else bins
        # For `extend` as well: what fits the histograms of one model is released in one way.
        self._scheme = Scheme(self.epsilon, tuple(bins), self.bucket, self.period)
        self._neighbours = check_neighbours(neighbours, self.n_nodes_)
        self._ids = check_node_ids(node_ids, self.n_nodes_)
        self._raw = raw
        steps = choose_steps(self, len(raw), n_train, train_steps)
        self._in_training, self.n_train_ = steps.inside, steps.end
        self._train_starts, self._held_out = steps.starts, steps.held_out
        self._mean, self._deviation = find_scale(self.scale, raw[steps.inside])
        self._public_scale = self.scale is not None
        self._budget: Budget | None = None
        if self.train == "dp-sgd":
            self._budget = make_budget(
                self.train_epsilon, self.train_delta, len(steps.starts), self.batch_size,
                self.n_epochs,
            )  # fmt: skip
        fingerprint = self._fingerprint()
        path = None if self.checkpoint is None else Path(self.checkpoint)
        stored = None if path is None else read_checkpoint(path, fingerprint)
        self._exact = bucket_counts(raw, bins, self.bucket)
        # Outlives this call: fitting the same data with other options must not draw again.
        self._drawn: DrawnCounts = getattr(self, "_drawn", DrawnCounts())
        self.sent_: ReleasedCounts | None = None
        if stored is not None:
            self.sent_ = from_stored(stored["sent"])
            if self.sent_ is not None:
                self._drawn.keep(self._scheme, self._ids, self._exact, self.sent_)
        elif self.model != "local":
            self.sent_ = self._release(executor)
        self._join(executor)
        self._train(path, fingerprint, stored)
        self._say_training()
        self._say()
        return self

    @all_or_nothing("_drawn")
    def extend(self, series: npt.ArrayLike, *, executor: Any = None) -> PrivateForecaster:
        """Append readings that follow; buckets that they complete are released, each once.

        Epsilon, bins, bucket and period are those of `fit`, whatever was set since.
        """
        check_is_fitted(self, "models_")
        check_executor(executor)
        scheme, later = self._scheme, check_series(series)
        if later.shape[1:] != self._raw.shape[1:]:
            raise ParameterError("The 'series' parameter must have the nodes and channels of fit.")
        self._raw = np.concatenate([self._raw, later])
        first = len(self._exact) * scheme.bucket
        added = bucket_counts(self._raw[first:], scheme.bins, scheme.bucket)
        self._exact = np.concatenate([self._exact, added])
        if self.sent_ is not None and len(added):
            self.sent_ = self._release(executor)
        self._join(executor)
        self._say()
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

    def published(self) -> dict[str, Any]:
        """What may be published of a private training: the models' weights and the public scale.

        Returns
        -------
        dict
            "models" holds the state of each model by name, "mean" and "deviation" the scale that
            series must be brought to before.

        Privacy
        -------
        `training_privacy_`. Refused where nothing covers it: without "dp-sgd", with insecure noise,
        or with a scale computed from readings.
        """
        check_is_fitted(self, "models_")
        check_publishable(self.training_privacy_, public_scale=self._public_scale)
        return {
            "models": {
                name: {
                    key: value.detach().cpu().clone() for key, value in model.state_dict().items()
                }
                for name, model in self.models_.items()
            },
            "mean": self._mean.copy(),
            "deviation": self._deviation.copy(),
        }

    def _fingerprint(self) -> str:
        """Of everything that the releases and the training are a function of."""
        names = sorted(set(self.get_params()) - {"checkpoint", "progress", "noise", "device"})
        digest = hashlib.sha256(repr([(name, getattr(self, name)) for name in names]).encode())
        digest.update(self._in_training.tobytes())
        digest.update(
            repr((self.n_train_, self._ids, [n.tolist() for n in self._neighbours])).encode()
        )
        digest.update(np.ascontiguousarray(self._raw).tobytes())
        return digest.hexdigest()

    def _release(self, executor: Any) -> ReleasedCounts:
        return self._drawn.release(
            self._scheme, self._ids, self._exact, noise=self.noise, executor=executor
        )

    def _join(self, executor: Any) -> None:
        """Tensors of the series and of what every node holds."""
        from dpcore.learners.forecast.training import grouped, without_gaps

        filled, missing = without_gaps((self._raw - self._mean) / self._deviation)
        self._series = grouped(filled, self.device)[:, :, 0].contiguous()
        self._observed = grouped(~missing, self.device)[:, :, 0] if missing.any() else None
        self._sides = {"own": grouped(own_histograms(self._exact), self.device)}
        self.sources_ = None
        if self.sent_ is not None:
            histograms, self.sources_ = neighbour_histograms(
                self.sent_, self._neighbours, self._exact, average=self.average,
                smoothing=self.smoothing, max_age=self.max_age, executor=executor,
            )  # fmt: skip
            self._sides["neighbours"] = grouped(histograms, self.device)

    def _data(self, name: str) -> Any:
        from dpcore.learners.forecast.training import WindowData

        used = [i for i in self.inputs if name == "exchange" or i != "neighbours"]
        sides = [self._sides[i] for i in used if i != "clock"]
        clock = self.steps_per_day if "clock" in used else 0
        return WindowData(
            self._series, self._observed, sides, self._scheme.bucket, clock, self.width,
            self.horizon, self.n_nodes_,
        )  # fmt: skip

    def _train(self, path: Path | None, fingerprint: str, stored: dict[str, Any] | None) -> None:
        from dpcore.learners.forecast.running import pay_training, train_models
        from dpcore.learners.forecast.training import write_checkpoint

        content = stored or {
            "fingerprint": fingerprint,
            "sent": to_store(self.sent_),
            "models": {},
        }
        paid = None
        if self._budget is not None:
            paid = (
                self._budget,
                pay_training(self, self._ids, self._budget.event, fingerprint, content),
            )
            self._private_training = content["private"]
        if path is not None and stored is None:
            write_checkpoint(path, content)  # before any training: what was drawn must not be lost
        names = ("local", "exchange") if self.model == "gate" else (self.model,)
        self.models_, self.histories_, self.validation_errors_ = train_models(
            self, {name: self._data(name) for name in names}, self._train_starts, self._held_out,
            content, path, paid,
        )  # fmt: skip
        if self.model == "gate":
            self.gate_ = self.validation_errors_["exchange"] < self.validation_errors_["local"]
        else:
            self.gate_ = np.full(self.n_nodes_, self.model == "exchange")

    def _starts(self, times: npt.ArrayLike | None, ahead: int) -> npt.NDArray[np.int64]:
        """First steps of the windows that end at the given times."""
        limit = len(self._raw) - ahead
        if times is None:
            times = np.arange(self.n_train_ + self.width - 1, len(self._raw) - self.horizon)
        chosen = check_array(times, "times", dtype=np.int64).ravel()
        if chosen.size == 0 or chosen.min() < self.width - 1 or chosen.max() >= limit:
            raise ParameterError(
                "The 'times' parameter must name steps with a window, within range."
            )
        return chosen - (self.width - 1)

    def _say_training(self) -> None:
        self.training_privacy_ = None
        if self._budget is not None:
            exact = "own" in self.inputs or self.model == "exchange"
            windows = windows_of_a_reading(
                self.width, self.horizon, self.stride, own_bucket=self.bucket if exact else None
            )
            self.training_privacy_ = training_privacy(
                self._budget.event, self.train_delta, windows, private=self._private_training
            )

    def _say(self) -> None:
        trained = self.training_privacy_
        if self.sent_ is None and trained is not None:
            self.privacy_ = trained
        else:
            self.privacy_ = exchange_privacy(
                self.sent_, self._scheme.epsilon, private_training=trained is not None
            )
