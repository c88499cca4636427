"""Meters without Python report to a server with it: ``python -m bench.examples.device.run``.

Builds the library and `meter.c` with the C compiler, gives every meter a table and a key of its
own, lets each report a day of readings, and estimates the mean of all from the messages.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from dpcore import local, wire

ROOT = Path(__file__).parents[3]


def build(folder: Path) -> Path:
    """The meter program, linked with the library for devices; both are put into the folder."""
    library = folder / "library"
    make = ["make", "--silent", "device", f"DEVICE={library}"]
    subprocess.run(make, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    program = folder / "meter"
    source = Path(__file__).with_name("meter.c")
    compiler = os.environ.get("CC", "cc")
    subprocess.run(
        [compiler, "-std=c99", "-Os", "-I", library / "include", source,
         library / "libdpcore_device.a", "-Wl,--gc-sections", "-o", program],
        check=True,
    )  # fmt: skip
    return program


def report(
    program: Path, table: Path, key: Path, ids: tuple[str, int], start: int, x: np.ndarray
) -> bytes:
    """What one meter sends."""
    text = "\n".join(repr(float(value)) for value in x)
    command = [program, table, key, ids[0], str(ids[1]), str(start)]
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=True, timeout=60)
    return done.stdout


def main(n_meters: int = 50) -> tuple[float, float]:
    mechanism = local.OptimalOutputs(2.0, 0.0, 5000.0, n_outputs=16)
    readings = np.random.default_rng(0).gamma(4.0, 300.0, (n_meters, 96))
    total = np.zeros(1 << mechanism.n_bits, np.int64)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = build(folder)
        table = folder / "table.bin"
        table.write_bytes(mechanism.to_table())
        for meter in range(n_meters):
            # A real meter draws its key itself, and the key never leaves it.
            key = folder / f"{meter}.key"
            key.touch(mode=0o600)
            key.write_bytes(secrets.token_bytes(32))
            message = report(program, table, key, ("2026-11-18", meter), 0, readings[meter])
            wire.unpack(message).counts(out=total)
    estimate = mechanism.estimate(np.repeat(np.arange(len(total)), total))
    low, high = estimate.interval(0.999999)
    print(f"mean {estimate.mean:.1f} W, in [{low:.1f}, {high:.1f}], true {readings.mean():.1f} W")
    return low, high


if __name__ == "__main__":
    main()
