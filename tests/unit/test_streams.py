"""Streams have not changed: pinned noise is what tests/vectors/streams.json says it was."""

import importlib.util
import json
from pathlib import Path

import pytest

VECTORS = Path(__file__).parents[1] / "vectors"


def load_maker():
    spec = importlib.util.spec_from_file_location("make_streams", VECTORS / "make_streams.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


maker = load_maker()
STREAMS = json.loads((VECTORS / "streams.json").read_text())["streams"]


def test_every_stream_has_a_vector() -> None:
    assert set(STREAMS) == set(maker.CASES)
    assert len(STREAMS) >= 25


@pytest.mark.parametrize("name", STREAMS)
def test_streams_have_not_changed(name) -> None:
    now = maker.compute(name)
    assert now == STREAMS[name], (
        f"The stream of '{name}' changed. If that is meant, run tests/vectors/make_streams.py and "
        "say so under 'Streams changed' in the changelog."
    )
