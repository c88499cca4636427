"""Atheris on every parser of bytes: `python tests/fuzz/fuzz_parsers.py [options of libFuzzer]`.

A crash is any exception that is not documented, or contents that do not give the same message
again; the parsers and what is valid for them are those of tests/robustness/test_parsers_fuzz.py.
"""

import sys
import tempfile
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[1] / "robustness"))

with atheris.instrument_imports(include=["dpcore"]):
    from test_parsers_fuzz import GRAPHS, PARSERS, load, parse

FOLDER = tempfile.TemporaryDirectory()
NAMES = [*PARSERS, *GRAPHS]


def one_input(data: bytes) -> None:
    """The first byte chooses the parser, and whether checksums are made right."""
    if not data:
        return
    name, body = NAMES[data[0] % len(NAMES)], data[1:]
    if name in GRAPHS:
        load(Path(FOLDER.name), "adjacency", name, body)
        return
    parse(name, body)
    parse(name, PARSERS[name][2](body))


def seeds(folder: Path) -> None:
    """What is valid, as a first corpus."""
    valid = {name: PARSERS[name][3] for name in PARSERS} | {n: [GRAPHS[n]] for n in GRAPHS}
    for number, name in enumerate(NAMES):
        for i, message in enumerate(valid[name]):
            (folder / f"{number}-{i}").write_bytes(bytes([number]) + message)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as corpus:
        seeds(Path(corpus))
        atheris.Setup([*sys.argv, corpus], one_input)
        atheris.Fuzz()
