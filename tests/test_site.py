"""The site of the docs: it builds without a warning, its links lead somewhere, and it needs no other host."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

import assay
from assay import ops

ROOT = Path(__file__).parent.parent
FETCHED = {"src", "srcset", "data", "poster", "action", "xlink:href"}  # attributes that a browser follows by itself
REMOTE = re.compile(r"(?:https?:)?//")


class Links(HTMLParser):
    """What a page links to, what it fetches, and the anchors that it has."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.fetched: set[str] = set()
        self.anchors = {""}
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values.get("id", ""), values.get("name", "")}
        if tag in ("a", "area") and "href" in values:
            self.links.add(values["href"])
        elif "href" in values:
            self.fetched.add(values["href"])
        self.fetched |= {value for name, value in values.items() if name in FETCHED}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True))
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Links]:
    return {page: Links(page.read_text()) for page in site.rglob("*.html")}


def test_every_link_inside_leads_somewhere(site: Path, pages: dict[Path, Links]):
    assert len(pages) > 25
    broken = []
    for page, found in pages.items():
        for link in found.links | found.fetched:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            folder = site if page.name == "404.html" else page.parent  # that page is shown at any address
            target = (folder / unquote(parts.path).lstrip("/")).resolve() if parts.path else page
            known = target in pages and unquote(parts.fragment) in pages[target].anchors | {"__skip"}
            if not (known or (target not in pages and target.is_file())):
                broken.append(f"{page.relative_to(site)}: {link}")
    assert not broken


def test_nothing_comes_from_another_host(site: Path, pages: dict[Path, Links]):
    remote = {link for found in pages.values() for link in found.fetched if REMOTE.match(link)}
    styles = [file.read_text() for file in [*site.rglob("*.css"), *site.rglob("*.html")]]
    remote |= {url for text in styles for url in re.findall(r"(?:url\(|@import )[\"']?((?:https?:)?//[^)\"']+)", text)}
    assert not remote


def test_the_reference_has_every_public_name(site: Path):
    public = {assay: {*assay.__all__} - {"named_task"}, ops: {*ops.OPERATORS, *ops.FUSIONS, "backend_for"}}
    for module, names in public.items():
        page = (site / "reference" / f"{module.__name__.removeprefix('assay.')}.html").read_text()
        headings = {re.sub("<[^>]+>|&para;", "", text).strip() for text in re.findall(r"(?s)<h2.*?>(.*?)</h2>", page)}
        assert headings >= {f"{module.__name__}.{name}" for name in names}
