"""Loss functions written by a user, compiled to run over arrays."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

__all__ = ["compile_loss"]


@lru_cache(maxsize=32)
def compile_loss(function):
    """From t -> (value, first, second derivative) to the same over a flat array of t."""
    try:
        from numba import njit
    except ImportError as error:
        raise ImportError(
            "A loss of your own needs Numba: install dpcore with its extra 'numba'."
        ) from error

    inner = function if hasattr(function, "py_func") else njit(function)

    @njit
    def run(t, value, first, second):
        for i in range(t.size):
            value[i], first[i], second[i] = inner(t[i])

    def terms(t):
        flat = np.ascontiguousarray(t, np.float64).reshape(-1)
        out = np.empty((3, flat.size))
        run(flat, out[0], out[1], out[2])
        return tuple(out.reshape(3, *np.shape(t)))

    return terms
