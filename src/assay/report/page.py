"""A page in the making: Markdown and one self-contained HTML file that say the same, with charts beside them."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from assay.description import BadInput
from assay.report import figures

STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}
table{border-collapse:collapse;font-size:14px;margin:1rem 0}
th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid #ddd;white-space:nowrap}
th:nth-child(-n+2),td:nth-child(-n+2),th:last-child,td:last-child{text-align:left}
td.long{white-space:normal;min-width:14rem;text-align:left}
figure{margin:1rem 0} figure svg{max-width:100%;height:auto} .wide{overflow-x:auto}
@media(max-width:40rem){figure{overflow-x:auto} figure svg{max-width:none}}
"""

LONG = 40  # letters of a cell that may be broken into lines
DRAWING = ThreadPoolExecutor(1)


# On a telephone: as wide as the screen, instead of a shrunken page for a large one.
HEAD = '<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content="width=device-width">'


class Shaded(NamedTuple):
    """A cell that the web page colours: white for a share of 0, blue for 1."""

    text: str
    share: float


class Figure(NamedTuple):
    """A picture as SVG and PNG, and the part of the web page after which it stands."""

    name: str
    place: int
    drawn: Future[tuple[str, bytes]]


class Page:
    """Headings, words, charts and tables, in the order in which they are given."""

    def __init__(self, title: str, about: str, style: str = STYLE) -> None:
        self.markdown = [f"# {_in_markdown(title)}", "", _text(about), ""]
        self.web = [f"{HEAD}<title>{html.escape(title)}</title><style>{style}</style>"]
        self.web += [f"<h1>{html.escape(title)}</h1><p>{html.escape(about)}</p>"]
        self.files: dict[str, str | bytes] = {}
        self.figures: list[Figure] = []

    def words(self, heading: str, text: str) -> None:
        self.web += [self._head(heading, text)]

    def chart(self, name: str, chart: figures.Chart | None, heading: str, text: str) -> None:
        """A chart; another thread draws it while the page goes on."""
        if chart is not None:
            self._figure(name, DRAWING.submit(figures.draw, chart), heading, text)

    def picture(self, name: str, svg: str, png: bytes, heading: str, text: str) -> None:
        """A picture that is given as SVG and as PNG."""
        drawn: Future[tuple[str, bytes]] = Future()
        drawn.set_result((svg, png))
        self._figure(name, drawn, heading, text)

    def _figure(self, name: str, drawn: Future[tuple[str, bytes]], heading: str, text: str) -> None:
        self.web += [self._head(heading, text)]
        self.markdown += [f"![{_in_markdown(heading) or name}]({name}.png)", ""]
        self.figures.append(Figure(name, len(self.web) - 1, drawn))

    def table(
        self,
        heading: str,
        header: Sequence[str],
        rows: Iterable[Sequence[str | Shaded]],
        text: str = "",
        kind: str = "",
    ) -> None:
        """A name or a value may have several lines; `kind` is a class of the page's style."""
        rows = list(rows)
        self.web += [self._head(heading, text)]
        self.markdown += [f"| {' | '.join(map(_in_markdown, header))} |", f"|{'---|' * len(header)}"]
        self.markdown += [*(f"| {' | '.join(map(_in_markdown, row))} |" for row in rows), ""]
        opened = f"<table class={kind}>" if kind else "<table>"
        self.web += [f"<div class=wide>{opened}<tr>", *(f"<th>{_lines(name)}</th>" for name in header), "</tr>"]
        self.web += ["<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows]
        self.web += ["</table></div>"]

    def _head(self, heading: str, text: str) -> str:
        """What stands above: written in Markdown, given as HTML; either may be left out."""
        self.markdown += [*([f"## {_in_markdown(heading)}", ""] if heading else [])]
        self.markdown += [*([_text(text), ""] if text else [])]
        title = f"<h2>{html.escape(heading, quote=False)}</h2>" if heading else ""
        return title + (f"<p>{html.escape(text, quote=False)}</p>" if text else "")

    def facts(self, facts: Sequence[str]) -> None:
        self.markdown += [*(f"- {_text(fact)}" for fact in facts), ""]
        self.web += ["<ul>", *(f"<li>{html.escape(fact)}</li>" for fact in facts), "</ul>"]

    def save(self, folder: Path) -> list[Path]:
        """Write the page and its charts; returns the files."""
        web, files = list(self.web), dict(self.files)
        for figure in self.figures:
            svg, png = figure.drawn.result()
            web[figure.place] += f"<figure>{svg}</figure>"
            files |= {f"{figure.name}.svg": svg, f"{figure.name}.png": png}
        files |= {"index.md": "\n".join(self.markdown), "index.html": "\n".join(web)}
        return [_save(folder / name, data) for name, data in sorted(files.items())]


def _text(value: str) -> str:
    return value.replace("<", "&lt;")


def _in_markdown(value: str | Shaded) -> str:
    """A name or a value, in which nothing is markup but its lines."""
    value = value.text if isinstance(value, Shaded) else value
    return _text(value).replace("|", "&#124;").replace("*", "\\*").replace("\n", "<br>")


def _cell(value: str | Shaded) -> str:
    shade = ""
    if isinstance(value, Shaded):
        value, share = value
        shade = f' style="background:rgba(66,146,198,{0.6 * share:.2f})"' if share else ""
    kind = " class=lines" if "\n" in value else " class=long" if len(value) > LONG else ""
    return f"<td{kind}{shade}>{_lines(value)}</td>"


def _lines(value: str) -> str:
    return html.escape(value).replace("\n", "<br>")


def _save(path: Path, data: str | bytes) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}") from None
    return path
