"""Samplers and encoders inside a user's ``@njit(parallel=True, cache=True)`` code.

An `Encoder` or a `Sampler` is one release, made in Python: its key is drawn, and its cost charged,
there. Compiled code takes it as an argument and asks for elements by their index, in any order and
from any thread; the same key gives the bytes of the NumPy call.

What is called in compiled code never raises: Numba loses exceptions inside of ``prange``, and with
them the rest of a thread's work. `encode` and `add_noise` return 0, or 1 where they refuse. They
then leave neither a clear value nor what was in memory before: codes become the largest number of
their type, noisy numbers the least int64.

Compiled code calls the native core through symbols that this module registers when it is imported.
No address becomes part of the code, so ``cache=True`` works; import this module before the cached
function is called. The C signatures are part of the types' names: a core with other signatures
never meets code that was compiled for this one.

Needs dpcore[numba].
"""

from __future__ import annotations

import ctypes
import hashlib
from typing import Any

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import (
    NativeValue,
    get_cython_function_address,
    intrinsic,
    models,
    register_model,
    typeof_impl,
    unbox,
)

from dpcore import _laws, random
from dpcore._charge import open_release
from dpcore._checks import INDEX_LIMIT, check_positive
from dpcore._release import label, laplace_event, laplace_law
from dpcore.central import _gaussian_event, _gaussian_law, _noise_multiplier
from dpcore.errors import ParameterError
from dpcore.interop._secure import check_secure
from dpcore.local import Mechanism
from dpcore.noise import Noise
from dpcore_ext import encode as _encode_module
from dpcore_ext import sample as _sample_module
from dpcore_ext.rng import Key
from dpcore_ext.sample import DigitLaw

__all__ = ["Encoder", "Sampler", "add_noise", "code_at", "encode", "noise_at"]

_FUNCTIONS = {
    "encode_f64": _encode_module,
    "encode_f32": _encode_module,
    "add_digits": _sample_module,
    "add_gauss": _sample_module,
}


def _signature(capsule: Any) -> bytes:
    """The C signature that a capsule of Cython states."""
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    return bytes(name(capsule))


_SIGNATURES = [
    (name, _signature(module.__pyx_capi__[name])) for name, module in sorted(_FUNCTIONS.items())
]
_ABI = hashlib.sha256(repr(_SIGNATURES).encode()).hexdigest()[:16]


def _symbol(name: str) -> str:
    return f"dpcore_{name}_{_ABI}"


for _name, _owner in _FUNCTIONS.items():
    llvmlite.binding.add_symbol(_symbol(_name), get_cython_function_address(_owner.__name__, _name))


class Encoder:
    """One release of a local mechanism, for `encode` and `code_at`.

    Parameters
    ----------
    mechanism : dpcore.local.Mechanism
    noise : Noise, optional
        Source of randomness; a secure one by default. Insecure noise is refused: what compiled code
        makes cannot be marked.

    Privacy
    -------
    epsilon-local-DP of every element, as stated by the mechanism, as long as no index is used for
    two different values. One release is charged, when the object is made.

    Cost
    ----
    That of `Mechanism.encode` for `encode`; two blocks of keystream for every `code_at`.

    Examples
    --------
    >>> import numpy as np
    >>> from numba import njit, prange
    >>> from dpcore import local
    >>> from dpcore.interop.numba import Encoder, encode
    >>> @njit
    ... def report(encoder, rows):
    ...     codes = np.empty(rows.shape, np.uint8)
    ...     for i in range(len(rows)):
    ...         encode(encoder, i * rows.shape[1], np.log1p(rows[i]), codes[i])
    ...     return codes
    >>> report(Encoder(local.Duchi(1.0, 0, 10)), np.ones((3, 4))).shape
    (3, 4)
    """

    def __init__(self, mechanism: Mechanism, *, noise: Noise | None = None) -> None:
        if not isinstance(mechanism, Mechanism):
            raise ParameterError("The 'mechanism' parameter must be one of dpcore.local.")
        source = check_secure(noise, "compiled results")
        self._rows = mechanism._rows
        self._key = open_release(source, mechanism.event, "local", mechanism._fingerprint)
        self.key_address = self._key.address
        self.law_address, self.cut_address = self._rows.addresses
        self.dtype = self._rows.dtype


class Sampler:
    """One release of integer noise, for `add_noise` and `noise_at`: made by the class methods.

    Privacy
    -------
    That of the function of dpcore that the class method names, for integers, as long as no index is
    used for two different values.

    Cost
    ----
    That of the NumPy call for `add_noise`; two blocks of keystream or more for every `noise_at`.

    Examples
    --------
    >>> import numpy as np
    >>> from numba import njit
    >>> from dpcore.interop.numba import Sampler, noise_at
    >>> @njit
    ... def noisy_total(sampler, x):
    ...     return x.sum() + noise_at(sampler, 0)
    >>> isinstance(noisy_total(Sampler.laplace(epsilon=1, sensitivity=1), np.arange(9)), int)
    True
    """

    def __init__(self, law: _laws.Digits | _laws.Rejection, key: Key) -> None:
        self._law, self._key = law.native, key
        self.key_address, self.law_address = key.address, self._law.address
        self.symbol = "add_digits" if isinstance(self._law, DigitLaw) else "add_gauss"

    @classmethod
    def laplace(cls, *, epsilon: float, sensitivity: float, noise: Noise | None = None) -> Sampler:
        """The noise of `dpcore.laplace` on integers; the ledger in force is charged."""
        source, distance = (
            check_secure(noise, "compiled results"),
            check_positive(sensitivity, "sensitivity"),
        )
        law, rate = laplace_law(check_positive(epsilon, "epsilon"), distance)
        event = laplace_event("laplace", law, distance)
        return cls(law, open_release(source, event, "laplace", *label(rate)))

    @classmethod
    def gaussian(
        cls,
        *,
        sensitivity: float,
        epsilon: float | None = None,
        delta: float | None = None,
        sigma: float | None = None,
        noise: Noise | None = None,
    ) -> Sampler:
        """The noise of `dpcore.gaussian` on integers; the ledger in force is charged."""
        source, distance = (
            check_secure(noise, "compiled results"),
            check_positive(sensitivity, "sensitivity"),
        )
        multiplier = _noise_multiplier(distance, epsilon, delta, sigma)
        deviation = multiplier * distance
        law, event = _gaussian_law(deviation), _gaussian_event(multiplier)
        return cls(law, open_release(source, event, "gaussian", *label(deviation)))

    @classmethod
    def discrete_laplace(cls, scale: float, *, noise: Noise | None = None) -> Sampler:
        """The integers of `dpcore.random.discrete_laplace`."""
        rate = random._rate(scale)
        key = check_secure(noise, "compiled results").key_for("discrete_laplace", *label(rate))
        return cls(_laws.discrete_laplace(rate), key)

    @classmethod
    def discrete_gaussian(cls, sigma: float, *, noise: Noise | None = None) -> Sampler:
        """The integers of `dpcore.random.discrete_gaussian`."""
        deviation = random._sigma(sigma)
        key = check_secure(noise, "compiled results").key_for(
            "discrete_gaussian", *label(deviation)
        )
        return cls(_laws.discrete_gaussian(deviation), key)


# Types: the addresses of a release, read off the object for the time of a call.


class EncoderType(types.Type):
    def __init__(self, code: types.Type) -> None:
        self.code = code
        super().__init__(name=f"dpcore.Encoder({code}, {_ABI})")


class SamplerType(types.Type):
    def __init__(self, symbol: str) -> None:
        self.symbol = symbol
        super().__init__(name=f"dpcore.Sampler({symbol}, {_ABI})")


@typeof_impl.register(Encoder)
def _(value: Encoder, context: Any) -> EncoderType:
    return EncoderType(types.uint16 if value.dtype == np.uint16 else types.uint8)


@typeof_impl.register(Sampler)
def _(value: Sampler, context: Any) -> SamplerType:
    return SamplerType(value.symbol)


@register_model(EncoderType)
class _EncoderModel(models.StructModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        members = [(name, types.uintp) for name in ("key", "law", "cut")]
        super().__init__(manager, kind, members)


@register_model(SamplerType)
class _SamplerModel(models.StructModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, [(name, types.uintp) for name in ("key", "law")])


@unbox(EncoderType)
def _(kind: Any, value: Any, context: Any) -> NativeValue:
    return _unbox(kind, value, context, ("key", "law", "cut"))


@unbox(SamplerType)
def _(kind: Any, value: Any, context: Any) -> NativeValue:
    return _unbox(kind, value, context, ("key", "law"))


def _unbox(kind: Any, value: Any, context: Any, names: tuple[str, ...]) -> NativeValue:
    native = cgutils.create_struct_proxy(kind)(context.context, context.builder)
    for name in names:
        number = context.pyapi.object_getattr_string(value, f"{name}_address")
        setattr(native, name, context.unbox(types.uintp, number).value)
        context.pyapi.decref(number)
    failed = cgutils.is_not_null(context.builder, context.pyapi.err_occurred())
    return NativeValue(native._getvalue(), is_error=failed)


# Calls


def _call(context: Any, builder: Any, name: str, arguments: list[Any]) -> Any:
    """A call of the native core; all pointers travel as bytes."""
    pointer = ir.IntType(8).as_pointer()
    values = [
        builder.bitcast(a, pointer) if isinstance(a.type, ir.PointerType) else a for a in arguments
    ]
    kind = ir.FunctionType(ir.IntType(32), [a.type for a in values])
    function = cgutils.get_or_insert_function(builder.module, kind, _symbol(name))
    return builder.call(function, values)


def _release_pointers(
    context: Any, builder: Any, kind: Any, value: Any, names: tuple[str, ...]
) -> list[Any]:
    native = cgutils.create_struct_proxy(kind)(context, builder, value)
    pointer = ir.IntType(8).as_pointer()
    return [builder.inttoptr(getattr(native, name), pointer) for name in names]


def _is_vector(kind: Any, *dtypes: Any) -> bool:
    return (
        isinstance(kind, types.Array)
        and kind.ndim == 1
        and kind.layout == "C"
        and kind.dtype in dtypes
    )


@intrinsic
def _encode(typing: Any, encoder: Any, start: Any, x: Any, codes: Any) -> Any:
    if not (
        isinstance(encoder, EncoderType)
        and isinstance(start, types.Integer)
        and _is_vector(x, types.float64, types.float32)
        and _is_vector(codes, encoder.code)
        and codes.mutable
    ):
        return None
    name = "encode_f64" if x.dtype == types.float64 else "encode_f32"

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = signature.args
        release = _release_pointers(context, builder, kinds[0], arguments[0], ("key", "law", "cut"))
        source = context.make_array(kinds[2])(context, builder, arguments[2])
        target = context.make_array(kinds[3])(context, builder, arguments[3])
        n = builder.extract_value(source.shape, 0)
        values = [*release, arguments[1], source.data, target.data, n]
        return _call(context, builder, name, values)

    return types.int32(encoder, types.uint64, x, codes), generate


@intrinsic
def _code_at(typing: Any, encoder: Any, index: Any, value: Any) -> Any:
    if not (isinstance(encoder, EncoderType) and isinstance(index, types.Integer)):
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        release = _release_pointers(
            context, builder, signature.args[0], arguments[0], ("key", "law", "cut")
        )
        source = cgutils.alloca_once_value(builder, arguments[2])
        target = cgutils.alloca_once(builder, context.get_value_type(encoder.code))
        one = context.get_constant(types.uintp, 1)
        status = _call(
            context, builder, "encode_f64", [*release, arguments[1], source, target, one]
        )
        code = builder.zext(builder.load(target), ir.IntType(64))
        failed = builder.icmp_unsigned("!=", status, status.type(0))
        return builder.select(failed, code.type(-1), code)

    return types.int64(encoder, types.uint64, types.float64), generate


@intrinsic
def _add_noise(typing: Any, sampler: Any, start: Any, x: Any, out: Any) -> Any:
    if not (
        isinstance(sampler, SamplerType)
        and isinstance(start, types.Integer)
        and _is_vector(x, types.int64)
        and _is_vector(out, types.int64)
        and out.mutable
    ):
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = signature.args
        release = _release_pointers(context, builder, kinds[0], arguments[0], ("key", "law"))
        source = context.make_array(kinds[2])(context, builder, arguments[2])
        target = context.make_array(kinds[3])(context, builder, arguments[3])
        n = builder.extract_value(target.shape, 0)
        values = [*release, arguments[1], source.data, target.data, n]
        return _call(context, builder, sampler.symbol, values)

    return types.int32(sampler, types.uint64, x, out), generate


@intrinsic
def _noise_at(typing: Any, sampler: Any, index: Any) -> Any:
    if not (isinstance(sampler, SamplerType) and isinstance(index, types.Integer)):
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        release = _release_pointers(
            context, builder, signature.args[0], arguments[0], ("key", "law")
        )
        nothing = ir.IntType(8).as_pointer()(None)
        target = cgutils.alloca_once(builder, ir.IntType(64))
        one = context.get_constant(types.uintp, 1)
        _call(context, builder, sampler.symbol, [*release, arguments[1], nothing, target, one])
        return builder.load(target)

    return types.int64(sampler, types.uint64), generate


_LIMIT = int(INDEX_LIMIT)
_REFUSED = -(1 << 63)


@njit
def _in_range(start, n):  # type: ignore[no-untyped-def]
    # A sum could overflow, and Numba compares signed with unsigned integers as floats.
    return start >= 0 and np.uint64(start) <= np.uint64(_LIMIT - n)


@njit
def encode(encoder, start, x, codes):  # type: ignore[no-untyped-def]
    """codes = codes of x for elements start, start + 1, ...; x of float64 or float32.

    Returns 1, and all codes are the largest of their type, if a value is not finite, lengths differ
    or an index reaches 2**62; 0 otherwise.

    Privacy
    -------
    That of `Encoder`. A call that refuses tells that it did, and nothing of the values besides.

    Cost
    ----
    That of `Mechanism.encode`, on the calling thread.
    """
    fits = len(x) == len(codes) and _in_range(start, len(x))
    if fits and _encode(encoder, start, x, codes) == 0:
        return 0
    codes[:] = -1
    return 1


@njit
def code_at(encoder, index, value):  # type: ignore[no-untyped-def]
    """The code of one value as element number index, modulo 2**62; -1 if it is not finite.

    Privacy
    -------
    That of `Encoder`; -1 tells that the value is not finite.

    Cost
    ----
    Two blocks of keystream: more for each value than `encode` of many.
    """
    return _code_at(encoder, index & (_LIMIT - 1), value)


@njit
def add_noise(sampler, start, x, out):  # type: ignore[no-untyped-def]
    """out = x + noise of elements start, start + 1, ...; both of int64, out may be x.

    Returns 1, and all of out is the least int64, if an x is further than 2**62 from zero, lengths
    differ or an index reaches 2**62; 0 otherwise.

    Privacy
    -------
    That of `Sampler`. A call that refuses tells that it did, and nothing of the values besides.

    Cost
    ----
    That of the NumPy call, on the calling thread.
    """
    fits = len(x) == len(out) and _in_range(start, len(x))
    if fits and _add_noise(sampler, start, x, out) == 0:
        return 0
    out[:] = _REFUSED
    return 1


@njit
def noise_at(sampler, index):  # type: ignore[no-untyped-def]
    """The noise of element number index, modulo 2**62, alone.

    Privacy
    -------
    That of `Sampler` for the one integer that it is added to. Noise that is shown by itself, or
    added to two values, protects nothing.

    Cost
    ----
    Two blocks of keystream or more: more for each element than `add_noise` of many.
    """
    return _noise_at(sampler, index & (_LIMIT - 1))
