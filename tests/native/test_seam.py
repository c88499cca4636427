"""What native classes refuse: objects without contents, tables that lie, memory that is shared."""

import subprocess
import sys
import threading
from fractions import Fraction

import numpy as np
import pytest

from dpcore import _laws, local
from dpcore.errors import DataError, ParameterError
from dpcore_ext import cluster, encode, labeling, pack, recurrent, rng, sample

KEY = rng.Key.from_bytes(bytes(range(32)))
LAPLACE = _laws.discrete_laplace(Fraction(1)).native
GAUSS = _laws.rounded_gaussian(Fraction(1000)).native
EMPTY = np.zeros((0, 4), np.uint64)
NATIVE = [
    rng.Key,
    sample.Table,
    sample.Law,
    sample.DigitLaw,
    sample.GaussLaw,
    encode.Rows,
    cluster.KMeansRun,
    labeling.GramForm,
    recurrent.Cells,
]


@pytest.mark.parametrize("kind", NATIVE, ids=lambda kind: kind.__name__)
def test_there_is_no_object_without_contents(kind):
    with pytest.raises(TypeError):
        kind()
    with pytest.raises(TypeError):
        kind.__new__(kind)


def test_laws_and_keys_cannot_be_made_by_a_subclass_either():
    for kind in (sample.Law, rng.Key):
        with pytest.raises(TypeError):
            type("Own", (kind,), {})()


ROWS = local.ThreeOutputs(1.0)._rows
SPANS = {
    "digits": lambda start, n: LAPLACE.add_to(KEY, start, None, np.empty(n, np.int64)),
    "gauss": lambda start, n: GAUSS.add_to(KEY, start, None, np.empty(n, np.int64)),
    "integers": lambda start, n: sample.integers(KEY, 0, 6, start, np.empty(n, np.int64)),
    "encode": lambda start, n: ROWS.encode(KEY, start, np.zeros(n), np.empty(n, ROWS.dtype)),
}


@pytest.mark.parametrize("name", SPANS)
def test_indices_stay_below_two_to_the_62(name):
    call = SPANS[name]
    call(2**62 - 2, 2)
    call(2**62, 0)
    for start, n in ((2**62 - 1, 2), (2**62, 1), (2**63, 1), (2**64 - 1, 2), (2**64 - 1, 0)):
        with pytest.raises(ParameterError, match="'start'"):
            call(start, n)


def thresholds(*rows):
    return np.array(rows, np.uint64).reshape(-1, 4)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("open_ends", lambda: sample.Table(EMPTY, 0, -1)),
        ("open_ends", lambda: sample.Table(EMPTY, 0, 3)),
        ("first", lambda: sample.Table(EMPTY, 2**63 - 1)),
        ("first", lambda: sample.Table(EMPTY, -(2**63))),
        ("cdf", lambda: sample.Table(thresholds((2, 0, 0, 0), (1, 9, 9, 9)), 0)),
        ("cdf", lambda: sample.Table(thresholds((2, 0, 0, 1), (2, 0, 0, 0)), 0)),
        ("digits", lambda: sample.DigitLaw(table(), digits=[(table(), 70)])),
        ("digits", lambda: sample.DigitLaw(table(), digits=[(table(), 0)])),
        ("digits", lambda: sample.DigitLaw(table(), digits=[(table(), 15)] * 5)),
        ("digits", lambda: sample.DigitLaw(table(), digits=[(table(2), 1)])),
        ("digits", lambda: sample.DigitLaw(table(), digits=[(table(-1), 8)])),
        ("cells", lambda: sample.GaussLaw(table(1024), kappa=1, shift=31, lattice=False)),
        ("cells", lambda: sample.GaussLaw(table(-1025), kappa=1, shift=31, lattice=False)),
        ("alias", lambda: rows(alias=2)),
        ("lower", lambda: rows(upper=float("inf"))),
        ("lower", lambda: rows(lower=-1e308, upper=1.7e308)),
        ("alias", lambda: encode.Rows(*huge(), 2**20, 0.0, 1.0)),
        ("n_bits", lambda: pack.pack(np.zeros(2, np.uint8), 2.5, np.empty(1, np.uint8))),
        ("n_bits", lambda: pack.unpack(np.zeros(1, np.uint8), 2.0, np.empty(2, np.uint8))),
    ],
)
def test_tables_that_the_kernels_would_misread_are_refused(name, call):
    with pytest.raises(ParameterError, match=f"'{name}'"):
        call()


def table(first=0):
    return sample.Table(EMPTY, first)


def rows(alias=0, lower=0.0, upper=1.0):
    return encode.Rows(
        np.zeros((2, 2, 2), np.uint64), np.full((2, 2), alias, np.uint16), 1, lower, upper
    )


def huge():
    """More than 2^28 entries, in memory that is never touched."""
    shape = (2**20 + 1, 2**8)
    return np.zeros((*shape, 2), np.uint64), np.zeros(shape, np.uint16)


def test_equal_thresholds_and_numbers_of_numpy_are_accepted():
    sample.Table(thresholds((1, 0, 0, 7), (1, 0, 0, 7), (1, 0, 1, 0)), 0)
    out = np.empty(1, np.uint8)
    pack.pack(np.array([1, 2], np.uint8), np.int64(4), out)
    assert out[0] == 0x21


@pytest.mark.parametrize("law", [LAPLACE, GAUSS], ids=["digits", "gauss"])
def test_a_result_that_shares_a_part_of_the_input_is_refused(law):
    memory = np.arange(101, dtype=np.int64)
    for out in (memory[1:], memory[:-1]):
        x = memory[:-1] if out.ctypes.data != memory.ctypes.data else memory[1:]
        with pytest.raises(ParameterError, match="'out'"):
            law.add_to(KEY, 0, x, out)
    assert np.array_equal(memory, np.arange(101))
    expected = np.empty(50, np.int64)
    law.add_to(KEY, 0, memory[:50].copy(), expected)
    law.add_to(KEY, 0, memory[:50], memory[50:100])
    assert np.array_equal(memory[50:100], expected)


def test_codes_that_share_memory_with_readings_are_refused():
    x = np.zeros(50)
    with pytest.raises(ParameterError, match="'out'"):
        ROWS.encode(KEY, 0, x, x.view(ROWS.dtype)[:50])


def unaligned(dtype, n):
    array = np.zeros(np.dtype(dtype).itemsize * n + 1, np.uint8)[1:].view(dtype)
    assert not array.flags.aligned
    return array


def test_unaligned_input_is_copied_and_an_unaligned_result_refused():
    x, whole = unaligned(np.int64, 40), np.empty(40, np.int64)
    x[:] = np.arange(40)
    expected = np.empty(40, np.int64)
    LAPLACE.add_to(KEY, 0, np.arange(40), expected)
    LAPLACE.add_to(KEY, 0, x, whole)
    assert np.array_equal(whole, expected)
    codes = np.empty((2, 40), ROWS.dtype)
    for given, out in ((unaligned(np.float64, 40), codes[0]), (np.zeros(40), codes[1])):
        ROWS.encode(KEY, 0, given, out)
    assert np.array_equal(*codes)
    for call in (
        lambda: LAPLACE.add_to(KEY, 0, None, x),
        lambda: LAPLACE.add_to(KEY, 0, x, x),
        lambda: sample.quantize(np.zeros(40), -1.0, 1.0, 0, x),
    ):
        with pytest.raises(ParameterError, match="'out'"):
            call()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("n_counts", [1, 3, 4, 255])
def test_codes_that_change_while_they_are_counted_stay_inside_the_counts(dtype, n_counts):
    codes, memory = np.zeros(2_000_000, dtype), np.zeros(n_counts + 70_000, np.uint64)
    stop = threading.Event()

    def flip():
        while not stop.is_set():
            codes[-1000:] = np.iinfo(dtype).max
            codes[-1000:] = 0

    thread = threading.Thread(target=flip)
    thread.start()
    try:
        for _ in range(40):
            before = memory[:n_counts].copy()
            try:
                pack.count(codes, memory[:n_counts])
            except DataError:
                assert np.array_equal(memory[:n_counts], before)
    finally:
        stop.set()
        thread.join()
    assert not memory[n_counts:].any()


def test_k_means_stays_inside_its_memory_whatever_the_labels():
    for dtype in (np.float64, np.float32):
        run = cluster.KMeansRun(np.ones((2, 100), dtype), 3)
        run.distances[:] = 5
        for label in (2**31 - 1, 2**30, 3, -1, -(2**31)):
            run.labels[:] = label
            run.update()
        run.labels[:] = 2
        run.label(0, 100)
        assert (run.labels == 0).all()


def test_starts_may_be_watched_while_they_are_searched():
    """The search works on a copy: what another thread writes to the starts is not read."""
    code = """
import threading
import numpy as np
from dpcore.labeling import gram_form
random = np.random.default_rng(0)
shares = random.dirichlet(np.full(64, 0.3), 93)
form = gram_form(shares, random.dirichlet(np.full(5, 0.5), (1, 93)))
starts = random.integers(0, 5, (1, 200, 64), dtype=np.int32)
stop = threading.Event()
def spoil():
    while not stop.is_set():
        starts[...] = 2**31 - 1
thread = threading.Thread(target=spoil)
clean = starts.copy()
thread.start()
for _ in range(20):
    try:
        form.search(starts, np.empty((1, 200)))
    except ValueError:
        pass
stop.set()
thread.join()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
