"""Threads over index ranges. Noise is addressed, so the split never changes a result."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TypeVar

__all__ = [
    "for_ranges",
    "get_num_threads",
    "in_order",
    "one_blas_thread",
    "one_thread",
    "set_num_threads",
]

Item = TypeVar("Item")
Result = TypeVar("Result")

_LEAST_RANGE = 1 << 18  # elements that keep one thread busy long enough to be worth starting

_num_threads: int | None = None
_alone = threading.local()


def get_num_threads() -> int:
    """Number of threads that large calls use.

    What `set_num_threads` chose last; otherwise the environment variable ``DPCORE_NUM_THREADS``, or
    ``OMP_NUM_THREADS``, which joblib and others set in their workers; otherwise the number of CPUs
    this process may run on.

    Privacy
    -------
    The number of threads changes no result: noise depends on the index of an element, not on the
    thread that draws it.

    Cost
    ----
    Constant; at most a look at the environment and a system call.
    """
    if getattr(_alone, "active", False):
        return 1
    if _num_threads is not None:
        return _num_threads
    for name in ("DPCORE_NUM_THREADS", "OMP_NUM_THREADS"):
        asked = os.environ.get(name, "")
        if asked.isdecimal() and int(asked) > 0:
            return int(asked)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def set_num_threads(n: int | None) -> None:
    """Choose the number of threads for large calls; None returns to the default.

    Privacy
    -------
    The number of threads changes no result, and so no guarantee.

    Cost
    ----
    Constant: calls that are large enough start their threads themselves, and end them.

    Examples
    --------
    >>> set_num_threads(2)
    >>> get_num_threads()
    2
    >>> set_num_threads(None)
    """
    from dpcore._checks import check_index  # which uses this module

    global _num_threads
    _num_threads = None if n is None else check_index(n, "n", least=1)


@contextmanager
def one_thread() -> Iterator[None]:
    """Calls made inside, by this thread, start no others: for engines that fill the CPUs."""
    before = getattr(_alone, "active", False)
    _alone.active = True
    try:
        yield
    finally:
        _alone.active = before


def for_ranges(work: Callable[[int, int], object], n: int, least: int = _LEAST_RANGE) -> None:
    """Call work(begin, end) on ranges that cover 0 to n, in as many threads as are worth it.

    `least` is the number of elements that is worth a thread. The threads end with the call: none is
    left behind for a fork to lose.
    """
    n_threads = max(1, min(get_num_threads(), n // max(1, least)))
    if n_threads == 1:
        work(0, n)
        return
    edges = [n * i // n_threads for i in range(n_threads + 1)]
    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(work, edges[:-1], edges[1:]))


def in_order(work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """What work(item) gives for each item, in their order whatever the number of threads.

    At most twice as many results as there are threads exist at any time.
    """
    n_threads = min(get_num_threads(), len(items))
    if n_threads <= 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(n_threads) as pool:
        waiting: deque[Future[Result]] = deque()
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) == 2 * n_threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """BLAS in one thread, in the whole process: for products that are too small to share, or that
    run in threads of ours, and for results that no number of threads changes. Needs threadpoolctl,
    which comes with scikit-learn.
    """
    with _libraries().limit(limits=1, user_api="blas"):
        yield


@lru_cache(maxsize=1)
def _libraries() -> Any:
    """The libraries loaded, looked for once: the search takes milliseconds."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
