"""Private reports inside a compiled parallel kernel: ``python -m bench.examples.numba_kernel``.

Each row of readings is turned into one number by a formula of the user's own, which is encoded in
the same loop: the clear values never leave the kernel. The function is cached on disk.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

import dpcore
from dpcore import local
from dpcore.interop.numba import Encoder, Sampler, code_at, noise_at


@njit(parallel=True, cache=True)
def report(encoder, rows, codes):
    """The code of the range of every row."""
    for i in prange(len(rows)):
        codes[i] = code_at(encoder, i, rows[i].max() - rows[i].min())


@njit(parallel=True, cache=True)
def noisy_counts(sampler, rows, limits, counts):
    """How many rows have their mean below each limit, with noise."""
    means = np.empty(len(rows))
    for i in prange(len(rows)):
        means[i] = rows[i].mean()
    for j in prange(len(limits)):
        counts[j] = (means < limits[j]).sum() + noise_at(sampler, j)


def main(n: int = 20_000) -> tuple[float, float, float]:
    rows = np.random.default_rng(0).normal(0.0, 1.0, (n, 24))
    noise = dpcore.Noise.from_key(bytes(range(32))).stream("example")
    mechanism = local.OptimalOutputs(2.0, 0.0, 8.0, n_outputs=16)
    codes = np.empty(n, np.uint8)
    report(Encoder(mechanism, noise=noise), rows, codes)
    ranges = rows.max(axis=1) - rows.min(axis=1)
    if not np.array_equal(codes, mechanism.encode(ranges, noise=noise)):
        raise AssertionError("the kernel differs from NumPy")
    low, high = mechanism.estimate(codes).interval(0.999999)
    true = float(ranges.mean())
    print(f"mean range in [{low:.3f}, {high:.3f}], true {true:.3f}")

    limits = np.linspace(-0.3, 0.3, 5)
    counts = np.empty(len(limits), np.int64)
    # One row can be below all limits.
    sampler = Sampler.laplace(epsilon=1.0, sensitivity=len(limits))
    noisy_counts(sampler, rows, limits, counts)
    print("rows with a mean below each limit, noisy:", counts.tolist())
    return low, true, high


if __name__ == "__main__":
    main()
