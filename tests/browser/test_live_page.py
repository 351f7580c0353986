"""The page of `assay serve` in a browser: dots, curves and verdicts as they come; a stranger's names are text."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.live import server as live_server
from assay.store import Store
from tests.lab.waiting import wait_until
from tests.live.stores import IMAGE, SCRIPT, hostile, record, under_way
from tests.live.test_server import served

from .conftest import Browser


def dots(browser: Browser) -> str:
    script = "[...document.querySelectorAll('td.dots')].map(cell => cell.textContent).join(' ')"
    return str(browser.ask(script))


def test_a_study_that_runs_elsewhere(browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(live_server, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(live_server, "REST", 0)
    with under_way(tmp_path / "s") as (store, runs), served(store) as server:
        browser.open(server.address)
        wait_until(lambda: dots(browser) == "●!◌·", "the dots")
        summary = browser.one("#summary")
        assert summary.text == "2 of 4 runs ended (1 solved, 1 failed), 1 under way, about 0:10 left."
        assert browser.one("td.dots").get_attribute("aria-label") == "1 solved, 1 failed, 1 under way, 1 waiting"
        assert browser.one("td.dots span").get_attribute("title") == "seed 0: solved"
        wait_until(lambda: len(browser.all(".curves path[role]")) == 4, "two curves in each of two charts")
        label = browser.one(".curves path[role]").get_attribute("aria-label")
        assert label == "seed 1, rate 0.001: failed; 0.025 at step 40"
        assert "step 300 of 2,000" in browser.one(".says").text
        Store.create(store.path).add(record(runs[2], verdict="refuted", ended="2026-01-02"))
        wait_until(lambda: dots(browser) == "●!◆◌", "the third verdict, without loading the page again")
        assert browser.all(".news li")[0].text.endswith("parity lstm seed 2: refuted")
        assert set(browser.requests()) == {
            server.address + path for path in ("", "state.json", "curves.json?task=parity&model=lstm")
        }
        browser.resize(390)
        browser.open(server.address)
        wait_until(lambda: len(browser.all(".curves path[role]")) == 6, "the curves on a phone")
        assert browser.ask("document.documentElement.scrollWidth") <= 390


def test_a_curve_of_one_point_is_a_dot(browser: Browser, tmp_path: Path):
    with under_way(tmp_path / "s") as (store, runs), served(store) as server:
        ended = record(runs[2], ended="2026-01-02", verdict="censored", stopped="steps")
        Store.create(store.path).add(ended.model_copy(update={"curve": ended.curve[:1]}))
        browser.open(server.address)
        wait_until(lambda: len(browser.all(".curves path.point")) == 2, "a dot in each chart")
        (dot, _) = browser.all(".curves path.point")
        assert dot.get_attribute("d").endswith("h0")
        assert browser.ask("getComputedStyle(arguments[0]).strokeLinecap", dot) == "round"


def test_a_stranger_s_store(browser: Browser, tmp_path: Path):
    with served(hostile(tmp_path / "s")) as server:
        browser.open(server.address)
        wait_until(lambda: len(browser.all("td.dots")) == 2, "two groups")
        assert browser.all("main img, main script") == []
        text = browser.one("main").text
        assert IMAGE in text
        assert SCRIPT in text
        assert "\u202e" not in text
    wait_until(lambda: "does not answer" in browser.one(".trouble").text, "the end of the server")
    assert all("ERR_CONNECTION_REFUSED" in text for text in browser.complaints()), "that it is gone is all"
