"""Columns of Arrow: what is refused costs nothing, and no message shows a value."""

import math

import numpy as np
import pyarrow as pa
import pytest

import dpcore
from dpcore import Noise, local
from dpcore.errors import DataError
from dpcore.interop import arrow

MECHANISM = local.make("hm-j", 2.0, 0, 100)


def noise():
    return Noise.from_key(bytes(range(32))).stream("arrow")


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_that_are_not_finite_cost_nothing(tmp_path, bad, dtype):
    values = np.full(200_000, 40.0, dtype)
    values[-1] = bad
    chunks = pa.chunked_array([values[:1000], values[1000:]])
    with dpcore.Ledger(tmp_path / "ledger.sqlite", epsilon=10.0) as ledger:
        for source in (None, noise()):
            with pytest.raises(DataError, match="finite"):
                MECHANISM.encode(values, noise=source)
            for column in (pa.array(values), chunks):
                with pytest.raises(DataError, match="finite"):
                    arrow.encode(MECHANISM, column, noise=source)
        assert not ledger.entries
        arrow.encode(MECHANISM, chunks.slice(0, 199_999))
    assert len(ledger.entries) == 1
