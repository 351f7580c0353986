"""An HTML document with everything in it: style, script and pictures, and a policy that lets nothing else be loaded."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

WEB = Path(__file__).parent / "web"
STYLE = (WEB / "page.css").read_text()
SHARE = re.compile(r"(\d)\.(\d)\d*%")  # of a mark's description, with the six digits that Vega writes
DIGITS = re.compile(r"(\.\d\d)\d+")
GEOMETRY = re.compile(r' (?:d|transform)="[^"]*"')
FEWEST_HEADINGS = 5  # for a list of contents


def document(
    title: str, body: Iterable[str], style: str, scripts: Sequence[str] = ("page.js",), connects: str = "'none'"
) -> str:
    """A whole page. The browser runs these scripts alone, and fetches only from where `connects` says."""
    code = "\n".join((WEB / script).read_text() for script in scripts)
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; connect-src {connects}"
    policy += "; img-src data:; base-uri 'none'; form-action 'none'"
    head = (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width, initial-scale=1">'
        '<meta name=color-scheme content="light dark">'
        f"<meta http-equiv=Content-Security-Policy content=\"{policy}\"><link rel=icon href='data:,'>"
        f"<title>{html.escape(title)}</title><style>{style}</style></head>"
    )
    start = "<body><a class=skip href=#main>Skip to the content</a><main id=main>"
    return "\n".join([head, start, *body, f"</main><script>{code}</script></body></html>", ""])


def contents(headings: Sequence[str]) -> str:
    """Links to the parts of a long page; nothing for a short one."""
    if len(headings) < FEWEST_HEADINGS:
        return ""
    links = (f"<li><a href=#part-{i}>{html.escape(heading)}</a></li>" for i, heading in enumerate(headings, 1))
    listed = f"<details><summary>Contents</summary><ol>{''.join(links)}</ol></details>"
    return f"<nav aria-label=Contents class=contents>{listed}</nav>"


def compact(svg: str) -> str:
    """A chart for a page: coordinates with two digits after the point, shares with one, which are rounded down.

    >>> compact('<path d="M8.4507,0" aria-label="right: 99.966667%" font="1.375em"/>')
    '<path d="M8.45,0" aria-label="right: 99.9%" font="1.375em"/>'
    >>> compact('<path aria-label="right: 100.000000%"/>')
    '<path aria-label="right: 100%"/>'
    """
    svg = GEOMETRY.sub(lambda match: DIGITS.sub(r"\1", match[0]), svg)
    return SHARE.sub(r"\1.\2%", svg).replace("100.0%", "100%")
