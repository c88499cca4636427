"""Every example runs, every release and learner says what it guarantees and what it costs."""

import doctest
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import numpy as np
import pytest

import dpcore

ROOT = Path(__file__).parents[2]
OPTIONAL = ("dpcore._jit",)


def module_names() -> list[str]:
    found = pkgutil.walk_packages(dpcore.__path__, "dpcore.")
    return [info.name for info in found if not info.name.startswith((*OPTIONAL, "dpcore.__main__"))]


MODULES = ["dpcore", *module_names()]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0


def test_there_are_examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    modules = [importlib.import_module(name) for name in MODULES]
    examples = [t for module in modules for t in finder.find(module) if t.examples]
    assert len(examples) >= 50


def test_examples_of_the_readme(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "noise.key").write_bytes(bytes(range(32)))
    generator = np.random.default_rng(0)
    names = {
        "vector": generator.normal(size=5),
        "labels": generator.integers(0, 20, 1000),
        "ages": generator.uniform(0, 100, 1000),
        "part": np.arange(10),
        "first_row": 100,
    }
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert len(blocks) >= 4
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)


def releases() -> list[tuple[str, object]]:
    found = []
    for module_name in ("dpcore", "dpcore.local", "dpcore.accounting", "dpcore.learners"):
        module = importlib.import_module(module_name)
        for name in module.__all__:
            thing = getattr(module, name)
            if not callable(thing) or (inspect.isclass(thing) and issubclass(thing, Exception)):
                continue
            parameters = inspect.signature(thing).parameters
            methods = dir(thing) if inspect.isclass(thing) else ()
            if "noise" in parameters or {"encode", "fit"} & set(methods):
                found.append((f"{module_name}.{name}", thing))
    return found


RELEASES = releases()


@pytest.mark.parametrize(("name", "thing"), RELEASES, ids=[name for name, _ in RELEASES])
def test_releases_state_privacy_and_cost(name, thing):
    # A mechanism inherits the statement of its base class.
    bases = thing.__mro__ if inspect.isclass(thing) else (thing,)
    text = "\n".join(inspect.getdoc(base) or "" for base in bases if base is not object)
    for head in ("Privacy", "Cost"):
        assert re.search(rf"^{head}\n-+$", text, re.M), f"{name} has no {head} section"


def test_the_list_of_releases_is_not_empty():
    assert len(RELEASES) >= 20


LINKED = sorted(
    {
        (page.name, target)
        for page in ROOT.glob("*.md")
        for target in re.findall(r"\]\(([^)#:]+?)\)", page.read_text())
    }
)


@pytest.mark.parametrize(("page", "target"), LINKED)
def test_links_between_pages_lead_somewhere(page, target):
    assert (ROOT / target).exists()


def test_files_named_in_the_threat_model_exist():
    names = re.findall(r"`((?:tests|bench)[\w/.]*)`", (ROOT / "THREAT_MODEL.md").read_text())
    assert names
    for name in names:
        assert (ROOT / name).exists(), name
