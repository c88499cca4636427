# Needs Python 3.10 or newer, a C compiler and make. Everything is kept in .venv and build.

PYTHON ?= python3
CC ?= cc
JOBS ?= 2

VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# Every pip below, those that pip starts for isolated builds included, uses the pinned versions.
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_BUILD_CONSTRAINT := $(CURDIR)/constraints.txt

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: help install build demo test native-test native-programs lint bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' Makefile

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit("dpcore needs Python 3.10 or newer; set PYTHON" if sys.version_info < (3, 10) else 0)'
	$(PYTHON) -m venv $(VENV)
	@touch $@

# The build requirements live in .venv: in-place builds need them there, and installing without
# isolation compiles against the very numpy that runs the tests.
$(VENV)/.build-requires: $(VENV)/.created pyproject.toml constraints.txt
	$(PIP_INSTALL) setuptools Cython numpy
	@touch $@

# One stamp for each extra. They share .venv, so the others wait for test.
$(VENV)/.extra-%: $(VENV)/.build-requires pyproject.toml setup.py constraints.txt
	$(PIP_INSTALL) --no-build-isolation --editable '.[$*]'
	@touch $@
$(VENV)/.extra-lint $(VENV)/.extra-bench: | $(VENV)/.extra-test

install: $(VENV)/.extra-test ## create .venv and install the package in editable mode

build: $(VENV)/.extra-test ## compile what has changed in the native part
	$(BIN)/python setup.py --quiet build_ext --inplace --parallel $(JOBS)

demo: install build ## install and run the demonstration
	$(BIN)/dpcore demo

test: native-test build ## run the C tests and the Python tests
	$(BIN)/python -m pytest --numprocesses=$(JOBS) $(PYTEST_ARGS)

lint: $(VENV)/.extra-lint ## check style, types and spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PATH="$(CURDIR)/$(BIN):$$PATH" cython-lint bindings $(wildcard dpcore_ext/*.pxd)
	$(BIN)/codespell

bench: $(VENV)/.extra-bench build ## run the benchmarks
	$(BIN)/python -m bench $(BENCH_ARGS)

# C tests: each tests/c/*.c is a program of its own, linked with the whole C core under sanitizers.
NATIVE := build/native
NATIVE_CFLAGS := -std=c11 -O1 -g -fno-math-errno -fno-omit-frame-pointer -Wall -Wextra \
	-fsanitize=address,undefined -fno-sanitize-recover=all
NATIVE_CORE := $(patsubst dpcore_ext/src/%.c,$(NATIVE)/src/%.o,$(sort $(wildcard dpcore_ext/src/*.c)))
NATIVE_TESTS := $(patsubst tests/c/%.c,$(NATIVE)/%,$(sort $(wildcard tests/c/*.c)))
# Asked for once, when the first object is compiled: .venv may not exist before.
NUMPY_INCLUDE = $(eval NUMPY_INCLUDE := $$(shell $$(BIN)/python -c 'import numpy; print(numpy.get_include())'))$(NUMPY_INCLUDE)
NATIVE_COMPILE = @mkdir -p $(@D) && $(CC) $(NATIVE_CFLAGS) -MMD -MP -Idpcore_ext/include \
	-Idpcore_ext/src -isystem $(NUMPY_INCLUDE) -c $< -o $@

native-test: $(VENV)/.build-requires ## build and run the C tests with sanitizers
	@$(MAKE) --no-print-directory --jobs=$(JOBS) native-programs
	@set -e; for program in $(NATIVE_TESTS); do echo "$$program"; "./$$program"; done

native-programs: $(NATIVE_TESTS)
	@$(if $^,,echo 'tests/c holds no tests')

$(NATIVE_TESTS): $(NATIVE)/%: $(NATIVE)/%.o $(NATIVE_CORE)
	$(CC) $(NATIVE_CFLAGS) $^ -o $@ -lm -pthread

$(NATIVE)/%.o: tests/c/%.c Makefile
	$(NATIVE_COMPILE)

$(NATIVE)/src/%.o: dpcore_ext/src/%.c Makefile
	$(NATIVE_COMPILE)

-include $(wildcard $(NATIVE)/*.d $(NATIVE)/src/*.d)

clean: ## remove everything that was built, .venv included
	rm -rf $(VENV) build dist dpcore.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .benchmarks
	rm -f dpcore_ext/*.so
	find dpcore dpcore_ext tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
