"""Hooks of mkdocs.yml: pages for files outside of docs/ that pages link to, and the pages of the reference.

README.md is the start page. A file of the repository at PATH, if any page links to it, is the page source/PATH.
"""

from __future__ import annotations

import json
import posixpath
import re
from html import escape
from inspect import isfunction
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

import assay
from assay import ops

ROOT = Path(__file__).parent.parent
CARDS = sorted(ROOT.glob("reports/cards/*/index.html"))
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)")
MERMAID = re.compile(r"```mermaid\n.*?```", flags=re.S)
MARK = re.compile(r"<!-- /?[\w-]+ -->")  # around what scripts write; at the start of a line it would end a paragraph
UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n"
FIGURE = ("image/svg+xml", "text/html")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the start page, the reference, interactive pages that `assay report` has written, and files linked to."""
    generated = {"reference/assay.md": public_names(), "reference/ops.md": operators(), "gallery.md": gallery()}
    for card in CARDS:
        for name in ("index.html", "badge.svg"):
            path = str(card.parent / name)
            files.append(File.generated(config, f"gallery/{card.parent.name}/{name}", abs_src_path=path))
    for name, text in generated.items():
        files.append(File.generated(config, name, content=text))
    for page in ROOT.glob("reports/*/index.html"):
        folder = f"pages/{page.parent.name}"
        if files.get_file_from_path(f"{folder}/index.md"):
            files.append(File.generated(config, f"{folder}/interactive.html", abs_src_path=str(page)))
    waiting = ["README.md", *(f"docs/{file.src_uri}" for file in files.documentation_pages() if file.abs_src_path)]
    done = set()
    while waiting:
        path = waiting.pop()
        if path in done or not (ROOT / path).exists():
            continue
        done.add(path)
        text = page_text(path)
        if not path.startswith("docs/"):
            uri = site_path(path)
            inclusion = InclusionLevel.INCLUDED if uri in str(config.nav) else InclusionLevel.NOT_IN_NAV
            files.append(File.generated(config, uri, content=text, inclusion=inclusion))
        links = (posixpath.normpath(posixpath.join(posixpath.dirname(path), link)) for link in LINK.findall(text))
        waiting += [link for link in links if not link.startswith("docs/") or link.endswith(".md")]
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links to files become links to their pages, drawings in Mermaid tables; a study's page names its other form."""
    here = page.file.src_uri
    if here.startswith(("reference/", "gallery")):
        return markdown
    folder = posixpath.dirname(repository_path(here))

    def moved(link: re.Match[str]) -> str:
        target = site_path(posixpath.normpath(posixpath.join(folder, link[0])))
        return posixpath.relpath(target, posixpath.dirname(here) or ".")

    markdown = MARK.sub("", MERMAID.sub(lambda drawing: arrows(drawing[0]), LINK.sub(moved, markdown)))
    interactive = posixpath.join(posixpath.dirname(here), "interactive.html")
    if files.get_file_from_path(interactive):
        heading, _, rest = markdown.partition("\n")
        markdown = f"{heading}\n\n[Interactive page](interactive.html): sort and filter tables, read charts.\n{rest}"
    return markdown


def site_path(path: str) -> str:
    """The page of the site for a path of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path == "README.md":
        return "index.md"
    if (ROOT / path).suffix == ".md":
        return f"source/{path}"
    return f"source/{path.replace('.', '-')}.md"


def repository_path(uri: str) -> str:
    """The path of the repository that a page of the site shows, as far as its folder is concerned."""
    if uri == "index.md":
        return "README.md"
    return uri.removeprefix("source/") if uri.startswith("source/") else f"docs/{uri}"


def page_text(path: str) -> str:
    """A file of the repository as Markdown."""
    file = ROOT / path
    if file.suffix == ".md":
        return file.read_text()
    if file.suffix == ".ipynb":
        return notebook(file)
    if file.is_dir():
        names = sorted(child.name for child in file.iterdir() if child.suffix == ".py")
        return f"{UNSEARCHED}# {path}\n\n" + "\n".join(f"- `{name}`" for name in names)
    language = "python" if file.suffix == ".py" else "text"
    return f"{UNSEARCHED}# {path}\n\n````{language}\n{file.read_text()}````\n"


def notebook(file: Path) -> str:
    """The cells of a notebook with their outputs."""
    parts = []
    for cell in json.loads(file.read_text())["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        parts += [output_html(output) for output in cell.get("outputs", [])]
    return "\n\n".join(parts)


def output_html(output: dict[str, Any]) -> str:
    """An output of a cell in its richest form."""
    data = output.get("data", {"text/plain": output.get("text", "")})
    for kind in FIGURE:
        if kind in data:
            return f"<div>{''.join(data[kind])}</div>".replace("\n\n", "\n")
    return f"<pre>{escape(''.join(data['text/plain']))}</pre>".replace("\n\n", "\n&#8203;\n")


def arrows(drawing: str) -> str:
    """The arrows of a drawing in Mermaid as a table: the script that draws them would come from the network."""
    targets: dict[str, list[str]] = {}
    for start, end in re.findall(r"(\w+) --> (\w+)", drawing):
        targets.setdefault(start, []).append(f"`{end}`")
    rows = (f"| `{start}` | {', '.join(ends)} |" for start, ends in targets.items())
    return "\n".join(["| package | imports |", "|---|---|", *rows])


def gallery() -> str:
    """The page of the cards that `make site` has made."""
    parts = [
        "# A gallery of cards\n\nThe reference architectures on the battery of [cards](cards.md) at laptop scale.\n"
    ]
    for path in CARDS:
        card, place = json.loads((path.parent / "card.json").read_text()), f"gallery/{path.parent.name}"
        verdicts = "".join(f"- {sentence.replace('*', chr(92) + '*')}\n" for sentence in card["verdicts"])
        parts.append(f"## {path.parent.name}\n\n![]({place}/badge.svg) [The card]({place}/index.html)\n\n{verdicts}")
    return "\n".join(parts if CARDS else [*parts, "No card has been made yet; `make site` makes them."])


def public_names() -> str:
    """The page of the names in `assay`, functions first."""
    names = sorted({*assay.__all__} - {"named_task"}, key=lambda name: (name[0].isupper(), name))  # `task` is the same
    return "# assay\n\n" + "\n".join(entry(f"assay.{name}", getattr(assay, name)) for name in names)


def operators() -> str:
    """The page of the functions in `assay.ops`."""
    values = sorted(vars(ops).items())
    functions = {name: value for name, value in values if isfunction(value) and name[0].islower()}
    return f"# assay.ops\n\n{ops.__doc__}\n" + "\n".join(entry(f"assay.ops.{n}", f) for n, f in functions.items())


def entry(name: str, value: Any) -> str:
    """The directive for a public name; `value` says where it is defined."""
    return f'::: {value.__module__}.{value.__qualname__}\n    options:\n      heading: "{name}"\n'
