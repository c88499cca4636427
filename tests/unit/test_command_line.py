"""The command line as a whole: packages that are not there."""

import subprocess
import sys

import pytest

WITHOUT = "import sys; sys.modules[{name!r}] = None; from dpcore.cli import main; sys.exit(main({command!r}))"  # noqa: E501


@pytest.mark.parametrize(
    ("name", "command", "extra"),
    [
        ("pyarrow", ["estimate", "reports.parquet"], "tables"),
        ("cryptography", ["federate", "keys", "--folder", "site", "--client", "0"], "secagg"),
    ],
)
def test_a_missing_package_is_named_with_the_extra_that_brings_it(tmp_path, name, command, extra):
    code = WITHOUT.format(name=name, command=command)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert f"pip install 'dpcore[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr
