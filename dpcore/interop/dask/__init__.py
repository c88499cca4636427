"""Local randomisers and learners on Dask clusters: the same bits as on one machine.

>>> import dask.array as da
>>> import dpcore
>>> from dpcore import local
>>> from dpcore.interop import dask as private_dask
>>> noise = dpcore.Noise.from_key(bytes(range(32))).stream("ages", 2026)
>>> mechanism = local.make("hm-j", epsilon=2.0, lower=0, upper=100)
>>> ages = da.full(100_000, 40.0, chunks=25_000)
>>> codes = private_dask.encode(ages, mechanism, noise=noise)
>>> bool((codes.compute() == mechanism.encode(ages.compute(), noise=noise)).all())
True
>>> low, high = private_dask.estimate(codes, mechanism).interval(0.999999)
>>> bool(low < 40 < high)
True

The noise of an element is a function of the key, the stream and the index of the element in the
whole collection, so a task that is run again, after the death of a worker or because a result was
dropped, releases nothing new. Two things follow. The noise must be a named stream of
`dpcore.Noise.from_key`. And a collection must hold the same values in the same places whenever it
is computed: read from files that do not change, and not shuffled on the way. Where that is in
doubt, write it to files first.

A ledger in force is charged once, in the calling process, when a function is called: before any
task runs, and even if none ever does. Workers charge nothing.

The key of the stream (not the one it was derived from) travels to the scheduler and the workers, in
pickles, and so do data that the graph holds, such as those of ``dask.array.from_array``. The key
shows in no name, display or log. Use TLS: ``Security.temporary()`` for a cluster on one machine,
certificates of your own otherwise. Whoever runs the scheduler or a worker can read both, and must
be trusted with the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import dask.array as da

from dpcore._checks import check_flag
from dpcore.errors import ParameterError
from dpcore.interop.dask import arrays
from dpcore.interop.dask.workers import Workers
from dpcore.noise import Noise

if TYPE_CHECKING:
    from dpcore.local import GRR, OUE, Mechanism
    from dpcore.tables import TablePlan

__all__ = ["Workers", "encode", "estimate", "privatize"]


def encode(array: da.Array, mechanism: Mechanism | GRR | OUE, *, noise: Noise) -> da.Array:
    """Randomise an array into output codes, block by block.

    Parameters
    ----------
    array : dask.array.Array
        Of NumPy blocks with known sizes, cut along the first axis only, so that a block is a range
        of elements in C order.
    mechanism : Mechanism, GRR or OUE
    noise : Noise
        A named stream of `dpcore.Noise.from_key`.

    Returns
    -------
    dask.array.Array
        Lazy; equal to ``mechanism.encode`` of the whole array with the same noise.

    Privacy
    -------
    As for the mechanism: epsilon-local-DP of every value by itself. See the head of this module for
    the ledger, the key and retries.

    Cost
    ----
    One pass over each block, on one thread; codes of one or two bytes.
    """
    return arrays.encode(array, mechanism, noise=noise)


def privatize(
    data: Any,
    how: Mechanism | TablePlan,
    *,
    noise: Noise,
    lengths: Sequence[int] | None = None,
    extra: str = "error",
    values: bool = False,
) -> Any:
    """Randomise an array into numbers, or a dataframe into reports.

    Parameters
    ----------
    data : dask.array.Array or dask.dataframe.DataFrame
        An array as for `encode`.
    how : Mechanism or TablePlan
        A mechanism for an array, a plan for a dataframe.
    noise : Noise
        A named stream of `dpcore.Noise.from_key`; for tables see `dpcore.tables.table_stream`.
    lengths : sequence of int, optional
        Rows of every partition of the optimized dataframe, where they are known. By default they
        are computed once, now. They fix the index of each row; a partition that turns out to have
        another length is refused.
    extra, values
        For dataframes; as for `dpcore.tables.TablePlan.privatize`.

    Returns
    -------
    dask.array.Array or dask.dataframe.DataFrame
        Lazy; equal to ``how.privatize`` of the whole with the same noise. The columns of a
        dataframe are of Arrow types; its index is not kept but numbers the rows.

    Privacy
    -------
    As for the mechanism or the plan. See the head of this module for the ledger, the key and
    retries.

    Cost
    ----
    One pass over each part, on one thread; before that, a pass that counts rows where `lengths` are
    not given.

    Examples
    --------
    >>> import dask.dataframe as dd, pandas as pd
    >>> import dpcore
    >>> from dpcore.interop import dask as private_dask
    >>> from dpcore.tables import TablePlan, table_stream
    >>> plan = TablePlan({"age": {"lower": 0, "upper": 100}}, epsilon=2.0)
    >>> frame = dd.from_pandas(pd.DataFrame({"age": [40.0] * 100_000}), npartitions=4)
    >>> noise = table_stream(dpcore.Noise.from_key(bytes(range(32))), "survey")
    >>> reports = private_dask.privatize(frame, plan, noise=noise)
    >>> low, high = private_dask.estimate(reports, plan)["age"].interval(0.999999)
    >>> bool(low < 40 < high)
    True
    """
    if isinstance(data, da.Array):
        if lengths is not None or extra != "error" or values:
            raise ParameterError(
                "The 'lengths', 'extra' and 'values' parameters are for dataframes only."
            )
        return arrays.privatize(data, how, noise=noise)  # type: ignore[arg-type]
    from dpcore.interop.dask import frames

    return frames.privatize(data, how, noise=noise, lengths=lengths, extra=extra, values=values)  # type: ignore[arg-type]


def estimate(
    data: Any,
    how: Mechanism | GRR | OUE | TablePlan,
    *,
    compute: bool = True,
    values: bool | None = None,
) -> Any:
    """Means and frequencies from codes or reports: counted on the workers, added up in a tree.

    Parameters
    ----------
    data : dask.array.Array or dask.dataframe.DataFrame
        What `encode` gave, in any chunks, or what `privatize` of a dataframe gave.
    how : Mechanism, GRR, OUE or TablePlan
        What it was made with.
    compute : bool
        False for a `dask.delayed.Delayed` of the result.
    values : bool, optional
        Whether a dataframe holds values instead of codes.

    Returns
    -------
    Estimate, Frequencies or TupleEstimate
        Equal to ``how.estimate`` of the whole.

    Privacy
    -------
    Post-processing of the codes.

    Cost
    ----
    One pass over each part; some hundred bytes leave it.
    """
    check_flag(compute, "compute")
    if values is not None:
        check_flag(values, "values")
    if isinstance(data, da.Array):
        return arrays.estimate(data, how, compute=compute)  # type: ignore[arg-type]
    from dpcore.interop.dask import frames

    return frames.estimate(data, how, compute=compute, values=values)  # type: ignore[arg-type]
