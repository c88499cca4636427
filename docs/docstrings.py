"""Docstrings in numpydoc as HTML: sections, parameter lists, examples, links to known names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape

_HEAD = re.compile(r"^(\S[^\n]*)\n(-{3,})[ \t]*$", re.MULTILINE)
_LISTS = ("Parameters", "Attributes", "Returns", "Yields", "Raises", "Warns", "Other Parameters")


@dataclass(frozen=True)
class Docstring:
    """Text before the first head, and the sections by head."""

    lead: str
    sections: dict[str, str]

    @property
    def summary(self) -> str:
        """The first paragraph, on one line."""
        return " ".join(self.lead.strip().split("\n\n")[0].split())


def parse(text: str) -> Docstring:
    heads = [m for m in _HEAD.finditer(text) if len(m[1].rstrip()) == len(m[2])]
    lead = text[: heads[0].start()] if heads else text
    ends = [*(head.start() for head in heads[1:]), len(text)][: len(heads)]
    return Docstring(
        lead.strip("\n"),
        {
            head[1].strip(): text[head.end() : end].strip("\n")
            for head, end in zip(heads, ends, strict=True)
        },
    )


class Renderer:
    """Turns docstrings into HTML; `links` maps names to addresses."""

    def __init__(self, links: Mapping[str, str]) -> None:
        self.links = links

    def render(self, doc: Docstring) -> str:
        parts = [self.prose(doc.lead)]
        parts += [self.section(head, body) for head, body in doc.sections.items()]
        return "\n".join(parts)

    def section(self, head: str, body: str) -> str:
        kind = head.lower().replace(" ", "-")
        inner = self.definitions(body) if head in _LISTS else self.prose(body)
        return f'<div class="section {kind}"><h4>{escape(head)}</h4>{inner}</div>'

    def definitions(self, body: str) -> str:
        """A line without indent names something; indented lines below it explain."""
        items: list[tuple[str, list[str]]] = []
        for line in re.sub(r"\\\n\s*", "", body).splitlines():
            if line and not line[0].isspace():
                items.append((line.strip(), []))
            elif items:
                items[-1][1].append(line)
        rows = []
        for term, lines in items:
            name, _, kind = term.partition(" : ")
            shown = f" <span>{self.inline(kind)}</span>" if kind else ""
            rows.append(f"<dt><code>{escape(name)}</code>{shown}</dt>")
            text = _dedent(lines)
            rows.append(f"<dd>{self.prose(text)}</dd>" if text.strip() else "<dd></dd>")
        return f"<dl>{''.join(rows)}</dl>"

    def prose(self, text: str) -> str:
        """Paragraphs, doctests, indented blocks and lists."""
        out = []
        for block in re.split(r"\n\s*\n", text.strip("\n")):
            if not block.strip():
                continue
            first = block.lstrip()
            if first.startswith(">>>") or block.startswith("    "):
                out.append(f"<pre>{escape(_dedent(block.splitlines()))}</pre>")
            elif first.startswith(("- ", "* ")):
                items = re.split(r"^\s*[-*] ", block, flags=re.MULTILINE)[1:]
                listed = "".join(f"<li>{self.inline(item)}</li>" for item in items)
                out.append(f"<ul>{listed}</ul>")
            else:
                out.append(f"<p>{self.inline(block)}</p>")
        return "".join(out)

    def inline(self, text: str) -> str:
        """Code in backticks, with a link where the name is known, and strong words."""
        pieces = re.split(r"(``[^`]+``|`[^`]+`|\*\*[^*]+\*\*)", " ".join(text.split()))
        return "".join(map(self._piece, pieces))

    def _piece(self, piece: str) -> str:
        if piece.startswith("**") and len(piece) > 4:
            return f"<strong>{escape(piece[2:-2])}</strong>"
        if not piece.startswith("`"):
            return escape(piece)
        name = piece.strip("`")
        code = f"<code>{escape(name)}</code>"
        address = self.links.get(name)
        return code if address is None else f'<a href="{address}">{code}</a>'


def _dedent(lines: list[str]) -> str:
    full = [line for line in lines if line.strip()]
    depth = min((len(line) - len(line.lstrip()) for line in full), default=0)
    return "\n".join(line[depth:] for line in lines).strip("\n")
