"""The library for devices against Python: the same key and readings, the same bytes."""

import hashlib
import platform
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dpcore
from bench import device_costs
from bench.examples.device import run as example
from dpcore import local
from dpcore.local.export import TABLE_VERSION

KEY = bytes(range(7, 39))
MECHANISMS = [
    *(local.make(name, 1.0, -5.0, 20.0) for name in local.NAMES),
    local.OptimalOutputs(0.5, 0.0, 1e6, n_outputs=4, objective="at_zero"),
    local.Duchi(30.0),
    local.Piecewise(2.0, -1e-3, 1e3, n_levels=600),
]
HEADER = struct.Struct("<4sBBBBIIddd32s")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("device")
    example.build(path)
    (path / "key").write_bytes(KEY)
    return path


def readings(mechanism, n):
    """Inside and outside the bounds, and on them."""
    width = mechanism.upper - mechanism.lower
    inside = np.random.default_rng(n).uniform(-0.2, 1.2, n) * width + mechanism.lower
    inside[:2] = mechanism.lower, mechanism.upper
    return inside


def send(folder, mechanism, x, start=0, stream=("meter", 7), table=None):
    path = folder / f"{hashlib.sha256(repr(mechanism).encode()).hexdigest()}.table"
    path.write_bytes(mechanism.to_table() if table is None else table)
    return example.report(folder / "meter", path, folder / "key", stream, start, x)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
def test_a_device_sends_the_bytes_of_python(folder, mechanism):
    noise = dpcore.Noise.from_key(KEY).stream("meter", 7)
    for n, start in ((2, 0), (50, 3), (333, 2**40 - 100)):
        x = readings(mechanism, n)
        ours = mechanism.pack(mechanism.encode(x, noise=noise, start=start))
        assert send(folder, mechanism, x, start) == ours


@pytest.mark.parametrize(
    "stream", [("", 0), ("zähler", -1), ("x" * 200, 2**63 - 1), ("meter", -(2**63))]
)
def test_streams_have_the_names_of_python(folder, stream):
    mechanism = local.Duchi(1.0)
    x = np.linspace(-1, 1, 200)
    noise = dpcore.Noise.from_key(KEY).stream(*stream)
    assert send(folder, mechanism, x, 9, stream) == mechanism.pack(
        mechanism.encode(x, noise=noise, start=9)
    )


def test_a_report_in_two_parts_is_the_report(folder):
    mechanism = local.ThreeOutputs(1.0)
    x = readings(mechanism, 100)
    whole = mechanism.unpack(send(folder, mechanism, x))
    parts = [send(folder, mechanism, x[:41]), send(folder, mechanism, x[41:], 41)]
    assert np.array_equal(whole, np.concatenate([mechanism.unpack(part) for part in parts]))


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
def test_a_table_holds_exactly_the_proven_probabilities(mechanism):
    """Adds up, in integers, how often each column of the exported bytes yields each code."""
    data = mechanism.to_table()
    magic, version, kind, bits, zero, n_outputs, n_intervals, *numbers, digest = HEADER.unpack_from(
        data
    )
    assert (magic, version, zero) == (b"dpct", TABLE_VERSION, 0)
    assert (kind, n_outputs, bits) == (mechanism.kind, mechanism.n_outputs, mechanism.n_bits)
    assert numbers == [mechanism.epsilon, mechanism.lower, mechanism.upper]
    assert digest == mechanism._digest
    assert data[-32:] == hashlib.sha256(data[:-32]).digest()
    n_columns = 1 << bits
    n = (n_intervals + 1) * n_columns
    assert len(data) == HEADER.size + 20 * n + 32
    entries = np.frombuffer(data, "<u4", n, HEADER.size).reshape(-1, n_columns)
    cuts = np.frombuffer(data, "<u8", 2 * n, HEADER.size + 4 * n).reshape(-1, n_columns, 2)
    unit = 1 << (128 + bits - mechanism.table.bits)
    for row, entry, cut in zip(mechanism.table.rows, entries.tolist(), cuts.tolist(), strict=True):
        weights = [0] * n_columns
        for column, (word, (high, low)) in enumerate(zip(entry, cut, strict=True)):
            below = high << 64 | low
            weights[column] += below
            weights[word & 0xFFFF] += (1 << 128) - below
        assert weights == [w * unit for w in row] + [0] * (n_columns - len(row))


def test_damaged_tables_are_refused(folder):
    mechanism = local.ThreeOutputs(1.0)
    data = bytearray(mechanism.to_table())
    for at in range(0, len(data), 7):
        data[at] ^= 1 << at % 8
        with pytest.raises(subprocess.CalledProcessError) as error:
            send(folder, mechanism, [0.0], table=bytes(data))
        assert b"the table was refused" in error.value.stderr
        data[at] ^= 1 << at % 8
    assert send(folder, mechanism, [0.0], table=bytes(data))


def test_readings_that_are_not_finite_are_refused(folder):
    with pytest.raises(subprocess.CalledProcessError) as error:
        send(folder, local.Duchi(1.0), [0.0, float("nan")])
    assert error.value.stdout == b""
    assert b"the readings were refused" in error.value.stderr


def test_the_library_needs_nothing_but_memcpy_and_memset(folder):
    archive = folder / "library" / "libdpcore_device.a"
    listed = subprocess.run(["nm", archive], capture_output=True, text=True, check=True).stdout
    symbols = re.findall(r"^(?:[0-9a-f]+)? +([A-Za-z]) (\w+)$", listed, re.M)
    defined = {name for kind, name in symbols if kind != "U"}
    needed = {name for kind, name in symbols if kind == "U"} - defined
    assert "dpc_device_load" in defined
    assert needed == {"memcpy", "memset"}
    # The table of kernels is constant, but holds addresses; nothing else is in writable memory.
    assert {name for kind, name in symbols if kind in "dDbBC"} <= {"dpc_kernels_device"}


def test_the_public_header_stands_alone(folder, tmp_path):
    source = tmp_path / "alone.c"
    source.write_text('#include "dpcore/device.h"\nint main(void) { return 0; }\n')
    flags = ["-pedantic", "-Wall", "-Wextra", "-Werror", "-ffreestanding", "-c"]
    include = folder / "library" / "include"
    assert [path.name for path in include.rglob("*.h")] == ["device.h"]
    for language in (["-std=c99"], ["-x", "c++", "-std=c++11"]):
        command = ["cc", *flags, *language, "-I", include, source, "-o", tmp_path / "alone.o"]
        subprocess.run(command, check=True)


def test_code_and_memory_stay_small(tmp_path):
    size = device_costs.code_size(tmp_path)
    assert 5000 < size["text"] + size["data"] < 12_000
    assert size["bss"] == 0
    used = device_costs.memory(tmp_path, local.Laplace(1.0))
    assert all(200 < used[call] < 1500 for call in ("load", "open", "encode", "pack"))
    assert used["state"] <= 128


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="steps as x86-64 does"
)
@pytest.mark.parametrize("mechanism", [MECHANISMS[0], *MECHANISMS[-3:-1]], ids=repr)
def test_every_reading_takes_the_same_number_of_instructions(folder, mechanism, tmp_path):
    """Below, on and between grid points, beyond the bounds, with every outcome of the draw."""
    program, table = tmp_path / "step", tmp_path / "table"
    table.write_bytes(mechanism.to_table())
    source, library = Path(__file__).with_name("step_device.c"), folder / "library"
    subprocess.run(
        ["cc", "-O1", "-mno-red-zone", "-I", library / "include", source,
         library / "libdpcore_device.a", "-o", program],
        check=True,
    )  # fmt: skip
    counted = subprocess.run([program, table], capture_output=True, check=True).stdout.split()
    assert len(counted) == 3 * 13
    assert len(set(counted)) == 1
    assert int(counted[0]) > 1000


def test_the_example_estimates_the_mean_of_all_meters(capsys):
    low, high = example.main(n_meters=12)
    line = capsys.readouterr().out
    true = float(re.search(r"true ([\d.]+)", line).group(1))
    assert low < true < high


SOURCES = Path(example.ROOT, "dpcore_ext")
INCLUDES = ["-I", SOURCES / "include", "-I", SOURCES / "src", "-isystem", np.get_include()]


def compiled(compiler, source, *flags):
    command = [compiler, *flags, *INCLUDES, SOURCES / "src" / source, "-o", "-"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_library_reads_no_header_of_a_libc():
    """Only the compiler's own folder of headers is there, as for a bare machine."""
    own = subprocess.run(
        ["cc", "-print-file-name=include"], capture_output=True, text=True, check=True
    ).stdout.strip()
    flags = ["-std=c99", "-ffreestanding", "-nostdinc", "-isystem", own, "-S"]
    flags += ["-DDPC_PORTABLE", "-DDPC_DEVICE"]
    names = ["chacha.c", "encode.c", "pack.c"]
    names += [f"device/{path.name}" for path in (SOURCES / "src/device").glob("*.c")]
    for name in names:
        done = compiled("cc", name, *flags)
        assert done.returncode == 0, done.stderr
    assert compiled("cc", "labeling.c", *flags).returncode != 0


@pytest.mark.parametrize("source", ["encode.c", "fixed.c", "device/table.c", "level_baseline.c"])
def test_arithmetic_that_is_not_ieee_is_refused_by_the_compiler(source):
    plain = ["-std=c11", "-S", "-O0"]
    assert compiled("cc", source, *plain).returncode == 0
    wrong = ["-ffast-math", "-ffinite-math-only"]
    if platform.machine() == "x86_64" and "clang" not in compiled("cc", source, "-v").stderr:
        wrong.append("-mfpmath=387")
    for flag in wrong:
        done = compiled("cc", source, *plain, flag)
        assert done.returncode != 0, flag
        assert "dpcore needs" in done.stderr


@pytest.mark.skipif(
    not shutil.which("clang") or platform.machine() != "x86_64",
    reason="clang is not installed, or makes code for another machine than x86",
)
@pytest.mark.parametrize("source", ["cluster.c", "labeling.c", "level_baseline.c"])
def test_clang_does_not_contract_what_has_to_round_alike(source):
    made = compiled("clang", source, "-std=c11", "-O2", "-mfma", "-S")
    assert made.returncode == 0, made.stderr
    assert "mulsd" in made.stdout
    assert "fmadd" not in made.stdout
    assert "fnmadd" not in made.stdout
