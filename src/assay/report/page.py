"""A page in the making: Markdown and one self-contained HTML file that say the same, with charts beside them."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from assay.errors import BadInput
from assay.report import figures
from assay.report.document import STYLE, compact, contents, document

__all__ = ["MATRIX_STYLE", "STYLE", "Page", "Shaded"]

MATRIX_STYLE = """
table.matrix th,table.matrix td{text-align:center;padding:.25rem .45rem}
table.matrix th:first-child,table.matrix td:first-child{text-align:left}
table.matrix td{font-size:12.5px;line-height:1.35}
"""  # of a table of kind `matrix`: names down, and the same kind of cell in all other columns
MARK = "assay-theme"  # in the script of every page
LONG = 40  # letters of a cell that may be broken into lines
DRAWING = ThreadPoolExecutor(1)


class Shaded(NamedTuple):
    """A cell that the web page colours: white for a share of 0, blue for 1."""

    text: str
    share: float


class Figure(NamedTuple):
    """A picture as SVG and PNG, what it shows, and the part of the web page after which it stands."""

    name: str
    place: int
    shows: str
    drawn: Future[tuple[str, bytes]]


class Page:
    """Headings, words, charts and tables, in the order in which they are given."""

    def __init__(self, title: str, about: str, style: str = STYLE) -> None:
        self.title, self.style = title, style
        self.markdown = [f"# {_in_markdown(title)}", "", _text(about), ""]
        self.web = [f"<h1>{html.escape(title)}</h1><p>{html.escape(about)}</p>"]
        self.headings: list[str] = []
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
        self.figures.append(Figure(name, len(self.web) - 1, heading or name, drawn))

    def lengths(self, accuracies: Sequence[dict[str, Any]]) -> None:
        """A table of the accuracies at a length that the reader chooses, where scripts run; see `figures.accuracies`.

        It stands below a chart of the same numbers, and Markdown has only that.
        """
        if accuracies:
            data = json.dumps(accuracies, separators=(",", ":")).replace("<", "\\u003c")
            self.web += [f"<div class=lengths hidden><script type=application/json>{data}</script></div>"]

    def table(
        self,
        heading: str,
        header: Sequence[str],
        rows: Iterable[Sequence[str | Shaded]],
        text: str = "",
        kind: str = "",
        totals: int = 0,
    ) -> None:
        """A name or a value may have several lines; `kind` is a class of the page's style.

        The last `totals` rows sum the others up: they stay last when a reader sorts the table.
        """
        rows, columns = list(rows), len(header)
        words = {i for i in range(2, columns - 1) if not any(_is_number(row[i]) for row in rows)}
        self.web += [self._head(heading, text)]
        self.markdown += [f"| {' | '.join(map(_in_markdown, header))} |", f"|{'---|' * len(header)}"]
        self.markdown += [*(f"| {' | '.join(map(_in_markdown, row))} |" for row in rows), ""]
        title = html.escape(heading or next(reversed(self.headings), self.title))
        self.web += [
            f'<div class=wide role=region aria-label="{title}">',
            f"<table class={kind}>" if kind else "<table>",
        ]
        self.web += [f"<caption class=hidden>{title}</caption><thead><tr>"]
        headings = (
            f"<th scope=col{_kind('words' * (i in words))}>{_lines(name)}</th>" for i, name in enumerate(header)
        )
        self.web += [*headings, "</tr></thead>"]
        body = len(rows) - totals
        for name, part in (("tbody", rows[:body]), ("tfoot", rows[body:])):
            if part:
                cells = ("".join(_cell(value, i in words) for i, value in enumerate(row)) for row in part)
                self.web += [f"<{name}>", *(f"<tr>{row}</tr>" for row in cells), f"</{name}>"]
        self.web += ["</table></div>"]

    def _head(self, heading: str, text: str) -> str:
        """What stands above: written in Markdown, given as HTML; either may be left out."""
        self.markdown += [*([f"## {_in_markdown(heading)}", ""] if heading else [])]
        self.markdown += [*([_text(text), ""] if text else [])]
        title = ""
        if heading:
            self.headings.append(heading)
            title = f"</section><section id=part-{len(self.headings)}><h2>{html.escape(heading, quote=False)}</h2>"
        return title + (f"<p>{html.escape(text, quote=False)}</p>" if text else "")

    def facts(self, facts: Sequence[str]) -> None:
        self.markdown += [*(f"- {_text(fact)}" for fact in facts), ""]
        self.web += ["<ul>", *(f"<li>{html.escape(fact)}</li>" for fact in facts), "</ul>"]

    def save(self, folder: Path) -> list[Path]:
        """Write the page and its charts; returns the files. BadInput if the folder has another page."""
        index = folder / "index.html"
        if index.is_file() and MARK not in index.read_text(errors="replace"):
            raise BadInput(f"{index} is not a page of Assay; name another folder with --out")
        web, files = list(self.web), dict(self.files)
        for figure in self.figures:
            svg, png = figure.drawn.result()
            web[figure.place] += f'<figure aria-label="{html.escape(figure.shows)}">{compact(svg)}</figure>'
            files |= {f"{figure.name}.svg": svg, f"{figure.name}.png": png}
        web[0] += f"{contents(self.headings)}<section>"
        page = document(self.title, [*web, "</section>"], self.style)
        files |= {"index.md": "\n".join(self.markdown), "index.html": page}
        return [_save(folder / name, data) for name, data in sorted(files.items())]


def _text(value: str) -> str:
    return value.replace("<", "&lt;")


def _in_markdown(value: str | Shaded) -> str:
    """A name or a value, in which nothing is markup but its lines."""
    value = value.text if isinstance(value, Shaded) else value
    return _text(value).replace("|", "&#124;").replace("*", "\\*").replace("\n", "<br>")


def _is_number(value: str | Shaded) -> bool:
    """Whether a cell begins with a number, or is empty or a dash; a column without any such cell is of words."""
    text = value.text if isinstance(value, Shaded) else value
    return text in ("", "-") or text.lstrip("-+x ")[:1].isdigit()


def _cell(value: str | Shaded, in_words: bool) -> str:
    shade = ""
    if isinstance(value, Shaded):
        value, share = value
        shade = f' style="background:rgba(66,146,198,{0.6 * share:.2f})"' if share else ""
    kind = "lines" if "\n" in value else "long" if len(value) > LONG else "words" if in_words else ""
    return f"<td{_kind(kind)}{shade}>{_lines(value)}</td>"


def _kind(name: str) -> str:
    return f" class={name}" if name else ""


def _lines(value: str) -> str:
    return html.escape(value).replace("\n", "<br>")


def _save(path: Path, data: str | bytes) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}") from None
    return path
