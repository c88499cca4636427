"""The command line as a whole: packages that are not there, readers that have seen enough."""

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


def test_a_reader_that_leaves_gets_no_traceback():
    program = (
        "import sys, dpcore.commands.info as info\n"
        "def run(given):\n"
        "    for _ in range(100_000):\n"
        "        print('a line', flush=True)\n"
        "info.run = run\n"
        "from dpcore.cli import main\n"
        "sys.exit(main(['info']))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"a line\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 1
