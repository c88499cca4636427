"""Every example runs, every release and learner says what it guarantees and what it costs."""

import doctest
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest
from public_modules import PUBLIC

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
    names = {}
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert len(blocks) >= 4
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)


def public_things() -> list[tuple[str, object]]:
    found = {}
    for module_name in PUBLIC:
        module = importlib.import_module(module_name)
        for name in module.__all__:
            thing = getattr(module, name)
            if callable(thing) and not (inspect.isclass(thing) and issubclass(thing, Exception)):
                found.setdefault(id(thing), (f"{module_name}.{name}", thing))
    return list(found.values())


THINGS = public_things()


@pytest.mark.parametrize(("name", "thing"), THINGS, ids=[name for name, _ in THINGS])
def test_everything_public_states_privacy_and_cost(name, thing):
    text = inspect.getdoc(thing) or ""
    for head in ("Privacy", "Cost"):
        assert re.search(rf"^{head}\n-+$", text, re.M), f"{name} has no {head} section"


def test_the_list_of_public_things_is_not_empty():
    assert len(THINGS) >= 150


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
