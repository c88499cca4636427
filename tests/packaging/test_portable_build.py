"""The C core as a plain C99 compiler sees it: no vectors, no 128-bit type, no x86 levels."""

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from packaging_support import ROOT, run

SOURCES = sorted((ROOT / "dpcore_ext" / "src").rglob("*.c"))
PROGRAMS = sorted((ROOT / "tests" / "c").glob("*.c"))
COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]
STRICT = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O1", "-DDPC_PORTABLE"]
INCLUDES = ["-I", ROOT / "dpcore_ext/include", "-I", ROOT / "dpcore_ext/src"]


@pytest.fixture(scope="module", params=COMPILERS)
def portable_objects(request, tmp_path_factory):
    """The compiler, and the objects it made of the core."""
    folder = tmp_path_factory.mktemp(request.param)

    def compile_one(source):
        target = folder / f"{source.stem}.o"
        headers = [*INCLUDES, "-isystem", np.get_include()]
        run([request.param, *STRICT, *headers, "-c", source, "-o", target])
        return target

    with ThreadPoolExecutor(2) as pool:
        return request.param, list(pool.map(compile_one, SOURCES))


def test_gcc_is_there():
    assert "gcc" in COMPILERS


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_the_c_tests_pass_on_a_portable_build(portable_objects, program, tmp_path):
    compiler, objects = portable_objects
    binary = tmp_path / program.stem
    headers = [*INCLUDES, "-isystem", np.get_include()]
    run([compiler, *STRICT, *headers, program, *objects, "-o", binary, "-lm", "-pthread"])
    done = subprocess.run([binary], capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_portable_build_has_the_baseline_alone(portable_objects, tmp_path):
    compiler, objects = portable_objects
    source, binary = tmp_path / "count.c", tmp_path / "count"
    source.write_text(
        '#include <stdio.h>\n#include "dpcore/simd.h"\n'
        "int main(void) { for (int i = 0; i < DPC_LEVEL_END; i++) "
        'printf("%d", dpc_kernels_at((enum dpc_level)i) != NULL); return 0; }\n'
    )
    run([compiler, *STRICT, *INCLUDES, source, *objects, "-o", binary, "-lm", "-pthread"])
    assert set(run([binary])[1:]) == {"0"}
    assert run([binary])[0] == "1"


WIPED = """
#include "dpcore/chacha.h"
void draw(uint8_t *scratch);
void call(void) { uint8_t scratch[65536]; draw(scratch); %s(scratch, sizeof scratch); }
static inline void forgotten(void *p, size_t n) { memset(p, 0, n); }
"""


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("flags", [[], ["-DDPC_PORTABLE"]], ids=["gnu", "portable"])
def test_wiping_scratch_space_survives_the_optimiser(compiler, flags, tmp_path):
    """The instructions after the call of draw, against those of a memset that nobody reads."""

    def after_draw(function, *options):
        source, target = tmp_path / f"{function}.c", tmp_path / f"{function}.s"
        lines = (WIPED % function).splitlines()
        source.write_text("\n".join([*lines[:3], lines[4], lines[3], ""]))
        run([compiler, "-O3", "-std=c11", *options, *INCLUDES, "-S", source, "-o", target])
        text = target.read_text()
        return text[text.index("draw") :].count("\n")

    assert after_draw("dpc_wipe", *flags) >= after_draw("forgotten") + 3
