"""The examples of table pipelines run, and say what they promise."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "bench/examples"


def run(command, **options):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, "PATH": path},
        check=False,
        **options,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_the_command_line(tmp_path):
    shown = run(["sh", EXAMPLES / "tables_command_line.sh", tmp_path])
    assert "200000 rows, epsilon 3 each" in shown
    [low, high] = re.search(r"^age +\S+ +(\S+) +(\S+)$", shown, re.M).groups()
    assert float(low) - 2 < 40 < float(high) + 2
    assert len(re.findall("local tuple", shown)) == 1


@pytest.mark.parametrize("name", ["tables_arrow.py", "tables_polars.py"])
def test_engines(name, tmp_path):
    shown = run([sys.executable, EXAMPLES / name], cwd=tmp_path)
    assert shown.startswith("same bytes")
    mean, low, high = map(
        float, re.search(r"mean age (\S+), 95 % interval (\S+) to ([\d.]+)", shown).groups()
    )
    assert low < mean < high
    assert abs(mean - 40) < 1


def test_spark(tmp_path):
    pytest.importorskip("pyspark", reason="pyspark is not part of the extra 'test'")
    shown = run([sys.executable, EXAMPLES / "tables_spark.py"], cwd=tmp_path)
    assert abs(float(re.search(r"mean age (\S+),", shown)[1]) - 40) < 1


def test_every_example_has_a_test():
    text = Path(__file__).read_text()
    names = [path.name for path in EXAMPLES.glob("tables_*")]
    assert len(names) >= 4
    assert all(name in text for name in names)
