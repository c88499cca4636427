"""The workers of a Dask cluster as an executor for learners."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import Any

import dask

from dpcore.errors import ParameterError
from dpcore.interop.dask.sealed import Sealed, call

__all__ = ["Workers"]


class Workers:
    """Runs the parts of a learner on the workers of a Dask cluster, with the same result.

    For the parameter ``executor`` of `dpcore.learners.LabelProportionNetwork.fit` and
    `dpcore.learners.PrivateForecaster.fit`.

    Parameters
    ----------
    client : distributed.Client

    Privacy
    -------
    The ledger is charged by the learner, in this process, before a task is sent; workers charge
    nothing. A task is a function of what it is sent, noise included, so one that is run again after
    the death of a worker gives the same bits and releases nothing new. Names of tasks are random,
    and arguments show nowhere. What is not covered: readings travel to the workers, and so does the
    key of the stream where they draw noise, in pickles: use TLS (``Security.temporary()`` for a
    cluster on one machine) and trust whoever runs the scheduler and the workers.

    Cost
    ----
    A task for every item; the scheduler keeps its data until the result is there, so that a lost
    worker can be made up for. Each task uses one thread.

    Examples
    --------
    >>> from distributed import Client
    >>> from dpcore.interop.dask import Workers
    >>> with Client(processes=False, n_workers=1, dashboard_address="127.0.0.1:0") as client:
    ...     Workers(client).map(abs, [-1, 2, -3])
    [1, 2, 3]
    """

    def __init__(self, client: Any) -> None:
        if not callable(getattr(client, "submit", None)):
            raise ParameterError("The 'client' parameter must be a distributed.Client.")
        self._client = client

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """The function of every item, in their order; both are sent by pickle."""
        name = f"dpcore-task-{uuid.uuid4().hex}"
        # Data in the task, not scattered: what only a worker holds is lost with it.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TiB"}):
            futures = [
                self._client.submit(
                    call, Sealed("task", function, private=item), key=(name, i), pure=False
                )
                for i, item in enumerate(items)
            ]
        try:
            results: list[Any] = self._client.gather(futures)
        except BaseException:
            self._client.cancel(futures)
            raise
        return results
