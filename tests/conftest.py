"""What all tests share: the reference twins on the path, SIMD levels, a guard on the collection."""

import os
import re
import sys
from pathlib import Path

import pytest

from dpcore_ext import rng

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "reference"))

# At least this many tests must be found where everything was asked for.
LEAST_TESTS = {
    "native": 1770,
    "packaging": 400,
    "privacy": 950,
    "robustness": 1180,
    "stats": 350,
    "unit": 5250,
}


# Why a test may be skipped where CI is set: a component that cannot be there, or scikit-learn's own
# checks that do not apply to an estimator.
MAY_BE_SKIPPED = re.compile(
    "eclipse-sumo is not installed"
    "|clang is not installed"
    "|pyspark is not part of the extra 'test'"
    "|the extra 'flower' needs Python 3.11"
    "|SCIPY_ARRAY_API is not set"
    "|is non deterministic"
)


@pytest.fixture
def select_level():
    """Chooses a SIMD level; the one in use before comes back afterwards."""
    before = rng.level()
    yield rng.select
    rng.select(before)


@pytest.fixture
def one_torch_thread():
    """Torch in one thread: small models wait for each other's threads otherwise."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reason in unexpected_skips(terminalreporter):
        terminalreporter.write_line(f"must not be skipped where CI is set: {reason}", red=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if session.exitstatus == pytest.ExitCode.OK and reporter and unexpected_skips(reporter):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def unexpected_skips(reporter: pytest.TerminalReporter) -> list[str]:
    if not os.environ.get("CI"):
        return []
    skipped = reporter.stats.get("skipped", [])
    reasons = {report.longrepr[2] for report in skipped if isinstance(report.longrepr, tuple)}
    return sorted(reason for reason in reasons if not MAY_BE_SKIPPED.search(reason))
