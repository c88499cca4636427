"""The reference is made without network, and every public object is on it."""

import importlib
import inspect
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from packaging_support import ROOT

sys.path.insert(0, str(ROOT / "docs"))

import reference
from docstrings import Renderer, parse


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("docs")
    program = [sys.executable, str(ROOT / "docs/reference.py"), "--out", str(out)]
    subprocess.run(program, check=True, timeout=900, capture_output=True, cwd=out)
    return out


class Anchors(HTMLParser):
    """Names that a page defines, and addresses that it points to."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        assert tag not in ("script", "link", "img", "iframe")
        if "id" in given:
            self.ids.append(given["id"])
        if tag == "a":
            self.links.append(given["href"])


@pytest.fixture(scope="module")
def pages(folder):
    return {path.name: Anchors(path.read_text()) for path in folder.glob("*.html")}


def public_names():
    """As a user would find them, without the code under test."""
    names = [
        "dpcore", "dpcore.accounting", "dpcore.audit", "dpcore.cluster", "dpcore.data",
        "dpcore.errors", "dpcore.federated", "dpcore.labeling", "dpcore.learners",
        "dpcore.learners.forecast", "dpcore.learners.lvq", "dpcore.local", "dpcore.proportions",
        "dpcore.interop.torch", "dpcore.random", "dpcore.secure", "dpcore.series",
        "dpcore.tables", "dpcore.wire",
    ]  # fmt: skip
    return [(name, key) for name in names for key in importlib.import_module(name).__all__]


PUBLIC = public_names()


@pytest.mark.parametrize("module", sorted({module for module, _ in PUBLIC}))
def test_every_public_object_is_on_the_page_of_its_module(pages, module):
    found = pages[f"{module}.html"].ids
    expected = {f"{module}.{name}" for owner, name in PUBLIC if owner == module}
    assert expected
    assert expected <= set(found)
    assert len(found) == len(set(found))


def test_there_are_as_many_objects_as_we_know_of():
    assert len(PUBLIC) >= 170


def test_links_lead_somewhere_within_the_reference(pages):
    for page in pages.values():
        for link in page.links:
            file, _, anchor = link.partition("#")
            assert file in pages, link
            assert not anchor or anchor in pages[file].ids, link


@pytest.mark.parametrize(
    "name",
    ["dpcore.central.laplace", "dpcore.local.PiecewiseOpt", "dpcore.learners.lvq.PrivateGLVQ"],
)
def test_releases_show_privacy_and_cost(folder, name):
    module = name.rsplit(".", 1)[0]
    text = (folder / f"{module}.html").read_text()
    [entry] = re.findall(rf'<h2 id="{re.escape(name)}">.*?(?=<h2 |</body>)', text, re.S)
    assert '<div class="section privacy"><h4>Privacy</h4><p>' in entry
    assert '<div class="section cost"><h4>Cost</h4><p>' in entry
    assert "<pre>&gt;&gt;&gt; " in entry or name.startswith("dpcore.local")


def test_only_missing_packages_leave_modules_out(monkeypatch):
    real = importlib.import_module

    def without_sklearn(name):
        if name == "dpcore.learners":
            raise ModuleNotFoundError("No module named 'sklearn'", name="sklearn")
        return real(name)

    monkeypatch.setattr(reference.importlib, "import_module", without_sklearn)
    pages, left_out = reference.public_modules()
    assert left_out == {"dpcore.learners": "sklearn"}
    assert "dpcore.learners" not in [page.name for page in pages]


def test_sections_lists_and_links_are_rendered():
    doc = parse(
        "Does it.\n\nUses `other` and ``x``.\n\nParameters\n----------\na, b : int\n    Numbers.\n"
        "c\n\nExamples\n--------\n>>> 1 < 2\nTrue\n"
    )
    assert doc.summary == "Does it."
    text = Renderer({"other": "m.html#m.other"}).render(doc)
    assert '<a href="m.html#m.other"><code>other</code></a>' in text
    assert "<dt><code>a, b</code> <span>int</span></dt><dd><p>Numbers.</p></dd>" in text
    assert "<dt><code>c</code></dt>" in text
    assert "<pre>&gt;&gt;&gt; 1 &lt; 2\nTrue</pre>" in text


def test_signatures_have_names_and_defaults_only():
    def f(self, a: int, *, b: str = "x") -> int:
        return a

    assert reference.signature(f) == "(a, *, b='x')"
    assert inspect.signature(f).return_annotation is int
