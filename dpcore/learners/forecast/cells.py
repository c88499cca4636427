"""The recurrent step of all nodes and channels at once: native, or plain torch."""

from __future__ import annotations

from typing import Any

import torch

from dpcore import _recurrent

__all__ = ["NativeCells", "can_be_native", "plain_cells", "run_cells"]


def plain_cells(x: Any, wx: Any, wh: Any, bias: Any) -> Any:
    """ReLU of the outputs of LSTM cells: (G, B, T, H).

    x is (G, B, T), wx and bias are (G, 4H), wh is (G, H, 4H). Gates stand in the order input,
    candidate, forget, output. One batched product per step for all groups; autograd gives the
    gradients. Any device, any float type: the twin of `NativeCells`.

    Examples
    --------
    >>> zero = torch.zeros(2, 16)
    >>> plain_cells(torch.ones(2, 5, 3), zero, torch.zeros(2, 4, 16), zero).shape
    torch.Size([2, 5, 3, 4])
    """
    groups, rows, steps = x.shape
    hidden = wh.shape[1]
    h = x.new_zeros(groups, rows, hidden)
    c = x.new_zeros(groups, rows, hidden)
    inputs = x.unsqueeze(-1) * wx[:, None, None] + bias[:, None, None]
    outputs = []
    for t in range(steps):
        gates = torch.baddbmm(inputs[:, :, t], h, wh)
        i, g, f, o = gates.split(hidden, dim=2)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        outputs.append(h)
    return torch.relu(torch.stack(outputs, dim=2))


class NativeCells(torch.autograd.Function):
    """The same outputs from the native kernel, with its hand-written backward pass.

    Gates, nonlinearities and states stay in registers for a block of rows; groups are shared out
    over `dpcore.get_num_threads` threads, and the split changes no bit. Inputs get no gradient.
    """

    @staticmethod
    def forward(ctx: Any, x: Any, wx: Any, wh: Any, bias: Any) -> Any:
        tensors = [tensor.detach().contiguous() for tensor in (x, wx, wh, bias)]
        saved = _recurrent.forward(*(tensor.numpy() for tensor in tensors))
        ctx.arrays, ctx.saved = tensors, saved
        return torch.relu(torch.from_numpy(saved[0]))

    @staticmethod
    def backward(ctx: Any, dh: Any) -> Any:
        x, wx, wh, bias = (tensor.numpy() for tensor in ctx.arrays)
        gradients = _recurrent.backward(x, wx, wh, bias, ctx.saved, dh.contiguous().numpy())
        return (None, *(torch.from_numpy(gradient) for gradient in gradients))


def can_be_native(x: Any, wh: Any) -> bool:
    """Whether the native kernel can stand in: single precision on the CPU, 16, 32, ... units."""
    return (
        x.device.type == "cpu"
        and x.dtype == wh.dtype == torch.float32
        and wh.shape[1] % _recurrent.HIDDEN_MULTIPLE == 0
        and not x.requires_grad
        and 0 not in x.shape
    )


def run_cells(kernel: str, x: Any, wx: Any, wh: Any, bias: Any) -> Any:
    """The same by the native kernel where it can stand in and `kernel` is not "torch"."""
    if kernel != "torch" and can_be_native(x, wh):
        return NativeCells.apply(x, wx, wh, bias)
    return plain_cells(x, wx, wh, bias)
