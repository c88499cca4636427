"""Private training: per-sample gradients, clipped, summed on a grid, with exact noise."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from dpcore import random
from dpcore._charge import prepay
from dpcore._checks import check_callable, check_index, check_mapping, check_positive, exact
from dpcore._gradients import descent_event, grid_unit, noisy_sum
from dpcore._release import check_noise
from dpcore.accounting import Privacy, calibrate_noise
from dpcore.errors import ParameterError
from dpcore.noise import Noise

__all__ = ["DPOptimizer", "per_sample_gradients"]

# What rounding of norms and products in float64 may add to a clipped gradient, and much more.
_MARGIN = 1e-6
_CHUNK = 1 << 22  # elements of per-sample gradients in float64 at a time
_ADJACENCY = "add-remove"
# A little of delta is kept for the distance of the sampled laws from the ideal ones.
_DELTA_KEPT = 1 - 2.0**-19
_STATE = frozenset({"configuration", "optimizer", "run", "steps_taken", "weights"})
_NOT_COVERED = (
    "lots that were not drawn by `lots`: shuffled batches are not Poisson samples",
    "gradients that mix records, as batch normalisation makes them",
    "losses, sizes of lots and everything else that was read off the records besides the steps",
    "choosing parameters, or the best of several runs, by results on the same data",
    "whether the data were valid, and how long a step took",
)


def per_sample_gradients(
    module: torch.nn.Module,
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    x: torch.Tensor,
    y: torch.Tensor,
    *,
    chunk_size: int | None = None,
) -> None:
    """Put the gradient of every record into `grad_sample` of the parameters, for `DPOptimizer`.

    Parameters
    ----------
    module : torch.nn.Module
        Must treat records one by one: layers that mix them raise.
    loss : callable
        ``loss(module(x), y)`` for a batch of one record.
    x, y : tensors
        A lot; the first axis runs over records, of which there may be none.
    chunk_size : int, optional
        Records at a time, to save memory.

    Privacy
    -------
    Nothing is private yet: `grad_sample` must only ever be read by `DPOptimizer.step`.

    Cost
    ----
    One gradient in memory for every record of the lot.
    """
    if not isinstance(module, torch.nn.Module):
        raise ParameterError("The 'module' parameter must be a torch.nn.Module.")
    check_callable(loss, "loss")
    if not (isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor) and x.ndim and y.ndim):
        raise ParameterError("The 'x' and 'y' parameters must be tensors of records.")
    if len(x) != len(y):
        raise ParameterError("The 'x' and 'y' parameters must have as many records.")
    if chunk_size is not None:
        check_index(chunk_size, "chunk_size", least=1)
    parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
    if len(x) == 0:
        for p in parameters.values():
            p.grad_sample = torch.zeros((0, *p.shape), dtype=p.dtype, device=p.device)
        return
    fixed = {name: p.detach() for name, p in module.named_parameters() if not p.requires_grad}
    fixed |= {name: b.detach() for name, b in module.named_buffers()}

    def one(weights: dict[str, torch.Tensor], a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        output = torch.func.functional_call(module, {**weights, **fixed}, (a.unsqueeze(0),))
        return loss(output, b.unsqueeze(0))

    of_each = torch.func.vmap(
        torch.func.grad(one),
        in_dims=(None, 0, 0),
        randomness="different",
        chunk_size=chunk_size,
    )
    found = of_each({name: p.detach() for name, p in parameters.items()}, x, y)
    for name, p in parameters.items():
        p.grad_sample = found[name]


class DPOptimizer:
    """An optimizer whose steps follow noisy sums of clipped per-sample gradients (DP-SGD).

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        Takes the steps; any will do, since they are post-processing.
    clip : float
        Bound on the l2 norm of the gradient of one record, over all parameters together.
    epsilon, delta : float
        Privacy of the whole run.
    steps : int
        Number of steps of the run; all of them are charged at once, and more are refused.
    sampling_rate : float
        Chance of a record to be in a lot; 1 for all records in every step.
    n_records : float
        Public number of records. Sums are divided by ``sampling_rate * n_records``, never by the
        size of a lot.
    noise_multiplier : float, optional
        Instead of `epsilon`; by default the least that gives it.
    noise : Noise, optional
        Source of randomness for lots and noise; a secure one by default. A pinned stream names one
        run: the same records, model, loss and order. It is charged once, whatever is run on it.

    Attributes
    ----------
    noise_multiplier, steps_taken

    Privacy
    -------
    (epsilon, delta)-DP for adding or removing one record, for all parameters after every step. A
    clipped gradient is rounded to a grid record by record and summed in integers, so a sum tells
    nothing by its rounding; the noise is exact, from dpcore's secure source, and its scale covers
    what the grid adds to `clip`. A record whose gradient is not finite counts as zero. The lots are
    Poisson samples by secret, exact coins if taken from `lots`.

    Cost
    ----
    Two passes over the per-sample gradients in float64, 2**22 elements at a time, and one Gaussian
    sample per parameter.

    Examples
    --------
    >>> import torch
    >>> from dpcore.interop.torch import DPOptimizer, per_sample_gradients
    >>> x, y = torch.randn(200, 3), torch.zeros(200)
    >>> module = torch.nn.Sequential(torch.nn.Linear(3, 1), torch.nn.Flatten(0))
    >>> sgd = torch.optim.SGD(module.parameters(), lr=0.1)
    >>> optimizer = DPOptimizer(
    ...     sgd, clip=1.0, epsilon=2.0, delta=1e-5, steps=3, sampling_rate=1.0, n_records=200
    ... )
    >>> for lot in optimizer.lots(len(x)):
    ...     per_sample_gradients(module, torch.nn.functional.mse_loss, x[lot], y[lot])
    ...     optimizer.step()
    >>> optimizer.privacy().epsilon <= 2.0
    True
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        *,
        clip: float,
        delta: float,
        steps: int,
        sampling_rate: float,
        n_records: float,
        epsilon: float | None = None,
        noise_multiplier: float | None = None,
        noise: Noise | None = None,
    ) -> None:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise ParameterError("The 'optimizer' parameter must be a torch.optim.Optimizer.")
        self.optimizer = optimizer
        self.clip = float(check_positive(clip, "clip"))
        self.steps = check_index(steps, "steps", least=1)
        self.steps_taken = 0
        self.sampling_rate = float(check_positive(sampling_rate, "sampling_rate"))
        if self.sampling_rate > 1:
            raise ParameterError("The 'sampling_rate' parameter must be at most 1.")
        self.delta = float(exact(delta, "delta"))
        if not 0 < self.delta < 1:
            raise ParameterError("The 'delta' parameter must lie between 0 and 1.")
        self._lot = self.sampling_rate * float(check_positive(n_records, "n_records"))
        if (epsilon is None) == (noise_multiplier is None):
            raise ParameterError("Either 'epsilon' or 'noise_multiplier' must be given.")
        if noise_multiplier is None:
            assert epsilon is not None
            kept = self.delta * _DELTA_KEPT
            noise_multiplier = calibrate_noise(epsilon, kept, self.sampling_rate, self.steps)
            noise_multiplier *= 1 + 1e-12
        self.noise_multiplier = float(check_positive(noise_multiplier, "noise_multiplier"))
        self._event = descent_event(
            "dp-sgd", self.noise_multiplier, self.sampling_rate, self.steps, _ADJACENCY
        )
        self._noise = check_noise(noise)
        self._privacy = Privacy.of(
            [self._event], self.delta, not_covered=_NOT_COVERED, private=self._noise.private
        )
        if epsilon is not None and self._privacy.epsilon > epsilon:
            raise ParameterError("The 'epsilon' parameter is too small for this 'delta'.")
        self._configuration, self._run = self._public_digest(), self._fingerprint()
        self._weights_due: str | None = None
        self._source = self._open(self._run)

    def _open(self, run: bytes) -> Noise:
        """The source of a run, once it is charged; a pinned run is known by its fingerprint."""
        address = ("torch", run)
        return prepay(self._noise, self._event, *address).release(*address)

    @property
    def _parameters(self) -> list[torch.nn.Parameter]:
        """Those that are trained."""
        trained = [p for p in self._all_parameters if p.requires_grad]
        if not trained:
            raise ParameterError("The 'optimizer' parameter must have a parameter to train.")
        return trained

    @property
    def _all_parameters(self) -> list[torch.nn.Parameter]:
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    def _fingerprint(self) -> bytes:
        """Names the run on a pinned stream: runs that differ must not share noise."""
        state = hashlib.sha256(repr((self.clip, self.noise_multiplier, self.steps)).encode())
        state.update(repr((self.sampling_rate, self._lot, type(self.optimizer))).encode())
        for group in self.optimizer.param_groups:
            options = sorted((name, repr(v)) for name, v in group.items() if name != "params")
            state.update(repr(options).encode())
        for p in self._parameters:
            state.update(repr((p.dtype, tuple(p.shape))).encode())
            state.update(_bytes_of(p))
        return state.digest()

    def _public_digest(self) -> str:
        """Names what a run must have in common with one that it continues."""
        known = [self.clip, self.noise_multiplier, self.steps, self.sampling_rate, self._lot]
        facts = (*known, self.delta, self._noise.private, type(self.optimizer))
        shapes = [(p.dtype, tuple(p.shape)) for p in self._parameters]
        return hashlib.sha256(repr((facts, shapes)).encode()).hexdigest()

    def _weights(self) -> str:
        state = hashlib.sha256()
        for p in self._parameters:
            state.update(_bytes_of(p))
        return state.hexdigest()

    def lots(self, n: int) -> Iterator[torch.Tensor]:
        """Indices of the lot of every step still to be taken, for data of n records.

        The lots are secret, and so are their sizes.
        """
        n = check_index(n, "n")
        while self.steps_taken < self.steps:
            before = self.steps_taken
            yield self._draw_lot(n, before)
            if self.steps_taken != before + 1:
                raise ParameterError("Every lot must be followed by exactly one step.")

    def _draw_lot(self, n: int, t: int) -> torch.Tensor:
        if self.sampling_rate == 1:
            return torch.arange(n)
        coins = random.bernoulli(self.sampling_rate, n, noise=self._source.stream("lot", t))
        return torch.from_numpy(np.flatnonzero(np.asarray(coins)))

    def step(self) -> None:
        """One step of the optimizer along the noisy sum of `grad_sample`, which is used up."""
        if self.steps_taken == self.steps:
            raise ParameterError("The 'steps' of the run are used up.")
        if self._weights_due not in (None, self._weights()):
            raise ParameterError("The parameters must be those that were saved with the state.")
        parameters = self._parameters
        total = self._clipped_sum([_take(p) for p in parameters])
        t, self.steps_taken = self.steps_taken, self.steps_taken + 1
        self._weights_due = None
        # Another loss, schedule or order on the same pinned stream must not meet the same noise.
        source = self._source.stream("step", t, hashlib.sha256(total.tobytes()).digest())
        noisy = noisy_sum(total, self.clip, self.noise_multiplier, source) / self._lot
        # The optimizer follows every gradient that it finds, and others have no noise.
        for p in self._all_parameters:
            p.grad = None
        at = 0
        for p in parameters:
            part = torch.from_numpy(noisy[at : at + p.numel()]).reshape(p.shape)
            p.grad = part.to(device=p.device, dtype=p.dtype)
            at += p.numel()
        self.optimizer.step()

    def zero_grad(self) -> None:
        """Forget gradients, those of single records included."""
        for p in self._all_parameters:
            p.grad = None
            p.grad_sample = None

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` needs to continue the run, beside the parameters of the model.

        It holds no key and no gradient: the state of the inner optimizer, the number of steps
        taken, and digests that tell this run and its parameters from others.
        """
        return {
            "configuration": self._configuration,
            "run": self._run.hex(),
            "steps_taken": self.steps_taken,
            "weights": self._weights(),
            "optimizer": self.optimizer.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue a run that was saved by `state_dict`, with the steps that it had left.

        Made for an optimizer that has taken no step, with the same parameters of privacy and the
        same kind of inner optimizer; the next step refuses a model other than the one saved. With
        the pinned stream of the run the noise of every step is that of its number, as without the
        stop, so the records and the lots must be the same as well, and such a run is charged once.
        Any other source draws new noise, and its run is charged on its own.
        """
        if self.steps_taken:
            raise ParameterError("A state must be loaded before the first step.")
        given = check_mapping(state, "state")
        if set(given) != _STATE:
            raise ParameterError("The 'state' parameter must be what state_dict gave.")
        if given["configuration"] != self._configuration:
            raise ParameterError("The 'state' parameter must be of a run with these parameters.")
        taken = check_index(given["steps_taken"], "state", limit=self.steps + 1)
        try:
            run, weights = bytes.fromhex(given["run"]), str(given["weights"])
            self.optimizer.load_state_dict(given["optimizer"])
        except (AttributeError, LookupError, TypeError, ValueError):
            raise ParameterError("The 'state' parameter must be what state_dict gave.") from None
        if self._noise.pinned:
            self._source = self._open(run)
        self._run, self.steps_taken, self._weights_due = run, taken, weights

    def privacy(self) -> Privacy:
        """The guarantee of the run, all of its steps included."""
        return self._privacy

    def _clipped_sum(self, gradients: list[torch.Tensor]) -> npt.NDArray[np.float64]:
        """The sum of all clipped gradients, each on the grid of the noise: exact in float64."""
        n = len(gradients[0])
        if any(len(g) != n for g in gradients):
            raise ParameterError("The 'grad_sample' of all parameters must be of the same lot.")
        dimension = sum(p.numel() for p in self._parameters)
        unit = grid_unit(dimension, self.clip, self.noise_multiplier)
        total = torch.zeros(dimension, dtype=torch.float64)
        rows = max(1, _CHUNK // dimension)
        for begin in range(0, n, rows):
            parts = [g[begin : begin + rows] for g in gradients]
            flat = torch.cat([g.reshape(len(g), -1).to(torch.float64) for g in parts], dim=1)
            norms = torch.linalg.vector_norm(flat, dim=1)
            factor = torch.clamp(self.clip * (1 - _MARGIN) / norms, max=1.0) / unit
            flat *= factor[:, None]
            flat[~torch.isfinite(norms)] = 0.0
            total += flat.round_().sum(dim=0).cpu()
        return np.asarray((total * unit).numpy())


def _bytes_of(parameter: torch.nn.Parameter) -> bytes:
    return bytes(parameter.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())


def _take(parameter: torch.nn.Parameter) -> torch.Tensor:
    """The per-sample gradient of a parameter, which cannot be used a second time."""
    gradient = getattr(parameter, "grad_sample", None)
    if not isinstance(gradient, torch.Tensor) or gradient.shape[1:] != parameter.shape:
        raise ParameterError(
            "The 'grad_sample' of every parameter must be a tensor with an axis of records."
        )
    parameter.grad_sample = None
    return gradient.detach()
