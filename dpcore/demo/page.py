"""The report: one HTML file that needs nothing else, for a screen, a phone and paper."""

from __future__ import annotations

import base64
from html import escape

from dpcore.demo.section import Figure, Section

__all__ = ["render"]

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #59636e; --line: #d4d9df;
  --paper: #ffffff; --tint: #f3f6f9; --accent: #1f5fa8; --warn: #8a4312; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ed; --soft: #a3adb8; --line: #3a434d;
  --paper: #14181c; --tint: #1d2329; --accent: #7fb2ec; --warn: #e6a777; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; padding: 1.2rem 1rem 3rem; max-width: 64rem; background: var(--paper);
  color: var(--ink); font: 1rem/1.55 system-ui, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0.4rem 0; }
h2 { font-size: 1.25rem; line-height: 1.3; margin: 2.4rem 0 0.5rem; padding-top: 0.8rem;
  border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.2rem 0 0.3rem; }
p, ul { margin: 0.5rem 0; max-width: 46rem; }
ul { padding-left: 1.2rem; }
a { color: var(--accent); }
.soft { color: var(--soft); font-size: 0.9rem; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; font-size: 0.95rem; }
th, td { text-align: left; padding: 0.4rem 0.6rem 0.4rem 0; vertical-align: top;
  border-bottom: 1px solid var(--line); }
th { font-weight: 600; color: var(--soft); font-size: 0.85rem; }
td.number { font-variant-numeric: tabular-nums; }
td.main { font-weight: 600; color: var(--accent); }
pre { background: var(--tint); border-radius: 6px; padding: 0.7rem 0.8rem; overflow-x: auto;
  font: 0.8rem/1.45 ui-monospace, monospace; margin: 0.6rem 0; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr));
  gap: 1.2rem; margin: 1rem 0; }
figure { margin: 0; break-inside: avoid; }
figure img { width: 100%; height: auto; display: block; background: #ffffff; border-radius: 6px;
  border: 1px solid var(--line); }
figcaption { font-size: 0.9rem; color: var(--soft); margin-top: 0.4rem; }
figcaption b { color: var(--ink); }
.open { border-left: 3px solid var(--warn); padding-left: 0.9rem; margin: 1rem 0; }
.open h3 { color: var(--warn); margin-top: 0; }
details { margin: 0.6rem 0; }
summary { cursor: pointer; color: var(--accent); }
@media (max-width: 44rem) {
  pre { white-space: pre-wrap; overflow-wrap: anywhere; }
  .summary thead { display: none; }
  .summary tr { display: block; border-bottom: 1px solid var(--line); padding: 0.5rem 0; }
  .summary td { display: flex; gap: 1rem; justify-content: space-between; border: 0;
    padding: 0.1rem 0; text-align: right; }
  .summary td::before { content: attr(data-name); color: var(--soft); font-weight: 400;
    text-align: left; flex: none; }
  .summary td.system { font-weight: 600; text-align: left; }
  .summary td.system::before { content: none; }
}
@media print {
  :root { --ink: #000; --soft: #444; --line: #bbb; --paper: #fff; --tint: #f5f5f5;
    --accent: #1f5fa8; --warn: #8a4312; color-scheme: light; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  h2, h3 { break-after: avoid; }
  section.part { break-inside: auto; }
  .figures { grid-template-columns: 1fr 1fr; gap: 0.8rem; }
  pre { white-space: pre-wrap; overflow: visible; border: 1px solid var(--line); }
  tr, .open, pre { break-inside: avoid; }
  details > summary { list-style: none; }
  a { color: inherit; text-decoration: none; }
}
"""


def render(sections: list[Section], about: str, *, plots: bool) -> str:
    """The whole page."""
    left_out = [section for section in sections if section.skipped]
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>dpcore: what it does</title><style>{_STYLE}</style></head><body>",
        "<header><h1>What dpcore does</h1>",
        "<p>Five ways to learn from data that nobody should see, run just now on this machine. "
        "Each line compares the same method with and without privacy, and with a baseline that "
        "learns nothing or shares nothing.</p></header>",
        _summary(sections),
        f'<p class="soft">{escape(about)}.</p>',
        "<p>The smaller epsilon, the stronger the guarantee: whatever is computed from the "
        "releases, its chance changes by at most a factor of e<sup>epsilon</sup> (but for a chance "
        "of delta) when the protected unit changes. Every epsilon here was read from a ledger that "
        "had to admit the release before its noise was drawn. The noise is fresh in every run, so "
        "numbers vary; curves over several epsilons are simulations, which protect nobody "
        "and are not charged.</p>",
    ]
    if not plots:
        parts.append("<p><b>Figures are left out</b>: they need matplotlib.</p>")
    if left_out:
        names = ", ".join(section.title for section in left_out)
        parts.append(f"<p><b>Left out</b>, for want of packages: {escape(names)}.</p>")
    parts += [_section(number, section) for number, section in enumerate(sections)]
    parts.append(
        '<footer><h2>What this page does not show</h2><p class="soft">Its data are made up or '
        "public, and small; nothing here says how the methods do on yours. Each guarantee is about "
        "what is released, not about this machine: whoever can read its memory sees everything. "
        "The command <code>dpcore audit</code> attacks the local and central mechanisms and prints "
        "the loss it observed beside the one that is claimed.</p></footer></body></html>"
    )
    return "\n".join(parts) + "\n"


def _summary(sections: list[Section]) -> str:
    names = ("System", "Measured", "Not private", "Private", "Epsilon", "Protects", "Baseline")
    rows = []
    for section in sections:
        link = f'<a href="#{section.key}">{escape(section.title)}</a>'
        if section.skipped:
            rows.append(
                f'<tr><td class="system">{link}</td><td colspan="6" data-name="">'
                f"{escape(section.skipped)}</td></tr>"
            )
        for quality in section.quality:
            plain, private, naive = quality.cells()
            better = "higher" if quality.higher_is_better else "lower"
            cells = (
                ("system", link),
                ("", escape(f"{quality.what}; {better} is better")),
                ("number", plain),
                ("number main", private),
                ("number", escape(section.loss)),
                ("", escape(section.unit)),
                ("number", escape(naive)),
            )
            rows.append(
                "<tr>"
                + "".join(
                    f'<td class="{kind}" data-name="{name}">{text}</td>'
                    for name, (kind, text) in zip(names, cells, strict=True)
                )
                + "</tr>"
            )
    head = "".join(f"<th>{name}</th>" for name in names)
    body = "".join(rows)
    return f'<table class="summary"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _section(number: int, section: Section) -> str:
    title = escape(section.title)
    heading = f"{number}. {title}" if number else title
    parts = [f'<section class="part" id="{section.key}"><h2>{heading}</h2>']
    if section.skipped:
        return parts[0] + f"<p>This part is {escape(section.skipped)}</p></section>"
    parts.append(f"<p>{escape(section.lead)}</p><pre>{escape(section.code)}</pre>")
    facts = "".join(f"<li>{escape(fact)}</li>" for fact in section.facts)
    parts.append(f"<ul>{facts}</ul>")
    if section.output:
        parts.append(f"<pre>{escape(section.output)}</pre>")
    if section.figures:
        parts.append('<div class="figures">' + "".join(map(_figure, section.figures)) + "</div>")
    listed = "".join(f"<li>{escape(item)}</li>" for item in section.not_covered)
    parts.append(
        f"<p>Guarantee: epsilon {escape(section.loss)} for {escape(section.unit)}.</p>"
        f'<div class="open"><h3>Not covered</h3><ul>{listed}</ul></div>'
        f"<details open><summary>The ledger</summary><pre>{escape(section.ledger)}</pre></details>"
        f'<p class="soft">{section.seconds:.1f} s</p></section>'
    )
    return "\n".join(parts)


def _figure(figure: Figure) -> str:
    data = base64.b64encode(figure.svg).decode("ascii")
    return (
        f'<figure><img alt="{escape(figure.caption)}" src="data:image/svg+xml;base64,{data}">'
        f"<figcaption><b>{escape(figure.title)}.</b> {escape(figure.caption)}</figcaption></figure>"
    )
