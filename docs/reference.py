"""The reference, from docstrings alone: ``python docs/reference.py [--out DIR]``; no network.

Public is what a module lists in ``__all__``: every package of dpcore and every module directly in
it or in dpcore.interop, but for the command line and the demonstration. A module whose packages are
not installed is named with what it needs.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import pkgutil
import sys
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from docstrings import Docstring, Renderer, parse

import dpcore

NOT_PUBLIC = ("dpcore.cli", "dpcore.commands", "dpcore.demo", "dpcore.__main__")
INHERITED = ("Privacy", "Cost")
STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #59636e; --line: #d4d9df; --paper: #fff;
  --tint: #f3f6f9; --accent: #1f5fa8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ed; --soft: #a3adb8; --line: #3a434d;
  --paper: #14181c; --tint: #1d2329; --accent: #7fb2ec; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 60rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; }
a { color: var(--accent); text-decoration: none; } a:hover { text-decoration: underline; }
code, pre { font-family: ui-monospace, monospace; font-size: 0.86em; }
pre { background: var(--tint); padding: 0.6rem 0.8rem; border-radius: 6px; overflow-x: auto; }
h2 { border-top: 1px solid var(--line); padding-top: 1rem; margin: 2rem 0 0.4rem;
  font-size: 1.15rem; overflow-wrap: anywhere; }
h3 { font-size: 1rem; margin: 1.2rem 0 0.3rem; overflow-wrap: anywhere; }
h4 { margin: 0.8rem 0 0.2rem; font-size: 0.9rem; color: var(--soft); }
.signature { font-weight: 400; color: var(--soft); font-size: 0.85em; }
.section.privacy, .section.cost { border-left: 3px solid var(--accent); padding-left: 0.8rem; }
.method { margin-left: 1rem; } dd { margin: 0 0 0.4rem 1.2rem; } dd p { margin: 0.1rem 0; }
dt span { color: var(--soft); font-size: 0.9em; } p { margin: 0.4rem 0; }
table { border-collapse: collapse; width: 100%; }
td { padding: 0.25rem 0.6rem 0.25rem 0; vertical-align: top; border-bottom: 1px solid var(--line); }
@media print { a { color: inherit; } pre { white-space: pre-wrap; } h2 { break-after: avoid; } }
"""


@dataclass
class Page:
    """A public module and what it lists."""

    name: str
    doc: Docstring
    names: dict[str, Any] = field(default_factory=dict)

    @property
    def file(self) -> str:
        return f"{self.name}.html"


def public_modules() -> tuple[list[Page], dict[str, str]]:
    """Pages in the order of their names; and modules left out, with the package they need."""
    pages, left_out = [], {}
    found = ["dpcore"]
    for info in pkgutil.walk_packages(dpcore.__path__, "dpcore.", onerror=lambda _: None):
        parts = info.name.split(".")
        hidden = any(part.startswith("_") for part in parts)
        packages = parts[1] == "interop" and len(parts) == 3
        inner = len(parts) > 2 and not (info.ispkg or packages)
        if not (hidden or inner or info.name.startswith(NOT_PUBLIC)):
            found.append(info.name)
    for name in sorted(found):
        try:
            module = importlib.import_module(name)
            listed = {key: getattr(module, key) for key in getattr(module, "__all__", ())}
        except ModuleNotFoundError as error:
            if error.name is None or error.name.split(".")[0] == "dpcore":
                raise
            left_out[name] = error.name
            continue
        pages.append(Page(name, parse(inspect.getdoc(module) or ""), listed))
    return pages, left_out


def homes(pages: list[Page]) -> dict[int, tuple[Page, str]]:
    """For each object the page that describes it: the one where it is defined, or the nearest."""
    found: dict[int, tuple[Page, str]] = {}
    for page in sorted(pages, key=lambda page: -page.name.count(".")):
        for name, thing in page.names.items():
            if inspect.ismodule(thing) or not callable(thing):
                continue
            known = found.get(id(thing))
            origin = getattr(thing, "__module__", "") or ""
            if known is None or not origin.startswith(known[0].name):
                found[id(thing)] = (page, name)
    return found


class Reference:
    """All pages."""

    def __init__(self) -> None:
        self.pages, self.left_out = public_modules()
        self.homes = homes(self.pages)
        links: dict[str, str] = {}
        for page in self.pages:
            links[page.name] = page.file
            for name in page.names:
                links.setdefault(name, f"{page.file}#{page.name}.{name}")
                links[f"{page.name}.{name}"] = f"{page.file}#{page.name}.{name}"
        self.renderer = Renderer(links)

    def write(self, out: Path) -> None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "index.html").write_text(self.index(), encoding="utf-8")
        for page in self.pages:
            (out / page.file).write_text(self.module(page), encoding="utf-8")

    def index(self) -> str:
        rows = "".join(
            f'<tr><td><a href="{page.file}"><code>{page.name}</code></a></td>'
            f"<td>{self.renderer.inline(page.doc.summary)}</td></tr>"
            for page in self.pages
        )
        rows += "".join(
            f"<tr><td><code>{name}</code></td><td>left out: needs {escape(package)}</td></tr>"
            for name, package in self.left_out.items()
        )
        names = sorted(
            {
                f'<a href="{page.file}#{page.name}.{name}"><code>{escape(name)}</code></a>'
                for page, name in self.homes.values()
            },
            key=lambda text: text.split("<code>")[1].lower(),
        )
        body = (
            f"<h1>dpcore {dpcore.__version__}</h1><p>Everything that is public, from its own "
            "documentation. What releases something has a Privacy and a Cost section.</p>"
            f"<table>{rows}</table><h2>All names</h2><p>{' &middot; '.join(names)}</p>"
        )
        return _html("dpcore reference", body)

    def module(self, page: Page) -> str:
        parts = [
            f'<p><a href="index.html">dpcore reference</a></p><h1><code>{page.name}</code></h1>',
            self.renderer.render(page.doc),
            *(self.entry(page, name, thing) for name, thing in page.names.items()),
        ]
        return _html(page.name, "\n".join(parts))

    def entry(self, page: Page, name: str, thing: Any) -> str:
        full = f"{page.name}.{name}"
        head = f'<h2 id="{full}"><code>{escape(name)}</code>'
        if inspect.ismodule(thing):
            link = self.renderer.links.get(thing.__name__)
            where = f'<a href="{link}">{thing.__name__}</a>' if link else escape(thing.__name__)
            return f"{head}</h2><p>Module {where}.</p>"
        if not callable(thing):
            return f"{head}</h2><pre>{escape(repr(thing)[:400])}</pre>"
        home, known_as = self.homes[id(thing)]
        if home is not page:
            link = f"{home.file}#{home.name}.{known_as}"
            summary = self.renderer.inline(documentation(thing).summary)
            return f'{head}</h2><p>{summary} See <a href="{link}">{home.name}</a>.</p>'
        head += f' <span class="signature">{escape(signature(thing))}</span></h2>'
        body = self.renderer.render(documentation(thing))
        if inspect.isclass(thing):
            body += "".join(self.member(full, thing, each) for each in members(thing))
        return head + body

    def member(self, full: str, owner: type, name: str) -> str:
        raw = inspect.getattr_static(owner, name)
        thing = getattr(owner, name, raw)
        shown = "" if isinstance(raw, property) else signature(thing)
        doc = parse(inspect.getdoc(raw if isinstance(raw, property) else thing) or "")
        return (
            f'<div class="method"><h3 id="{full}.{name}"><code>{name}</code> '
            f'<span class="signature">{escape(shown)}</span></h3>{self.renderer.render(doc)}</div>'
        )


def documentation(thing: Any) -> Docstring:
    """The docstring, with the Privacy and Cost that a class inherits from one of dpcore."""
    doc = parse(inspect.getdoc(thing) or "")
    for base in thing.__mro__[1:] if inspect.isclass(thing) else ():
        if base.__module__.startswith("dpcore") and base.__doc__:
            above = parse(inspect.getdoc(base) or "")
            for head in INHERITED:
                if head in above.sections and head not in doc.sections:
                    doc.sections[head] = above.sections[head]
    return doc


def members(owner: type) -> list[str]:
    """Documented public methods and properties that the class or a base of dpcore defines."""
    found: dict[str, None] = {}
    for base in owner.__mro__:
        if base.__module__.startswith("dpcore"):
            for name, value in vars(base).items():
                raw = getattr(value, "__func__", value)
                plain = inspect.isfunction(raw) or isinstance(value, property)
                if plain and not name.startswith("_") and inspect.getdoc(getattr(owner, name)):
                    found.setdefault(name)
    return list(found)


def signature(thing: Any) -> str:
    """Names and defaults; types stand in the list of parameters."""
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    empty = inspect.Parameter.empty
    bare = [each.replace(annotation=empty) for each in found.parameters.values()]
    shown = [each for each in bare if each.name not in ("self", "cls")]
    return str(found.replace(parameters=shown, return_annotation=empty))


def _html(title: str, body: str) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>{body}</body></html>\n"
    )


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/docs"))
    out = parser.parse_args(given).out
    reference = Reference()
    reference.write(out)
    for name, package in reference.left_out.items():
        print(f"{name} is left out: it needs {package}")
    print(f"{len(reference.homes)} objects in {len(reference.pages)} modules: {out / 'index.html'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
