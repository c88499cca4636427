"""Processes that are started inside of a ledger charge it, whatever starts them."""

import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest
from joblib.externals.loky import ProcessPoolExecutor as LokyExecutor
from joblib.externals.loky import get_reusable_executor
from sklearn.model_selection import cross_val_score

import dpcore
from dpcore.errors import BudgetExceededError, LedgerError
from dpcore.learners import PrivateGLVQ

RELEASE = "import dpcore; dpcore.laplace([1], epsilon=0.5, sensitivity=1)"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "study.sqlite"


def release(epsilon):
    dpcore.laplace([1], epsilon=epsilon, sensitivity=1)


def run(code=RELEASE, **variables):
    return subprocess.run(
        [sys.executable, "-c", code], env=os.environ | variables, capture_output=True, text=True
    )


def spawned():
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))


@pytest.mark.parametrize("executor", [spawned, lambda: LokyExecutor(1)], ids=["spawn", "loky"])
def test_workers_charge_and_are_refused(path, executor):
    with dpcore.Ledger(path, epsilon=1.0) as ledger, executor() as pool:
        pool.submit(release, 0.75).result()
        assert ledger.spent[0] == pytest.approx(0.75)
        with pytest.raises(BudgetExceededError):
            pool.submit(release, 0.75).result()
    assert len(ledger.entries) == 1


@pytest.fixture
def fresh_workers():
    """joblib keeps its workers: none from before the test, none left for the next one."""
    get_reusable_executor().shutdown(wait=True)
    yield
    get_reusable_executor().shutdown(wait=True)


@pytest.mark.usefixtures("fresh_workers")
def test_a_cross_validation_in_two_processes_is_charged_for_every_fit(path):
    generator = np.random.default_rng(0)
    y = generator.integers(0, 2, 300)
    X = generator.normal(3.0 * y[:, None], 1.0, (300, 2))
    model = PrivateGLVQ(epsilon=1.0, classes=[0, 1], bounds=(-4, 7), n_steps=2)
    with dpcore.Ledger(path, epsilon=10.0, delta=1e-3) as ledger:
        cross_val_score(model, X, y, cv=3, n_jobs=1)
        alone = len(ledger.entries)
        cross_val_score(model, X, y, cv=3, n_jobs=2)
    assert len(ledger.entries) == 2 * alone > 0


def test_the_innermost_ledger_is_charged_and_none_after_it(path, tmp_path):
    inner = dpcore.Ledger(tmp_path / "inner.sqlite", epsilon=1.0)
    with dpcore.Ledger(path, epsilon=1.0) as ledger:
        with inner:
            assert run().returncode == 0
        assert run().returncode == 0
    assert run().returncode == 0
    assert (len(inner.entries), len(ledger.entries)) == (1, 1)
    assert "DPCORE_LEDGER" not in os.environ


def test_a_whole_job_is_charged_by_a_variable(path, monkeypatch):
    ledger = dpcore.Ledger(path, epsilon=0.75)
    monkeypatch.setenv("DPCORE_LEDGER", str(path))
    assert run().returncode == 0
    refused = run()
    assert "BudgetExceededError" in refused.stderr
    assert len(ledger.entries) == 1
    with pytest.raises(BudgetExceededError):
        release(0.5)
    with dpcore.Ledger(path.with_name("other.sqlite"), epsilon=1.0) as other:
        release(0.5)
    assert len(other.entries) == 1
    assert os.environ["DPCORE_LEDGER"] == str(path)
    monkeypatch.setenv("DPCORE_LEDGER", str(path.with_name("missing.sqlite")))
    with pytest.raises(LedgerError):
        release(0.5)
