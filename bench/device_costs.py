"""What the library for devices takes: ``python -m bench.device_costs``.

Writes bench/results/device_costs.md: bytes of code that a program with the whole interface links,
bytes of state and of stack, and the size of the table of every mechanism. The numbers are those of
the compiler and machine at hand; ``CC`` and ``AR`` may name others for the code.
"""

from __future__ import annotations

import os
import platform
import subprocess
import tempfile
from pathlib import Path

from bench.runner import RESULTS
from dpcore import local

ROOT = Path(__file__).parents[1]
COMPILER = os.environ.get("CC", "cc")
ENTRIES = (
    "load", "table_digest", "name_begin", "name_text", "name_bytes", "name_integer", "stream",
    "open", "close", "encode_f64", "encode_i32", "message_size", "pack",
)  # fmt: skip


def output(*command: object) -> str:
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def build(folder: Path) -> Path:
    output("make", "--silent", "device", f"DEVICE={folder}")
    return folder / "libdpcore_device.a"


def code_size(folder: Path) -> dict[str, int]:
    """Bytes of code with constants, and of data, of everything that the interface reaches."""
    linked = folder / "linked.o"
    roots = [f"-Wl,-u,dpc_device_{name}" for name in ENTRIES]
    collect = ["-Wl,--gc-sections", f"-Wl,-e,dpc_device_{ENTRIES[0]}"]
    output(COMPILER, "-r", "-nostdlib", *roots, *collect, build(folder), "-o", linked)
    text, data, bss = output("size", linked).splitlines()[1].split()[:3]
    return {"text": int(text), "data": int(data), "bss": int(bss)}


def memory(folder: Path, mechanism: local.Mechanism) -> dict[str, int]:
    """Bytes of stack of every call, and of the state that a program keeps."""
    program, table = folder / "device_stack", folder / "table.bin"
    table.write_bytes(mechanism.to_table())
    output(
        COMPILER, "-Os", "-I", folder / "include", "bench/device_stack.c",
        folder / "libdpcore_device.a", "-Wl,-z,now", "-o", program,
    )  # fmt: skip
    lines = output(program, table).splitlines()
    return {name: int(value) for name, value in (line.split() for line in lines)}


def main() -> Path:
    mechanisms = [local.make(name, 1.0) for name in local.NAMES]
    mechanisms += [local.HybridJoint(1.0, n_levels=8), local.OptimalOutputs(1.0, n_outputs=8)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = code_size(folder)
        used = memory(folder, local.Laplace(1.0))
    compiler = output(COMPILER, "--version").splitlines()[0]
    lines = [
        "# Cost of the library for devices",
        "",
        f"{compiler}, -Os, {platform.machine()}. Code is what a program that uses the whole "
        "interface links; no memory is allocated and none is global.",
        "",
        "| what | bytes |",
        "|---|---|",
        f"| code and constants | {size['text'] + size['data']} |",
        f"| zeroed data | {size['bss']} |",
        f"| state: table view and open stream | {used['state']} |",
        f"| a name while it is made | {used['name']} |",
        *(f"| stack of `{call}` | {used[call]} |" for call in ("load", "open", "encode", "pack")),
        "",
        "| mechanism (epsilon 1) | outputs | bits | table, bytes |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {mechanism.name} | {mechanism.n_outputs} | {mechanism.n_bits} "
        f"| {len(mechanism.to_table())} |"
        for mechanism in mechanisms
    ]
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / "device_costs.md"
    path.write_text("\n".join(lines) + "\n")
    return path


if __name__ == "__main__":
    print(main().read_text())
