"""Threads over index ranges. Noise is addressed, so the split never changes a result."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

__all__ = ["for_ranges", "get_num_threads", "one_thread", "set_num_threads"]

_LEAST_RANGE = 1 << 18  # elements that keep one thread busy long enough to be worth starting

_num_threads: int | None = None
_alone = threading.local()


def get_num_threads() -> int:
    """Number of threads that large calls use.

    What `set_num_threads` chose last; otherwise the environment variable ``DPCORE_NUM_THREADS``;
    otherwise the number of CPUs this process may run on.

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
    asked = os.environ.get("DPCORE_NUM_THREADS", "")
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
