"""Threads: results in order, few at a time, and how many threads there are."""

import threading
import time

import pytest
from threadpoolctl import threadpool_info

import dpcore
from dpcore._parallel import in_order, one_blas_thread, one_thread


@pytest.fixture(autouse=True)
def three_threads():
    dpcore.set_num_threads(3)
    yield
    dpcore.set_num_threads(None)


def test_results_come_in_order_from_several_threads():
    names = set()
    together = threading.Barrier(3)

    def work(i):
        if i < 3:
            together.wait(30)  # breaks unless three threads are at work
        names.add(threading.get_ident())
        time.sleep(0.001 * (i % 3))
        return i * i

    assert list(in_order(work, range(50))) == [i * i for i in range(50)]
    assert len(names) == 3


def test_few_results_wait_for_a_slow_caller():
    begun = []
    results = in_order(begun.append, range(100))
    for taken in range(1, 20):
        next(results)
        time.sleep(0.001)
        assert len(begun) < taken + 2 * 3


def test_what_is_raised_reaches_the_caller_and_ends_the_work():
    begun = []

    def work(i):
        begun.append(i)
        if i == 4:
            raise RuntimeError("the fifth")

    with pytest.raises(RuntimeError, match="the fifth"):
        list(in_order(work, range(1000)))
    assert len(begun) < 20


def test_one_thread_works_where_it_is_called():
    with one_thread():
        found = set(in_order(lambda _: threading.get_ident(), range(5)))
    assert found == {threading.get_ident()}


def test_blas_gets_its_threads_back():
    def blas():
        return [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]

    before = blas()
    with one_blas_thread():
        assert set(blas()) == {1}
    assert blas() == before


def test_the_environment_chooses_where_nobody_else_does(monkeypatch):
    dpcore.set_num_threads(None)
    for name in ("DPCORE_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    cpus = dpcore.get_num_threads()
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert dpcore.get_num_threads() == 5
    monkeypatch.setenv("DPCORE_NUM_THREADS", "7")
    assert dpcore.get_num_threads() == 7
    monkeypatch.setenv("DPCORE_NUM_THREADS", "several")  # not a number: as if it were not there
    assert dpcore.get_num_threads() == 5
    monkeypatch.setenv("OMP_NUM_THREADS", "4,2")
    monkeypatch.delenv("DPCORE_NUM_THREADS")
    assert dpcore.get_num_threads() == cpus
    dpcore.set_num_threads(2)
    assert dpcore.get_num_threads() == 2
