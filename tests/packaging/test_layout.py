"""What lies where, who imports whom, and what a wheel and a downstream build see."""

import ast
import re
import shutil
import sys
import zipfile
from pathlib import Path

import pytest
from packaging_support import BINDINGS, ROOT, run

import dpcore

HEAVY = {"torch", "numba", "sklearn", "scipy"}
# The parts of dpcore that exist to use heavy packages, and are not imported with it.
ON_TOP = ("learners", "federated", "interop", "_jit")


# Stems


def test_every_binding_has_its_declarations_and_its_stub():
    declared = {p.stem for p in (ROOT / "dpcore_ext").glob("*.pxd")} - {"__init__"}
    public = {stem for stem in declared if not stem.startswith("_c_")}
    assert BINDINGS
    assert public == set(BINDINGS)
    assert {p.stem for p in (ROOT / "dpcore_ext").glob("*.pyi")} == set(BINDINGS)


def test_bindings_hold_cython_only_and_the_core_holds_none():
    names = {p.suffix for p in (ROOT / "bindings").iterdir() if p.is_file()} - {".md"}
    assert names == {".pyx"}
    assert not list((ROOT / "dpcore_ext").rglob("*.pyx"))
    assert not list((ROOT / "dpcore").rglob("*.pyx"))


def test_declarations_for_others_contain_no_extern_block():
    """S5 of the style: whoever cimports them needs no C names of ours in scope."""
    for stem in BINDINGS:
        text = (ROOT / "dpcore_ext" / f"{stem}.pxd").read_text()
        assert "extern from" not in text, stem


def test_public_headers_include_public_headers_only():
    for header in (ROOT / "dpcore_ext/include/dpcore").glob("*.h"):
        for name in re.findall(r'#include "([^"]+)"', header.read_text()):
            assert name.startswith("dpcore/"), (header.name, name)


# Layers


def imports_of(tree, *, top_level_only):
    """Full names of the modules that a syntax tree imports; names with a dot first are relative."""
    found, waiting = set(), list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            found.add(module)
            found.update(f"{module}.{alias.name}" for alias in node.names)
        elif top_level_only and isinstance(
            node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
        ):
            continue
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting.extend(node.orelse)
            continue
        waiting.extend(ast.iter_child_nodes(node))
    return found


def imports(path, **options):
    return imports_of(ast.parse(path.read_text()), **options)


def roots(names):
    return {name.split(".")[0] for name in names}


def modules(package):
    paths = sorted((ROOT / package).rglob("*.py"))
    assert paths
    return paths


def is_core(path):
    parts = path.relative_to(ROOT / "dpcore").with_suffix("").parts
    return parts[0] not in ON_TOP


@pytest.mark.parametrize(
    "source",
    [
        "import torch",
        "import os\nimport torch.nn as nn",
        "from torch import nn",
        "try:\n    import torch\nexcept ImportError:\n    torch = None",
        "class A:\n    import torch",
        "if True:\n    from torch.nn import Module",
        "with a:\n    import torch",
    ],
)
def test_a_planted_import_is_found(source):
    assert "torch" in roots(imports_of(ast.parse(source), top_level_only=True))


def test_an_import_inside_a_function_counts_only_where_asked():
    tree = ast.parse("def f():\n    import torch")
    assert "torch" not in roots(imports_of(tree, top_level_only=True))
    assert "torch" in roots(imports_of(tree, top_level_only=False))


@pytest.mark.parametrize("path", [p for p in modules("dpcore") if is_core(p)], ids=lambda p: p.stem)
def test_core_modules_import_no_heavy_package_and_nothing_above_them(path):
    names = imports(path, top_level_only=True)
    assert not roots(names) & HEAVY
    above = tuple(f"dpcore.{part}" for part in ON_TOP)
    assert not [name for name in names if name.startswith(above)]
    assert not [name for name in names if name.startswith(".")], "relative import"


def test_nothing_imports_the_command_line_but_the_main_module():
    for path in modules("dpcore"):
        names = imports(path, top_level_only=False)
        assert "dpcore.cli" not in names or path.name == "__main__.py", path


def test_the_native_package_imports_nothing_of_dpcore():
    paths = [*modules("dpcore_ext"), *(ROOT / "dpcore_ext").glob("*.pyi")]
    for path in paths:
        assert "dpcore" not in roots(imports(path, top_level_only=False)), path


@pytest.mark.parametrize("stem", BINDINGS)
def test_bindings_import_nothing_of_dpcore(stem):
    statement = re.compile(r"^\s*(?:from|import|cimport)\s+([\w.]+)", re.M)
    for path in (ROOT / "bindings" / f"{stem}.pyx", ROOT / "dpcore_ext" / f"{stem}.pxd"):
        names = statement.findall(path.read_text())
        assert names or path.suffix == ".pxd"
        assert not [name for name in names if name.split(".")[0] == "dpcore"], path


def test_the_core_includes_neither_python_nor_malloc():
    sources = [p for p in (ROOT / "dpcore_ext/src").rglob("*") if p.suffix in {".c", ".h", ".inc"}]
    assert len(sources) > 5
    for path in sources:
        text = path.read_text()
        assert "Python.h" not in text, path
        assert not re.search(r"\b(malloc|calloc|realloc)\s*\(", text), path


# Import


IMPORT_PROGRAM = """
import sys, time
before = time.process_time()
import dpcore
print(time.process_time() - before, *sorted({name.split(".")[0] for name in sys.modules}))
"""


def test_importing_dpcore_is_fast_and_brings_no_heavy_package():
    seconds = []
    for _ in range(3):
        taken, *loaded = run([sys.executable, "-c", IMPORT_PROGRAM]).split()
        assert "dpcore_ext" in loaded
        assert not HEAVY & set(loaded)
        seconds.append(float(taken))
    assert min(seconds) < 0.3


def test_every_public_name_exists():
    for name in dpcore.__all__:
        assert hasattr(dpcore, name), name


def test_get_include_holds_the_headers():
    folder = Path(dpcore.get_include())
    assert (folder / "dpcore/sample.h").is_file()
    assert (folder / "dpcore/chacha.h").is_file()


# Downstream


DOWNSTREAM = """
# cython: language_level=3, boundscheck=False, wraparound=False
from cython.parallel cimport prange
from libc.stdint cimport int64_t, uint8_t, uint64_t

from dpcore_ext.encode cimport Rows, encode_f64
from dpcore_ext.pack cimport pack_u8
from dpcore_ext.rng cimport Key, kernels
from dpcore_ext.sample cimport DigitLaw, GaussLaw, Law, Table, add_digits, add_gauss


def blocks(Key key not None, uint64_t nonce, uint64_t counter, uint8_t[::1] out not None):
    with nogil:
        kernels().keystream(&key.key, nonce, counter, out.shape[0] // 64, &out[0])


def draw(Law law not None, Key key not None, uint64_t start, int64_t[::1] out not None):
    with nogil:
        law.fill(&key.key, start, NULL, &out[0], out.shape[0])


def reports(Rows rows not None, Key key not None, const double[:, ::1] x not None, int n_bits,
            uint8_t[:, ::1] codes not None, uint8_t[:, ::1] packed not None):
    # Every row encoded and packed by whichever thread comes first; the number of refusals.
    cdef Py_ssize_t i, n = x.shape[1]
    cdef int failed = 0
    for i in prange(x.shape[0], nogil=True, schedule="dynamic", num_threads=2):
        failed += encode_f64(&key.key, &rows.rows, rows.cut, <uint64_t>(i * n), &x[i, 0],
                             &codes[i, 0], <size_t>n) != 0
        failed += pack_u8(&codes[i, 0], <size_t>n, <unsigned>n_bits, &packed[i, 0]) != 0
    return failed


def noisy_rows(law, Key key not None, int64_t[:, ::1] x not None):
    # Noise added to every row in place; the number of refusals.
    cdef Py_ssize_t i, n = x.shape[1]
    cdef int failed = 0
    cdef DigitLaw digits
    cdef GaussLaw gauss
    if isinstance(law, DigitLaw):
        digits = law
        for i in prange(x.shape[0], nogil=True, schedule="dynamic", num_threads=2):
            failed += add_digits(&key.key, &digits.law, <uint64_t>(i * n), &x[i, 0], &x[i, 0],
                                 <size_t>n) != 0
    else:
        gauss = law
        for i in prange(x.shape[0], nogil=True, schedule="dynamic", num_threads=2):
            failed += add_gauss(&key.key, &gauss.law, <uint64_t>(i * n), &x[i, 0], &x[i, 0],
                                <size_t>n) != 0
    return failed


def thresholds(Table table not None):
    return table.table.n_thresholds


def digits(DigitLaw law not None):
    return law.law.n_digits


def cell_width(GaussLaw law not None):
    return law.law.bulk.shift
"""

DOWNSTREAM_SETUP = """
import dpcore
import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup

include = [dpcore.get_include(), numpy.get_include()]
setup(
    name="downstream",
    ext_modules=cythonize([
        Extension("downstream", ["downstream.pyx"], include_dirs=include,
                  extra_compile_args=["-fopenmp"], extra_link_args=["-fopenmp"])
    ]),
)
"""

DOWNSTREAM_PROGRAM = """
from fractions import Fraction
import numpy as np
import downstream
import dpcore.wire
from dpcore import _laws, local
from dpcore_ext.rng import Key, keystream

key = Key.from_bytes(bytes(range(32)))
ours, theirs = np.empty(640, np.uint8), np.zeros(640, np.uint8)
keystream(key, 3, 4, ours)
downstream.blocks(key, 3, 4, theirs)
assert np.array_equal(ours, theirs)
laplace = _laws.discrete_laplace(Fraction(1, 1000))
for law in (laplace, _laws.rounded_gaussian(Fraction(1000))):
    ours, theirs = np.empty(300, np.int64), np.zeros(300, np.int64)
    law.native.add_to(key, 7, None, ours)
    downstream.draw(law.native, key, 7, theirs)
    assert np.array_equal(ours, theirs)
    block = np.arange(3000).reshape(30, 100)
    expected = np.empty(3000, np.int64)
    law.native.add_to(key, 0, np.arange(3000), expected)
    assert downstream.noisy_rows(law.native, key, block) == 0
    assert np.array_equal(block.reshape(-1), expected)
    block[3, 4] = 2**62 + 1
    assert downstream.noisy_rows(law.native, key, block) == 1

mechanism = local.ThreeOutputs(1.0)
x = np.random.default_rng(0).uniform(-1.2, 1.2, (64, 500))
codes, packed = np.empty(x.shape, np.uint8), np.zeros((64, 125), np.uint8)
noise = dpcore.Noise.from_key(bytes(range(32))).stream("cython")
key = noise.key_for("local", mechanism._fingerprint)
assert downstream.reports(mechanism._rows, key, x, mechanism.n_bits, codes, packed) == 0
assert np.array_equal(codes, mechanism.encode(x, noise=noise))
message = dpcore.wire.unpack(mechanism.pack(codes.reshape(-1)))
assert packed.tobytes() == bytes(message.payload)
x[5, 5] = np.nan
assert downstream.reports(mechanism._rows, key, x, mechanism.n_bits, codes, packed) == 1
assert downstream.thresholds(laplace.top.native) == len(laplace.top.thresholds)
assert downstream.digits(laplace.native) == len(laplace.digits)
assert downstream.cell_width(_laws.discrete_gaussian(Fraction(10**6)).native) > 1
print("ok")
"""


@pytest.mark.slow
def test_other_cython_code_can_use_the_declarations(tmp_path):
    (tmp_path / "downstream.pyx").write_text(DOWNSTREAM)
    (tmp_path / "setup.py").write_text(DOWNSTREAM_SETUP)
    build = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    run(build, cwd=tmp_path, env={"CFLAGS": "-O0 -g0"})
    assert run([sys.executable, "-c", DOWNSTREAM_PROGRAM], cwd=tmp_path).strip() == "ok"


# Wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel built from a copy of the tree that holds nothing compiled."""
    folder = tmp_path_factory.mktemp("wheel")
    # Not the whole tree: other tests make and remove files in it meanwhile.
    ignored = shutil.ignore_patterns("*.so", "__pycache__")
    for name in ("dpcore", "dpcore_ext", "bindings"):
        shutil.copytree(ROOT / name, folder / "tree" / name, ignore=ignored)
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "tree")
    options = ["--no-build-isolation", "--no-deps", "--no-index", "--quiet"]
    run(
        [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", folder / "dist", "."],
        cwd=folder / "tree",
        env={"PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )
    [path] = (folder / "dist").iterdir()
    return path, folder / "tree"


@pytest.mark.slow
def test_a_wheel_contains_the_two_packages_and_nothing_else(wheel):
    path, tree = wheel
    names = zipfile.ZipFile(path).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"dpcore", "dpcore_ext"}
    suffixes = {Path(name).suffix for name in names if ".dist-info" not in name}
    assert suffixes <= {".py", ".pyi", ".pxd", ".h", ".so", ".typed", ".md", ".npz", ""}
    for stem in (path.stem for path in (tree / "bindings").glob("*.pyx")):
        assert f"dpcore_ext/{stem}.pxd" in names
        assert f"dpcore_ext/{stem}.pyi" in names
        assert [name for name in names if re.fullmatch(rf"dpcore_ext/{stem}\..*\.so", name)]
    headers = {p.name for p in (tree / "dpcore_ext/include/dpcore").glob("*.h")}
    assert {f"dpcore_ext/include/dpcore/{name}" for name in headers} <= set(names)
    assert {"dpcore/py.typed", "dpcore_ext/py.typed"} <= set(names)
    for module in (tree / "dpcore").rglob("*.py"):
        assert str(module.relative_to(tree)) in names


@pytest.mark.slow
def test_a_wheel_works_without_the_tree(wheel, tmp_path):
    zipfile.ZipFile(wheel[0]).extractall(tmp_path)
    program = (
        "import dpcore, dpcore_ext; print(dpcore.__file__, dpcore_ext.__file__);"
        "print(dpcore.laplace([1, 2], epsilon=1, sensitivity=1).shape)"
    )
    output = run([sys.executable, "-c", program], cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    places, shape = output.splitlines()
    assert all(Path(place).is_relative_to(tmp_path) for place in places.split())
    assert shape == "(2,)"
