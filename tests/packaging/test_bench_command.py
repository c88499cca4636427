"""The benchmark command on its cheapest suites, and the page of recorded runs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import __main__ as bench
from bench import scaling

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    out = tmp_path_factory.mktemp("bench")
    done = subprocess.run(
        [sys.executable, "-m", "dpcore", "bench", "scaling", "--quick", "--out", str(out)],
        capture_output=True,
        text=True,
        timeout=900,
        cwd=ROOT,
        check=True,
    )
    return out, done.stdout


def test_every_kernel_is_measured_and_checked_at_all_sizes_and_threads(recorded):
    payload = json.loads((recorded[0] / "scaling.json").read_text())
    assert list(payload["curves"]) == [kernel.name for kernel in scaling.KERNELS]
    assert set(payload["checked"]) == set(payload["curves"])
    assert payload["machine"]["packages"]["numpy"]
    for curve in payload["curves"].values():
        assert set(curve) == {"1", "2"}
        for rates in curve.values():
            assert len(rates) == len(payload["sizes"])
            assert min(rates) > 0


def test_shares_follow_from_the_ceilings_of_the_same_run(recorded):
    payload = json.loads((recorded[0] / "scaling.json").read_text())
    rows = {row["name"]: row for row in payload["roofline"]["1"]}
    assert rows[scaling.COPY]["share"] == pytest.approx(1)
    row = rows["Laplace release, int64"]
    memory = payload["curves"][scaling.COPY]["1"][-1]
    stream = 4 * max(payload["curves"][scaling.KEYSTREAM]["1"])
    assert row["share"] == pytest.approx(row["reached"] / min(memory, stream))


def test_the_run_leaves_a_page_and_a_plot(recorded):
    out, printed = recorded
    text = (out / "RESULTS.md").read_text()
    assert "written: RESULTS.md" in printed
    for kernel in scaling.KERNELS:
        assert f"| {kernel.name} |" in text
    assert (out / "scaling.png").read_bytes().startswith(b"\x89PNG")


def test_a_wrong_kernel_stops_the_run():
    call, check = scaling.copy(1000)
    assert check(call()) == "equal"
    with pytest.raises(AssertionError, match="wrong"):
        check(call() + 1)


def test_the_page_of_recorded_runs_is_up_to_date():
    assert (ROOT / "bench/RESULTS.md").read_text() == bench.page()


def test_an_unknown_suite_is_refused(capsys):
    with pytest.raises(SystemExit):
        bench.main(["nonsense"])
    assert "no suite of this name" in capsys.readouterr().err
