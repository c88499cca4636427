"""Releases as custom ops.

An op gives what the NumPy call gives, on the memory of the tensors, and charges the ledger in force
when it *runs*. A traced graph names a module by a number of this process; keys and budgets never
become part of a graph.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

import dpcore
from dpcore._checks import (
    check_flag,
    check_index,
    check_list,
    check_positive,
    check_resolution,
)
from dpcore.errors import ParameterError
from dpcore.interop._secure import check_secure
from dpcore.local import Mechanism
from dpcore.noise import Noise
from dpcore.secure.ring import add_masks

__all__ = ["Encode", "Gaussian", "Laplace", "Mask"]

_DTYPES = frozenset(
    {
        *(torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
        *(torch.float16, torch.float32, torch.float64),
    }
)
_numbers = itertools.count(1)
_modules: weakref.WeakValueDictionary[int, _Release] = weakref.WeakValueDictionary()


@torch.library.custom_op(
    "dpcore::release",
    mutates_args=("out",),
    device_types="cpu",
    schema="(Tensor x, Tensor(a!) out, int module, int start) -> ()",
)
def _release_op(x: torch.Tensor, out: torch.Tensor, module: int, start: int) -> None:
    _module(module).run(x.numpy(), out.numpy(), start)


@_release_op.register_fake
def _(x: torch.Tensor, out: torch.Tensor, module: int, start: int) -> None:
    torch._check(x.shape == out.shape)


@torch.library.custom_op(
    "dpcore::mask",
    mutates_args=("words",),
    device_types="cpu",
    schema="(Tensor(a!) words, int module) -> ()",
)
def _mask_op(words: torch.Tensor, module: int) -> None:
    _module(module).run(words.numpy(), words.numpy(), 0)


@_mask_op.register_fake
def _(words: torch.Tensor, module: int) -> None:
    return None


def _module(number: int) -> _Release:
    module = _modules.get(number)
    if module is None:
        raise ParameterError("The 'module' of a traced release does not live in this process.")
    return module


def _check_tensor(x: Any, name: str) -> torch.Tensor:
    """A tensor that NumPy can look at: without memory on the CPU the ops would write nothing."""
    if not isinstance(x, torch.Tensor) or x.device.type != "cpu" or x.layout != torch.strided:
        raise ParameterError(f"The '{name}' parameter must be a dense tensor on the CPU.")
    if x.dtype not in _DTYPES:
        raise ParameterError(
            f"The '{name}' parameter must be of an integer type or of 16, 32 or 64 bit floats."
        )
    return x


class _Release(torch.nn.Module, ABC):
    """A module known to the ops by its number."""

    def __init__(self) -> None:
        super().__init__()
        self.number = next(_numbers)
        _modules[self.number] = self

    @abstractmethod
    def run(self, x: npt.NDArray[Any], out: npt.NDArray[Any], start: int) -> None:
        """The release, on views of the tensors."""

    def _result_dtype(self, x: torch.Tensor) -> torch.dtype:
        return x.dtype

    def forward(
        self, x: torch.Tensor, *, start: int = 0, out: torch.Tensor | None = None
    ) -> torch.Tensor:
        """The release of x, which is detached: no gradient flows through noise.

        `start` is the index of the first element in the release; `out` takes the result without a
        further allocation.
        """
        data = _check_tensor(x, "x").detach().contiguous()
        dtype = self._result_dtype(x)
        if out is None:
            out = torch.empty(data.shape, dtype=dtype, device="cpu")
        elif (
            _check_tensor(out, "out").dtype != dtype
            or out.shape != x.shape
            or not out.is_contiguous()
        ):
            raise ParameterError(
                f"The 'out' parameter must be a contiguous {dtype} tensor of the shape of 'x'."
            )
        torch.ops.dpcore.release(data, out, self.number, start)
        return out

    def __reduce__(self) -> Any:
        raise TypeError("A release cannot be pickled: its noise belongs to this process.")

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self


class _Additive(_Release):
    """Noise added to numbers."""

    _release: Callable[..., Any]
    _needed: tuple[str, ...]
    _known: tuple[str, ...]

    def __init__(self, *, noise: Noise | None = None, **options: Any) -> None:
        super().__init__()
        if not set(self._needed) <= set(options) or not set(options) <= set(self._known):
            raise ParameterError("The 'options' parameter must hold those of the release.")
        for name, value in options.items():
            if value is None and name not in self._needed:
                continue
            if name == "resolution":
                check_resolution(value)
            elif name == "dimension":
                check_index(value, name, least=1)
            else:
                check_positive(value, name)
        self._options = options
        self._noise = check_secure(noise, "tensors")

    def _result_dtype(self, x: torch.Tensor) -> torch.dtype:
        return x.dtype if x.dtype.is_floating_point else torch.int64

    def run(self, x: npt.NDArray[Any], out: npt.NDArray[Any], start: int) -> None:
        options = {**self._options, "noise": self._noise, "start": start}
        if out.dtype in (np.int64, np.float64):
            type(self)._release(x, out=out, **options)
        else:
            out[...] = type(self)._release(x, **options)


class Laplace(_Additive):
    """`dpcore.laplace` as a module: int64 tensors get integer noise, floats noise on a grid.

    Parameters
    ----------
    epsilon, sensitivity, resolution, dimension, noise
        As for `dpcore.laplace`. Insecure noise is refused: a tensor cannot be marked. A pinned
        stream gives every pass the same noise: use it for one tensor, or for parts of one.

    Privacy
    -------
    That of `dpcore.laplace`, for every forward pass by itself.

    Cost
    ----
    That of `dpcore.laplace`; float32 takes a copy in float64.

    Examples
    --------
    >>> import torch
    >>> from dpcore.interop.torch import Laplace
    >>> Laplace(epsilon=1.0, sensitivity=1)(torch.tensor([3, 4])).dtype
    torch.int64
    """

    _release = staticmethod(dpcore.laplace)
    _needed = ("epsilon", "sensitivity")
    _known = ("epsilon", "sensitivity", "resolution", "dimension")


class Gaussian(_Additive):
    """`dpcore.gaussian` as a module.

    Parameters
    ----------
    sensitivity, epsilon, delta, sigma, resolution, dimension, noise
        As for `dpcore.gaussian`.

    Privacy
    -------
    That of `dpcore.gaussian`, for every forward pass by itself.

    Cost
    ----
    That of `dpcore.gaussian`; float32 takes a copy in float64.
    """

    _release = staticmethod(dpcore.gaussian)
    _needed = ("sensitivity",)
    _known = ("sensitivity", "epsilon", "delta", "sigma", "resolution", "dimension")

    def __init__(self, *, noise: Noise | None = None, **options: Any) -> None:
        super().__init__(noise=noise, **options)
        rule = {name for name in ("epsilon", "delta", "sigma") if options.get(name) is not None}
        if rule not in ({"epsilon", "delta"}, {"sigma"}):
            raise ParameterError("Either 'epsilon' and 'delta' or 'sigma' must be given.")
        if "delta" in rule:
            dpcore.gaussian_sigma(options["epsilon"], options["delta"])


class Encode(_Release):
    """`Mechanism.encode` as a module: codes of local reports.

    Parameters
    ----------
    mechanism : dpcore.local.Mechanism
    noise : Noise, optional

    Privacy
    -------
    epsilon-local-DP of every element, as stated by the mechanism.

    Cost
    ----
    One pass over float32 or float64 without a copy; one or two bytes per code.

    Examples
    --------
    >>> import torch
    >>> from dpcore import local
    >>> from dpcore.interop.torch import Encode
    >>> Encode(local.Duchi(1.0))(torch.zeros(4)).dtype
    torch.uint8
    """

    def __init__(self, mechanism: Mechanism, *, noise: Noise | None = None) -> None:
        super().__init__()
        if not isinstance(mechanism, Mechanism):
            raise ParameterError("The 'mechanism' parameter must be one of dpcore.local.")
        self._mechanism = mechanism
        self._noise = check_secure(noise, "tensors")
        self._dtype = torch.uint8 if mechanism.n_outputs <= 256 else torch.uint16

    def _result_dtype(self, x: torch.Tensor) -> torch.dtype:
        return self._dtype

    def run(self, x: npt.NDArray[Any], out: npt.NDArray[Any], start: int) -> None:
        self._mechanism.encode(x, noise=self._noise, start=start, out=out)


class Mask(_Release):
    """Masks of secure aggregation, added to words in place.

    Parameters
    ----------
    keys : list of bytes
        32 secret bytes shared with each peer, for one vector only: a module masks once, and then
        forgets them.
    negative : list of bool
        Which masks are subtracted: of two peers exactly one does.

    Privacy
    -------
    A masked vector tells nothing to who lacks one of the keys; the sum of all vectors is bare.

    Cost
    ----
    The keystream of every peer: 4 or 8 bytes per word.
    """

    def __init__(self, keys: list[bytes], negative: list[bool]) -> None:
        super().__init__()
        given = check_list(keys, "keys")
        signs = check_list(negative, "negative")
        self._negative = [check_flag(item, "negative") for item in signs]
        if len(given) != len(signs) or any(
            not isinstance(key, bytes) or len(key) != 32 for key in given
        ):
            raise ParameterError("The 'keys' parameter must hold 32 bytes for each of 'negative'.")
        self._keys: list[bytes] | None = given
        self._lock = threading.Lock()

    def run(self, x: npt.NDArray[Any], out: npt.NDArray[Any], start: int) -> None:
        if not out.flags.c_contiguous or out.dtype not in (np.int32, np.int64):
            raise ParameterError("The 'words' must be a contiguous tensor of int32 or int64.")
        words: Any = out.reshape(-1).view(np.uint32 if out.itemsize == 4 else np.uint64)
        with self._lock:
            keys, self._keys = self._keys, None
        if keys is None:
            # The difference of two vectors under the same masks is bare.
            raise ParameterError("The 'keys' of a mask are for one vector only; make new ones.")
        add_masks(keys, self._negative, words)

    def forward(self, words: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """The words, int32 or int64, with the masks added."""
        torch.ops.dpcore.mask(_check_tensor(words, "words"), self.number)
        return words
