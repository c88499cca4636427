"""The guards of the test run itself: what may be skipped where CI is set."""

import os
import shutil
import subprocess
import sys

import pytest
from packaging_support import ROOT

SKIPPING = """
import pytest

def test_that_runs():
    assert True

@pytest.mark.skip(reason={reason!r})
def test_that_does_not():
    assert True
"""


@pytest.mark.parametrize(
    ("reason", "ci", "code"),
    [
        ("eclipse-sumo is not installed", "true", 0),
        ("not in the mood", "true", 1),
        ("not in the mood", "", 0),
    ],
)
def test_only_known_reasons_skip_a_test_where_ci_is_set(reason, ci, code, tmp_path):
    shutil.copy(ROOT / "tests/conftest.py", tmp_path)
    (tmp_path / "test_skipping.py").write_text(SKIPPING.format(reason=reason))
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_skipping.py"],
        cwd=tmp_path,
        env={**os.environ, "CI": ci},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert result.returncode == code, result.stdout
    assert ("must not be skipped" in result.stdout) == bool(code)
