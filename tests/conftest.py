"""What all tests share: the reference twins on the path, SIMD levels, a guard on the collection."""

import sys
from pathlib import Path

import pytest

from dpcore_ext import rng

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "reference"))

# At least this many tests must be found where everything was asked for.
LEAST_TESTS = {"native": 1700, "packaging": 250, "privacy": 950, "stats": 350, "unit": 4750}


@pytest.fixture
def select_level():
    """Chooses a SIMD level; the one in use before comes back afterwards."""
    before = rng.level()
    yield rng.select
    rng.select(before)


def asked_for_everything(config: pytest.Config) -> bool:
    narrowed = ("keyword", "markexpr", "deselect", "ignore", "ignore_glob", "lf")
    # A worker of pytest-xdist is given the paths that were found for the command.
    paths = [Path(path).resolve() for path in config.args]
    everything = config.args_source == pytest.Config.ArgsSource.TESTPATHS or paths == [HERE]
    return everything and not any(config.getoption(name, None) for name in narrowed)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not asked_for_everything(config):
        return
    for folder, least in LEAST_TESTS.items():
        found = sum((HERE / folder) in item.path.parents for item in items)
        if found < least:
            raise pytest.UsageError(
                f"tests/{folder}: found {found} tests, expected {least} or more"
            )
