"""A page in the making: Markdown and one self-contained HTML file that say the same, with charts beside them."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from assay.description import BadInput

if TYPE_CHECKING:
    import altair as alt

STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}
table{border-collapse:collapse;font-size:14px;margin:1rem 0}
th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid #ddd;white-space:nowrap}
th:nth-child(-n+2),td:nth-child(-n+2),th:last-child,td:last-child{text-align:left}
td.long{white-space:normal;min-width:14rem;text-align:left}
figure{margin:1rem 0} figure svg{max-width:100%;height:auto} .wide{overflow-x:auto}
"""

LONG = 40  # letters of a cell that may be broken into lines


class Page:
    """Headings, words, charts and tables, in the order in which they are given."""

    def __init__(self, title: str, about: str) -> None:
        self.markdown = [f"# {title}", "", about, ""]
        self.web = [f"<!doctype html><meta charset=utf-8><title>{html.escape(title)}</title><style>{STYLE}</style>"]
        self.web += [f"<h1>{html.escape(title)}</h1><p>{html.escape(about)}</p>"]
        self.files: dict[str, str | bytes] = {}

    def chart(self, name: str, chart: alt.TopLevelMixin | None, heading: str, text: str) -> None:
        from assay.report import figures

        if chart is None:
            return
        svg, png = figures.draw(chart)
        self.markdown += [f"## {heading}", "", text, "", f"![{heading}]({name}.png)", ""]
        self.web += [f"<h2>{heading}</h2><p>{html.escape(text, quote=False)}</p><figure>{svg}</figure>"]
        self.files |= {f"{name}.svg": svg, f"{name}.png": png}

    def table(self, heading: str, header: Sequence[str], rows: Iterable[Sequence[str]], text: str = "") -> None:
        rows = list(rows)
        self.markdown += [f"## {heading}", "", *([text, ""] if text else [])]
        self.markdown += [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
        self.markdown += [*(f"| {' | '.join(value.replace('|', '&#124;') for value in row)} |" for row in rows), ""]
        self.web += [f"<h2>{heading}</h2>{f'<p>{html.escape(text, quote=False)}</p>' if text else ''}"]
        self.web += ["<div class=wide><table><tr>", *(f"<th>{html.escape(name)}</th>" for name in header), "</tr>"]
        self.web += ["<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows]
        self.web += ["</table></div>"]

    def facts(self, facts: Sequence[str]) -> None:
        self.markdown += [*(f"- {fact}" for fact in facts), ""]
        self.web += ["<ul>", *(f"<li>{html.escape(fact)}</li>" for fact in facts), "</ul>"]

    def save(self, folder: Path) -> list[Path]:
        """Write the page and its charts; returns the files."""
        files = self.files | {"index.md": "\n".join(self.markdown), "index.html": "\n".join(self.web)}
        return [_save(folder / name, data) for name, data in sorted(files.items())]


def _cell(value: str) -> str:
    return f"<td{' class=long' if len(value) > LONG else ''}>{html.escape(value)}</td>"


def _save(path: Path, data: str | bytes) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}") from None
    return path
