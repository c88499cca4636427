"""The demonstration, run for real: its table, its page, and what it says where packages miss."""

import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest

SECTIONS = ("basics", "local", "labels", "forecasts", "prototypes", "federation")


class Page(HTMLParser):
    """What a browser would load, and which sections, figures and captions there are."""

    def __init__(self, text):
        super().__init__()
        self.loaded, self.sections, self.captions, self.alternatives = [], [], [], []
        self.metas, self._in_caption = {}, False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if tag in ("script", "link", "iframe", "object", "embed", "audio", "video", "source"):
            self.loaded.append(given.get("src") or given.get("href") or tag)
        if tag == "img":
            self.loaded.append(given["src"])
            self.alternatives.append(given["alt"])
        if tag == "a":
            assert given["href"].startswith("#")
        if tag == "meta":
            self.metas[given.get("name")] = given.get("content")
        if tag == "section":
            self.sections.append(given["id"])
        if tag == "figcaption":
            self._in_caption = True
            self.captions.append("")

    def handle_endtag(self, tag):
        if tag == "figcaption":
            self._in_caption = False

    def handle_data(self, data):
        if self._in_caption:
            self.captions[-1] += data


def run(*arguments, program=None):
    start = ["-m", "dpcore"] if program is None else ["-c", program]
    return subprocess.run(
        [sys.executable, *start, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=900,
        check=True,
    )


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo") / "report"
    done = run("demo", "--quick", "--out", out)
    return done.stdout, done.stderr, (out / "index.html").read_text(encoding="utf-8"), out


def test_every_system_is_in_the_table_with_its_epsilon(demo):
    lines = demo[0].splitlines()
    for key in SECTIONS:
        [line] = [line for line in lines if line.startswith(key)]
        epsilon = float(re.split(r"\s{2,}", line)[4].split()[0])
        assert 0 < epsilon <= 2
    assert "left out" not in demo[0]


def test_every_part_shows_its_progress(demo):
    assert len(re.findall(r"^\[#+\] .+, [\d.]+ s$", demo[1], re.M)) == len(SECTIONS)


def test_the_page_needs_nothing_else(demo):
    _, _, text, folder = demo
    page = Page(text)
    assert [path.name for path in folder.iterdir()] == ["index.html"]
    assert page.loaded
    assert all(source.startswith("data:image/svg+xml;base64,") for source in page.loaded)
    assert not re.search(r"(?:src|href)\s*=\s*[\"']?(?:https?:)?//", text)
    assert "@import" not in text
    assert "url(" not in text


def test_the_page_has_all_sections_and_every_figure_a_sentence(demo):
    page = Page(demo[2])
    assert page.sections == list(SECTIONS)
    assert len(page.captions) == len(page.alternatives) >= 9
    assert all(len(caption) > 60 and caption.rstrip().endswith(".") for caption in page.captions)
    for part in re.findall(r'<section class="part".*?</section>', demo[2], re.S):
        assert len(re.findall(r"<h3>Not covered</h3><ul><li>", part)) == 1
        assert re.search(r"spent\s+epsilon", part)


def test_the_page_fits_a_phone_and_paper(demo):
    assert "width=device-width" in Page(demo[2]).metas["viewport"]
    assert "@media print" in demo[2]
    assert "@media (max-width" in demo[2]


def test_the_promises_of_the_demonstration_hold(demo):
    text = demo[2]
    assert "was refused" in text
    assert "A release made in three chunks equals" in text
    assert "multiple of one public grid: yes" in text
    assert "19 survivors repair the sum, which is exactly" in text
    assert "1 left for good" in text


WITHOUT = """
import sys
for name in ("torch", "sklearn", "cryptography", "matplotlib"):
    sys.modules[name] = None
from dpcore import demo
demo.run(sys.argv[1], quick=True)
"""


def test_parts_whose_packages_miss_are_left_out_and_say_so(tmp_path):
    done = run(tmp_path, program=WITHOUT)
    assert "Figures are left out" in done.stdout
    assert len(re.findall(r": left out, because .* not installed", done.stdout)) == 4
    assert "because scikit-learn and torch" in done.stdout
    page = Page((tmp_path / "index.html").read_text())
    assert page.sections == list(SECTIONS)
    assert not page.loaded
