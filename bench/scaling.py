"""How kernels scale with size and threads, and how near they are to what the machine can do.

Two ceilings are measured in the same run: a plain copy (memory) and the bare ChaCha20 keystream. A
kernel that reads and writes B bytes and uses K bytes of keystream per element can do at most
copy / B and keystream / K elements a second; the roofline is the lower of the two.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import dpcore
from bench.runner import machine, write_json
from dpcore import local
from dpcore.secure.ring import add_masks
from dpcore_ext.rng import Key, keystream

SIZES = (10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
QUICK_SIZES = (10_000, 100_000)
THREADS = (1, 2)
SECONDS = 0.6  # spent on each point, at least three calls
PACKAGES = ("numpy",)
COPY, KEYSTREAM = "copy of int64", "ChaCha20 keystream, 8 bytes"

Call = Callable[[], Any]


@dataclass(frozen=True)
class Kernel:
    """`make(n)` gives the call and a check of what it returned; the rest is bytes per element."""

    name: str
    make: Callable[[int], tuple[Call, Callable[[Any], str]]]
    read: float
    written: float
    keystream: float


def _halves(n: int, work: Callable[[int, int], None]) -> None:
    """What dpcore does with two threads, for calls that have none of their own."""
    threads = dpcore.get_num_threads()
    edges = [n * i // threads // 8 * 8 for i in range(threads)] + [n]
    if threads == 1:
        work(0, n)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, edges[:-1], edges[1:]))


def copy(n: int) -> tuple[Call, Callable[[Any], str]]:
    x, out = np.arange(n), np.zeros(n, np.int64)

    def call() -> Any:
        _halves(n, lambda begin, end: np.copyto(out[begin:end], x[begin:end]))
        return out

    return call, lambda found: _holds(np.array_equal(found, x), "equal")


def bare_keystream(n: int) -> tuple[Call, Callable[[Any], str]]:
    key, out = Key.from_bytes(bytes(range(32))), np.zeros(8 * n, np.uint8)

    def call() -> Any:
        _halves(
            n,
            lambda begin, end: keystream(key, 0, begin // 8, out[8 * begin : 8 * end]),
        )
        return out

    def check(found: Any) -> str:
        few = np.empty(640, np.uint8)
        keystream(key, 0, 0, few)
        return _holds(
            np.array_equal(found[:640], few) and len(np.unique(found)) == 256, "first blocks"
        )

    return call, check


def laplace(n: int) -> tuple[Call, Callable[[Any], str]]:
    x, out = np.zeros(n, np.int64), np.zeros(n, np.int64)
    return lambda: dpcore.laplace(x, epsilon=1, sensitivity=1, out=out), _centred(1.36)


def gaussian(n: int) -> tuple[Call, Callable[[Any], str]]:
    x, out = np.zeros(n, np.int64), np.zeros(n, np.int64)
    return lambda: dpcore.gaussian(x, sigma=10, sensitivity=1, out=out), _centred(10.1)


def encode(n: int) -> tuple[Call, Callable[[Any], str]]:
    mechanism = local.make("optimal", 2.0, n_outputs=16)
    x = np.linspace(-1, 1, n)

    def check(codes: Any) -> str:
        low, high = mechanism.estimate(codes).interval(1 - 1e-6)
        return _holds(low <= x.mean() <= high, "the mean lies in its interval")

    return lambda: mechanism.encode(x), check


def _coded(n: int) -> tuple[local.Mechanism, Any]:
    mechanism = local.make("optimal", 2.0, n_outputs=16)
    return mechanism, mechanism.encode(np.linspace(-1, 1, n))


def pack(n: int) -> tuple[Call, Callable[[Any], str]]:
    mechanism, codes = _coded(n)
    return (
        lambda: mechanism.pack(codes),
        lambda found: _holds(np.array_equal(mechanism.unpack(found), codes), "unpacks to the same"),
    )


def count(n: int) -> tuple[Call, Callable[[Any], str]]:
    mechanism, codes = _coded(n)
    message, same = mechanism.pack(codes), mechanism.estimate(codes)
    return (
        lambda: mechanism.estimate(message),
        lambda found: _holds(found.mean == same.mean, "equals the estimate from codes"),
    )


def mask(n: int) -> tuple[Call, Callable[[Any], str]]:
    words, key = np.zeros(n, np.uint64), bytes(range(32))

    def call() -> Any:
        add_masks([key], [False], words)
        return words

    def check(found: Any) -> str:
        again = found.copy()
        add_masks([key], [True], again)
        words[:] = again
        return _holds(not again[0] and np.array_equal(again, again * 0), "taken off again, zeros")

    return call, check


KERNELS = (
    Kernel(COPY, copy, 8, 8, 0),
    Kernel(KEYSTREAM, bare_keystream, 0, 8, 8),
    Kernel("Laplace release, int64", laplace, 8, 8, 2),
    Kernel("Gaussian release, int64, sigma 10", gaussian, 8, 8, 2),
    Kernel("local encoding, 16 outputs, float64", encode, 8, 1, 4),
    Kernel("packing to 4 bits", pack, 1, 0.5, 0),
    Kernel("estimate from packed bits", count, 0.5, 0, 0),
    Kernel("mask of one peer, uint64", mask, 8, 8, 8),
)


def _holds(truth: Any, text: str) -> str:
    if not truth:
        raise AssertionError(f"a kernel is wrong: not {text}")
    return text


def _centred(deviation: float) -> Callable[[Any], str]:
    def check(found: Any) -> str:
        error = abs(found.mean()) * np.sqrt(found.size) / deviation
        return _holds(error < 6, "the mean is that of the law")

    return check


def _best(call: Call, seconds: float) -> float:
    begin, best, calls = time.perf_counter(), float("inf"), 0
    while calls < 3 or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
        calls += 1
    return best


def measure(sizes: tuple[int, ...] = SIZES, seconds: float = SECONDS) -> dict[str, Any]:
    """Elements a second of every kernel, by threads and size, and the roofline of one thread."""
    curves: dict[str, dict[str, list[float]]] = {}
    checked: dict[str, str] = {}
    for kernel in KERNELS:
        curves[kernel.name] = {}
        for threads in THREADS:
            dpcore.set_num_threads(threads)
            rates = []
            for n in sizes:
                call, check = kernel.make(n)
                checked[kernel.name] = check(call())
                rates.append(n / _best(call, seconds))
            curves[kernel.name][str(threads)] = rates
            shown = ", ".join(f"{rate / 1e6:.0f}" for rate in rates)
            print(f"{kernel.name}, {threads} thread(s): {shown} million/s", flush=True)
    dpcore.set_num_threads(None)
    return {
        "machine": machine(PACKAGES),
        "sizes": list(sizes),
        "curves": curves,
        "checked": checked,
        "roofline": {str(t): roofline(curves, str(t)) for t in THREADS},
    }


def roofline(curves: dict[str, dict[str, list[float]]], threads: str) -> list[dict[str, Any]]:
    """At the largest size: what was reached, both ceilings, and the share of the lower one."""
    memory = 16 * curves[COPY][threads][-1]
    # The keystream of data in cache: writing it out is a cost of memory, not of the cipher.
    stream = 8 * max(curves[KEYSTREAM][threads])
    rows = []
    for kernel in KERNELS:
        reached = curves[kernel.name][threads][-1]
        by_memory = memory / (kernel.read + kernel.written)
        by_stream = stream / kernel.keystream if kernel.keystream else None
        ceiling = min(by_memory, by_stream or by_memory)
        rows.append(
            {
                "name": kernel.name,
                "bytes": kernel.read + kernel.written,
                "keystream": kernel.keystream,
                "reached": reached,
                "memory": by_memory,
                "stream": by_stream,
                "share": reached / ceiling,
                "bound": "memory" if ceiling == by_memory else "keystream",
            }
        )
    return rows


def markdown(payload: dict[str, Any]) -> str:
    """Tables of a recorded run."""
    sizes = payload["sizes"]
    lines = [
        "Million elements a second by size; threads 1 / 2. Best of repeated calls.",
        "",
        "| kernel | " + " | ".join(f"{n:.0e}".replace("e+0", "e") for n in sizes) + " | checked |",
        "|---" * (2 + len(sizes)) + "|",
    ]
    for name, curve in payload["curves"].items():
        pairs = zip(curve["1"], curve["2"], strict=True)
        cells = [f"{a / 1e6:.0f} / {b / 1e6:.0f}" for a, b in pairs]
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {payload['checked'][name]} |")
    lines += [
        "",
        f"Against the ceilings of the same run, one thread, {sizes[-1]:.0e} elements: bytes read "
        "and written, and bytes of keystream, per element; million elements a second.",
        "",
        "| kernel | bytes | keystream | reached | ceiling: memory | ceiling: keystream | share of "
        "the lower |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in payload["roofline"]["1"]:
        stream = "" if row["stream"] is None else f"{row['stream'] / 1e6:.0f}"
        lines.append(
            f"| {row['name']} | {row['bytes']:g} | {row['keystream']:g} "
            f"| {row['reached'] / 1e6:.0f} | {row['memory'] / 1e6:.0f} | {stream} "
            f"| **{row['share']:.0%}** ({row['bound']}) |"
        )
    return "\n".join([*lines, "", "![Scaling and roofline](results/scaling.png)", ""])


def plot(payload: dict[str, Any], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for i, (name, curve) in enumerate(payload["curves"].items()):
        for threads, style in (("1", "o-"), ("2", "s--")):
            rates = np.array(curve[threads]) / 1e6
            label = name if threads == "1" else None
            left.loglog(payload["sizes"], rates, style, color=f"C{i}", ms=3, label=label)
    left.set_xlabel("elements")
    left.set_ylabel("million elements/s (dashed: 2 threads)")
    figure.legend(loc="outside lower center", ncols=4, fontsize=7, frameon=False)
    rows = payload["roofline"]["1"][::-1]
    right.barh([row["name"] for row in rows], [100 * row["share"] for row in rows])
    right.axvline(100, color="k", lw=0.8)
    right.tick_params(axis="y", labelsize=7)
    right.set_xlabel("% of the lower ceiling, one thread")
    figure.savefig(path, dpi=110)


def run(folder: Path, *, quick: bool = False) -> Path:
    """Measure, and write scaling.json and scaling.png."""
    payload = measure(QUICK_SIZES, 0.05) if quick else measure()
    path = folder / "scaling.json"
    write_json(path, payload)
    plot(payload, folder / "scaling.png")
    return path
