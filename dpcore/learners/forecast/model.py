"""The separate models of all nodes, stacked along a leading axis into one program."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from dpcore._checks import check_choice, check_index
from dpcore.errors import ParameterError
from dpcore.learners.forecast.cells import run_cells

__all__ = ["HistogramLSTM", "normalise"]

_LEAST_DEVIATION = 1e-5


def normalise(x: Any) -> tuple[Any, Any, Any]:
    """Each window over its own steps: values, mean and deviation; constant windows become 0.

    >>> values, mean, deviation = normalise(torch.tensor([[1.0, 3.0], [5.0, 5.0]]))
    >>> values.tolist(), mean.flatten().tolist()
    ([[-1.0, 1.0], [0.0, 0.0]], [2.0, 5.0])
    """
    mean = x.mean(dim=-1, keepdim=True)
    centred = x - mean
    deviation = centred.square().mean(dim=-1, keepdim=True).sqrt().clamp(min=_LEAST_DEVIATION)
    return centred / deviation, mean, deviation


class HistogramLSTM(torch.nn.Module):
    """Forecasts of n_nodes separate small models, each from its own windows and histograms.

    For every node and channel: the window normalised over its steps; an LSTM with one input, whose
    outputs of all steps are kept; ReLU; a linear layer of its own for every step, the identity at
    first; a dense layer on all of them and on `n_bins` numbers that came from elsewhere, such as a
    neighbour histogram; and the normalisation undone. Nodes and channels share nothing.

    Parameters
    ----------
    n_nodes, n_channels : int
    width, horizon : int
        Steps of a window and steps predicted.
    hidden : int
        Units per channel. Multiples of 16 run on the native kernel.
    n_bins : int
        Numbers from elsewhere that the dense layer takes in; 0 for a local model.
    input_norm : {"instance", "none"}
        Whether each window is normalised over its own steps.
    output_norm : {"instance", "none"}
        Whether the prediction is mapped back; "none" leaves it in normalised space, which loses the
        level and exists to show what that does. Ignored without `input_norm`.
    kernel : {"auto", "torch"}
        "auto" takes the native recurrent step where it can stand in.
    random_state : int
        Initial weights: those of node n are a function of this number and n alone.

    Privacy
    -------
    None: a model trained on raw readings is not private. What it receives may be.

    Cost
    ----
    A dense layer follows the linear layers directly, so the two are multiplied once per call rather
    than applied to every row: 4 T H^2 multiplications per row and channel for the cells, T H O for
    the rest.

    Examples
    --------
    >>> model = HistogramLSTM(3, n_bins=10)
    >>> model(torch.rand(8, 3, 1, 12), torch.rand(8, 3, 1, 10)).shape
    torch.Size([8, 3, 1, 12])
    >>> HistogramLSTM(325, 2, n_bins=10).n_parameters
    4329000
    """

    def __init__(
        self,
        n_nodes: int,
        n_channels: int = 1,
        *,
        width: int = 12,
        horizon: int = 12,
        hidden: int = 16,
        n_bins: int = 0,
        input_norm: str = "instance",
        output_norm: str = "instance",
        kernel: str = "auto",
        random_state: int = 0,
        dtype: Any = torch.float32,
    ) -> None:
        super().__init__()
        self.n_nodes = check_index(n_nodes, "n_nodes", least=1)
        self.n_channels = check_index(n_channels, "n_channels", least=1)
        self.width = check_index(width, "width", least=1)
        self.horizon = check_index(horizon, "horizon", least=1)
        self.hidden = check_index(hidden, "hidden", least=1)
        self.n_bins = check_index(n_bins, "n_bins")
        self.input_norm = check_choice(input_norm, "input_norm", ("instance", "none"))
        self.output_norm = check_choice(output_norm, "output_norm", ("instance", "none"))
        self.kernel = check_choice(kernel, "kernel", ("auto", "torch"))
        random_state = check_index(random_state, "random_state")
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            raise ParameterError("The 'dtype' parameter must be a floating dtype of torch.")
        nodes = [self._initial(random_state, node) for node in range(self.n_nodes)]
        for name in nodes[0]:
            stacked = torch.from_numpy(np.stack([node[name] for node in nodes])).to(dtype)
            setattr(self, name, torch.nn.Parameter(stacked))

    def _initial(self, random_state: int, node: int) -> dict[str, Any]:
        """First weights of one node; those of shape (F, ...) get a leading node axis."""
        random = np.random.default_rng([random_state, node])
        F, H, T, O = self.n_channels, self.hidden, self.width, self.horizon  # noqa: E741
        limit = math.sqrt(6 / (1 + H))
        orthogonal = np.linalg.qr(random.normal(size=(F, 4, H, H)))[0]
        bias = np.zeros((F, 4 * H))
        bias[:, 2 * H : 3 * H] = 1.0
        fan_in = T * H + self.n_bins
        bound = 1 / math.sqrt(fan_in)
        return {
            "wx": random.uniform(-limit, limit, (F, 4 * H)),
            "wh": orthogonal.transpose(0, 2, 1, 3).reshape(F, H, 4 * H),
            "bias": bias,
            "linear": np.broadcast_to(np.eye(H), (F, T, H, H)).copy(),
            "dense": random.uniform(-bound, bound, (F, fan_in, O)),
            "offset": random.uniform(-bound, bound, (F, O)),
        }

    @property
    def n_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())

    def states(self, u: Any) -> Any:
        """ReLU of the outputs of the cells: (G, B, T, H) of normalised windows (G, B, T)."""
        groups = u.shape[0]
        weights = (self.wx, self.wh, self.bias)
        flat = [weight.reshape(groups, *weight.shape[2:]) for weight in weights]
        return run_cells(self.kernel, u, *flat)

    def linear_layer(self, a: Any) -> Any:
        """The layer of each step applied to (G, B, T, H) as it stands; `forward` multiplies it
        into the dense layer instead."""
        linear = self.linear.reshape(-1, self.width, self.hidden, self.hidden)
        return torch.einsum("gbth,gthk->gbtk", a, linear)

    def forward(self, x: Any, histograms: Any = None) -> Any:
        """Predictions (B, N, F, O) of windows (B, N, F, T) and histograms (B, N, F, K)."""
        grouped = x.permute(1, 2, 0, 3).flatten(0, 1)
        side = None if histograms is None else histograms.permute(1, 2, 0, 3).flatten(0, 1)
        v = self.forward_groups(grouped, side)
        return v.unflatten(0, (self.n_nodes, self.n_channels)).permute(2, 0, 1, 3)

    def forward_groups(self, x: Any, side: Any = None) -> Any:
        """The same with nodes and channels joined: (G, B, T) and (G, B, K) to (G, B, O)."""
        if (0 if side is None else side.shape[-1]) != self.n_bins:
            raise ParameterError("The 'histograms' parameter must have 'n_bins' columns.")
        groups, T, H = x.shape[0], self.width, self.hidden
        u, mean, deviation = normalise(x) if self.input_norm == "instance" else (x, 0.0, 1.0)
        a = self.states(u.contiguous())
        dense = self.dense.reshape(groups, T * H + self.n_bins, self.horizon)
        linear = self.linear.reshape(groups * T, H, H)
        joined = torch.bmm(linear, dense[:, : T * H].reshape(groups * T, H, self.horizon))
        offset = self.offset.reshape(groups, 1, self.horizon)
        v = torch.baddbmm(offset, a.flatten(2), joined.reshape(groups, T * H, self.horizon))
        if side is not None:
            v = torch.baddbmm(v, side, dense[:, T * H :])
        if self.output_norm == "instance" and self.input_norm == "instance":
            v = v * deviation + mean
        return v
