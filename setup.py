"""The extension table. Everything else about the project is in pyproject.toml."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from glob import glob
from pathlib import Path

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.modified import newer_group


def c_files(*patterns):
    return sorted(path for pattern in patterns for path in glob(f"dpcore_ext/src/{pattern}"))


# module: (Cython source, C sources). A C file belongs to exactly one module: its static state,
# such as the choice of SIMD level, would exist twice otherwise.
EXTENSIONS = {
    "dpcore_ext.rng": (
        "bindings/rng.pyx",
        c_files("chacha.c", "dispatch.c", "entropy.c", "level_*.c"),
    ),
    "dpcore_ext.cluster": ("bindings/cluster.pyx", c_files("cluster.c")),
    "dpcore_ext.encode": ("bindings/encode.pyx", c_files("encode.c")),
    "dpcore_ext.labeling": ("bindings/labeling.pyx", c_files("labeling.c")),
    "dpcore_ext.pack": ("bindings/pack.pyx", c_files("pack.c")),
    "dpcore_ext.secagg": ("bindings/secagg.pyx", c_files("mask.c", "shamir.c")),
    "dpcore_ext.recurrent": ("bindings/recurrent.pyx", []),
    "dpcore_ext.sample": ("bindings/sample.pyx", c_files("fixed.c", "sample.c")),
}

INCLUDE_DIRS = ["dpcore_ext/include", "dpcore_ext/src", numpy.get_include()]
HEADERS = sorted(glob("dpcore_ext/**/*.h", recursive=True)) + c_files("kernels/*.inc")
CFLAGS = ["-O3", "-std=c11", "-fno-math-errno", "-Wall", "-Wextra", "-fvisibility=hidden"]
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
    "embedsignature": True,
}


class BuildExt(build_ext):
    """Compiles only the objects that are out of date, several at a time."""

    def finalize_options(self):
        super().finalize_options()
        # One place for objects, whether the build is in place, editable or for a wheel.
        self.build_temp = f"build/temp-{sys.implementation.cache_tag}"

    def build_extensions(self):
        generated = cythonize(
            self.extensions, build_dir="build/cython", compiler_directives=DIRECTIVES
        )
        for ext, module in zip(self.extensions, generated, strict=True):
            ext.sources = module.sources
        if self.compiler.compiler_type == "msvc":
            return super().build_extensions()

        flags = list(CFLAGS)
        if os.environ.get("DPCORE_NATIVE") == "1":
            print("DPCORE_NATIVE=1: built for this CPU only, the result is not portable")
            flags.append("-march=native")
        for ext in self.extensions:
            ext.extra_compile_args = flags
            ext.depends = [*HEADERS, self.record_settings(ext)]

        self.parallel = self.parallel or min(2, os.cpu_count() or 1)
        compile_all = self.compiler.compile
        with ThreadPoolExecutor(self.parallel) as pool:

            def compile_changed(sources, depends, output_dir, **options):
                def compile_one(source):
                    [obj] = self.compiler.object_filenames([source], output_dir=output_dir)
                    if newer_group([source, *depends], obj):
                        compile_all([source], output_dir=output_dir, **options)
                    return obj

                return list(pool.map(compile_one, sources))

            self.compiler.compile = compile_changed
            super().build_extensions()

    def record_settings(self, ext):
        """Keep what objects depend on besides files in a file that only a change touches."""
        compiler = self.compiler.compiler_so
        text = repr((compiler, ext.extra_compile_args, ext.sources, numpy.__version__))
        record = Path(self.build_temp, f"{ext.name}.settings")
        if not record.exists() or record.read_text() != text:
            record.parent.mkdir(parents=True, exist_ok=True)
            record.write_text(text)
        return str(record)


if sorted(path for _, paths in EXTENSIONS.values() for path in paths) != c_files("*.c"):
    raise SystemExit("setup.py: the table must name each file of dpcore_ext/src exactly once")

setup(
    cmdclass={"build_ext": BuildExt},
    ext_modules=[
        Extension(name, [pyx, *sources], include_dirs=INCLUDE_DIRS, depends=HEADERS)
        for name, (pyx, sources) in EXTENSIONS.items()
    ],
)
