"""The tables of the README are those of the recorded results, and claim nothing that is missing."""

import importlib
import json

import pytest

from bench import tables


def test_the_tables_of_the_readme_are_up_to_date():
    text = tables.README.read_text()
    assert tables.fill(text) == text, "python -m bench.tables --write"


def test_other_results_make_another_table(monkeypatch, tmp_path):
    for path in tables.RESULTS.glob("*.json"):
        (tmp_path / path.name).write_text(path.read_text())
    payload = json.loads((tmp_path / "noise.json").read_text())
    payload["rows"][0]["ratio"] *= 2
    payload["left_out"] = ["a library, for a reason."]
    (tmp_path / "noise.json").write_text(json.dumps(payload))
    before = tables.speed(), tables.peers()
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    assert tables.speed() != before[0]
    assert "Not compared for speed: a library, for a reason." in tables.peers()


def test_a_page_without_its_markers_is_refused():
    with pytest.raises(SystemExit, match="one table"):
        tables.fill("# Nothing\n")


PEERS = json.loads((tables.HERE / "peers.json").read_text())


@pytest.mark.parametrize("row", PEERS["rows"], ids=lambda row: row["what"])
def test_what_dpcore_is_said_to_have_exists(row):
    assert len(row["peers"]) == len(PEERS["peers"])
    if row["dpcore"] is not None:
        module, name = row["dpcore"].rsplit(".", 1)
        thing = getattr(importlib.import_module(module), name)
        assert callable(thing)
        assert thing.__doc__


@pytest.mark.parametrize(
    ("value", "text"), [(2752.4, "2,750"), (7.304, "7.3"), (0.9142, "0.914"), (107.2, "107")]
)
def test_numbers_are_short(value, text):
    assert tables.short(value) == text
