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
.PHONY: help install build demo test native-test native-programs fuzz lint bench wheel wheel-test docs device clean

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
$(VENV)/.extra-lint $(VENV)/.extra-bench $(VENV)/.extra-dist $(VENV)/.extra-docs $(VENV)/.extra-fuzz: | $(VENV)/.extra-test
ifneq ($(filter-out demo,$(MAKECMDGOALS)),)
$(VENV)/.extra-demo: | $(VENV)/.extra-test
endif

install: $(VENV)/.extra-test ## create .venv and install the package in editable mode

build: $(VENV)/.extra-test ## compile what has changed in the native part
	$(BIN)/python setup.py --quiet build_ext --inplace --parallel $(JOBS)

# On its own it installs less than the tests need; asked for with them, it waits for their turn.
demo: $(VENV)/.extra-demo ## install, run the demonstration and write dpcore-report/index.html
	$(BIN)/python setup.py --quiet build_ext --inplace --parallel $(JOBS)
	$(BIN)/dpcore demo $(DEMO_ARGS)

test: native-test build ## run the C tests and the Python tests
	$(BIN)/python -m pytest --numprocesses=$(JOBS) $(PYTEST_ARGS)

lint: $(VENV)/.extra-lint ## check style, types and spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PATH="$(CURDIR)/$(BIN):$$PATH" cython-lint bindings $(wildcard dpcore_ext/*.pxd)
	$(BIN)/codespell

bench: $(VENV)/.extra-bench build ## run the benchmarks
	$(BIN)/dpcore bench --compare $(BENCH_ARGS)

wheel: $(VENV)/.extra-dist ## build the source archive and the wheel into dist
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist .

# Tests of the tree itself, and two that compile C sources of it, have nothing to look at there.
wheel-test: wheel ## run the tests on the installed wheel, in a new environment outside the tree
	@set -e; folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	cp -r tests bench pyproject.toml "$$folder"; \
	$(PYTHON) -m venv "$$folder/venv"; \
	"$$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
		"$$(echo $(CURDIR)/dist/*.whl)[test]"; \
	cd "$$folder" && venv/bin/python -m pytest --numprocesses=$(JOBS) --ignore=tests/packaging \
		--ignore=tests/native/test_device.py --ignore=tests/native/test_fixed_point.py $(PYTEST_ARGS)

docs: $(VENV)/.extra-docs build ## write the reference to build/docs, from docstrings
	$(BIN)/python docs/reference.py --out build/docs

# C tests: each tests/c/*.c is a program of its own, linked with the whole C core under sanitizers.
NATIVE := build/native
NATIVE_CFLAGS := -std=c11 -O1 -g -fno-math-errno -fno-omit-frame-pointer -Wall -Wextra \
	-fsanitize=address,undefined -fno-sanitize-recover=all
NATIVE_CORE := $(patsubst dpcore_ext/src/%.c,$(NATIVE)/src/%.o,\
	$(sort $(wildcard dpcore_ext/src/*.c dpcore_ext/src/device/*.c)))
NATIVE_TESTS := $(patsubst tests/c/%.c,$(NATIVE)/%,$(sort $(wildcard tests/c/*.c)))
# Targets of libFuzzer, here with a driver of their own: seeds and mutations, the same every time.
FUZZ_TARGETS := $(patsubst tests/fuzz/%.c,%,$(sort $(wildcard tests/fuzz/fuzz_*.c)))
FUZZ_PROGRAMS := $(addprefix $(NATIVE)/,$(FUZZ_TARGETS))
# Asked for once, when the first object is compiled: .venv may not exist before.
NUMPY_INCLUDE = $(eval NUMPY_INCLUDE := $$(shell $$(BIN)/python -c 'import numpy; print(numpy.get_include())'))$(NUMPY_INCLUDE)
NATIVE_COMPILE = @mkdir -p $(@D) && $(CC) $(NATIVE_CFLAGS) -MMD -MP -Idpcore_ext/include \
	-Idpcore_ext/src -isystem $(NUMPY_INCLUDE) -c $< -o $@

native-test: $(VENV)/.build-requires ## build and run the C tests with sanitizers
	@$(MAKE) --no-print-directory --jobs=$(JOBS) native-programs
	@set -e; for program in $(NATIVE_TESTS) $(FUZZ_PROGRAMS); do echo "$$program"; "./$$program"; done

native-programs: $(NATIVE_TESTS) $(FUZZ_PROGRAMS)
	@$(if $^,,echo 'tests/c holds no tests')

$(NATIVE_TESTS): $(NATIVE)/%: $(NATIVE)/%.o $(NATIVE_CORE)
	$(CC) $(NATIVE_CFLAGS) $^ -o $@ -lm -pthread

$(FUZZ_PROGRAMS): $(NATIVE)/%: $(NATIVE)/%.o $(NATIVE)/driver.o $(NATIVE_CORE)
	$(CC) $(NATIVE_CFLAGS) $^ -o $@ -lm -pthread

$(NATIVE)/%.o: tests/c/%.c Makefile
	$(NATIVE_COMPILE)

$(NATIVE)/%.o: tests/fuzz/%.c Makefile
	$(NATIVE_COMPILE)

$(NATIVE)/src/%.o: dpcore_ext/src/%.c Makefile
	$(NATIVE_COMPILE)

-include $(wildcard $(NATIVE)/*.d $(NATIVE)/src/*.d $(NATIVE)/src/device/*.d)

# The library for devices: one archive, one header, no Python. CC and AR may be cross compilers.
DEVICE := build/device
DEVICE_CFLAGS ?= -Os
DEVICE_FLAGS := -std=c99 -ffreestanding -fno-stack-protector -fno-math-errno -ffunction-sections \
	-fdata-sections -fstack-usage -Wall -Wextra -DDPC_PORTABLE -DDPC_DEVICE
DEVICE_SOURCES := $(addprefix dpcore_ext/src/,chacha.c encode.c pack.c) \
	$(sort $(wildcard dpcore_ext/src/device/*.c))
DEVICE_OBJECTS := $(patsubst dpcore_ext/src/%.c,$(DEVICE)/objects/%.o,$(DEVICE_SOURCES))

device: $(DEVICE)/libdpcore_device.a $(DEVICE)/include/dpcore/device.h ## build the library for devices

$(DEVICE)/libdpcore_device.a: $(DEVICE_OBJECTS)
	@rm -f $@
	$(AR) rcs $@ $^

$(DEVICE)/include/dpcore/device.h: dpcore_ext/include/dpcore/device.h
	@mkdir -p $(@D) && cp $< $@

$(DEVICE)/objects/%.o: dpcore_ext/src/%.c Makefile
	@mkdir -p $(@D) && $(CC) $(DEVICE_FLAGS) $(DEVICE_CFLAGS) -MMD -MP -Idpcore_ext/include \
		-Idpcore_ext/src -c $< -o $@

-include $(wildcard $(DEVICE)/objects/*.d $(DEVICE)/objects/device/*.d)

# Fuzzing guided by coverage: the Python parsers by Atheris, the C ones by libFuzzer of clang.
FUZZ_SECONDS ?= 60
CLANG ?= clang
FUZZ_CFLAGS := -std=c11 -O1 -g -fno-math-errno -fsanitize=fuzzer,address,undefined \
	-fno-sanitize-recover=all

fuzz: $(VENV)/.extra-fuzz build native-programs ## fuzz the parsers for FUZZ_SECONDS each
	$(BIN)/python tests/fuzz/fuzz_parsers.py -max_total_time=$(FUZZ_SECONDS)
	@command -v $(CLANG) >/dev/null || { echo 'The C targets need clang, which has libFuzzer;' \
		'without it, make native-test runs them on seeds and mutations.'; exit 1; }
	@set -e; for target in $(FUZZ_TARGETS); do \
		mkdir -p "build/fuzz/$$target-corpus"; \
		"./$(NATIVE)/$$target" --seeds "build/fuzz/$$target-corpus"; \
		$(CLANG) $(FUZZ_CFLAGS) -Idpcore_ext/include -Idpcore_ext/src -isystem $(NUMPY_INCLUDE) \
			"tests/fuzz/$$target.c" dpcore_ext/src/*.c dpcore_ext/src/device/*.c \
			-o "build/fuzz/$$target" -lm -pthread; \
		"./build/fuzz/$$target" -max_total_time=$(FUZZ_SECONDS) "build/fuzz/$$target-corpus"; \
	done

clean: ## remove everything that was built, .venv included
	rm -rf $(VENV) build dist dpcore.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .benchmarks
	rm -f dpcore_ext/*.so
	find dpcore dpcore_ext tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
