"""Pages in a browser: tables, tooltips, the length slider, colours, keyboard, paper; nothing comes from elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.report.figures import marks, seed_map, square, styled
from assay.report.page import Page, Shaded
from tests.lab.waiting import wait_until

from .conftest import Browser

HEADER = ("task", "model", "solved", "accuracy", "steps", "note")
ROWS = [
    ("parity", "lstm", "3 of 5", "99.9", "1,200", "q10"),
    ("parity", "gru", "2 of 3", "100", "-", "q9"),
    ("dyck", "<b>bold</b>", "10 of 10", "8.5", "90", "q2"),
    ("dyck", "delta-net", "5 of 5", "100/99", "", ""),
    *((f"filler {i}", "lstm", "0 of 5", "0.0", "10", "q1") for i in range(8)),
]
LENGTHS = [
    {"task": "parity", "trained": 10, "lengths": [5, 10, 20, 40], "models": {"lstm": [100, 100, 99.9, 3.2]}},
    {"task": "copy", "trained": 10, "lengths": [5, 10], "models": {"lstm": [50.0, 40], "gru": [1, None]}},
]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with a chart of each kind of marks, a slider, and a long and a short table."""
    folder, made = tmp_path_factory.mktemp("page"), Page("A <page>", "It says & shows.")
    squares = [{"task": "parity", "model": name, **square(i, 3, f"{i} of 3")} for i, name in enumerate(("a", "b"))]
    made.chart("squares", styled(seed_map(squares, "task", ["parity"], ["a", "b"], named=True, size=12)), "Seeds", "")
    points = [{"x": x, "y": x / 7} for x in range(3)]
    places = {"x": {"field": "x", "type": "quantitative"}, "y": {"field": "y", "type": "quantitative"}}
    places["y"]["axis"] = {"format": "%"}  # type: ignore[assignment]
    made.chart("points", styled(marks(points, "point", places, color="#000000")), "Points", "")
    made.lengths(LENGTHS)
    made.table("All runs", HEADER, [*ROWS, ("mean", "", "", "50.0", "7", "")], totals=1)
    made.table("Short", ("", "share"), [("a", Shaded("90.0\n9 of 10", 0.9)), ("b", "10.0\n1 of 10"), ("c", "-")])
    made.words("End", "")
    made.facts(["Nothing more."])
    made.save(folder)
    return folder / "index.html"


def column(browser: Browser, number: int) -> list[str]:
    script = "[...document.querySelectorAll('#part-3 tr')].slice(1).map(row => row.cells[arguments[0]].textContent)"
    values: list[str] = browser.ask(script, number)
    return values


def test_tables_are_sorted_by_what_their_cells_mean(browser: Browser, page: Path):
    browser.open(page)
    buttons, own = browser.all("#part-3 th button"), column(browser, 1)
    sorts = "[...document.querySelectorAll('#part-3 th')].map(th => th.getAttribute('aria-sort'))"
    buttons[2].click()
    assert column(browser, 2)[:5] == ["10 of 10", "5 of 5", "2 of 3", "3 of 5", "0 of 5"]
    assert browser.ask(sorts) == [None, None, "descending", None, None, None]
    buttons[3].click()
    assert column(browser, 3)[:4] == ["100/99", "100", "99.9", "8.5"]
    assert browser.ask(sorts) == [None, None, None, "descending", None, None]
    buttons[4].click()
    assert column(browser, 4) == ["1,200", "90", *["10"] * 8, "-", "", "7"], "dashes last, and the mean after them"
    buttons[4].click()
    assert column(browser, 4) == [*["10"] * 8, "90", "1,200", "-", "", "7"]
    assert browser.ask(sorts)[4] == "ascending"
    buttons[5].click()
    assert column(browser, 5) == [*["q1"] * 8, "q2", "q9", "q10", "", ""]
    for _ in range(2):
        buttons[5].click()
    assert column(browser, 1) == own, "the third click restores the page's own order"
    assert browser.ask(sorts) == [None] * 6
    browser.one("#part-4 th:nth-child(2) button").click()
    assert [row.text for row in browser.all("#part-4 tbody td:first-child")] == ["a", "b", "c"]
    assert browser.one("#part-4 th:first-child button").get_attribute("aria-label") == "Sort by name"


def test_long_tables_are_filtered(browser: Browser, page: Path):
    browser.open(page)
    (box,) = browser.all(".filter input")
    assert browser.one(".filter label").get_attribute("for") == box.get_attribute("id")
    shown = "[...document.querySelectorAll('#part-3 tbody tr')].filter(row => row.checkVisibility()).length"
    assert browser.ask(shown) == 12
    box.send_keys("LSTM parity")
    assert browser.ask(shown) == 1
    assert browser.one(".filter output").text == "1 of 12 rows"
    box.clear()
    box.send_keys("<b>bold")
    assert browser.ask(shown) == 1
    assert browser.all("#part-3 td b") == [], "a name is text"
    assert browser.one("#part-3 tfoot td").is_displayed()


def test_charts_tell_their_values(browser: Browser, page: Path):
    from selenium.webdriver import ActionChains, Keys

    browser.open(page)
    tooltip = browser.one(".tooltip")
    assert not tooltip.is_displayed()
    squares, points = browser.all("figure")
    assert squares.get_attribute("aria-label") == "Seeds"
    mark = browser.all("figure [aria-roledescription='rect mark']")[1]
    ActionChains(browser.driver, duration=0).move_to_element(mark).perform()
    assert tooltip.text == "b, parity: 1 of 3"
    ActionChains(browser.driver, duration=0).move_to_element(browser.one("h1")).perform()
    assert not tooltip.is_displayed()
    points.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert tooltip.text == "x: 1\ny: 14.2%"
    points.send_keys(Keys.ARROW_LEFT)
    assert tooltip.text == "x: 0\ny: 0.0%"
    points.send_keys(Keys.ESCAPE)
    assert not tooltip.is_displayed()


def test_the_slider_shows_accuracies_at_a_length(browser: Browser, page: Path):
    from selenium.webdriver import Keys

    browser.open(page)
    slider = browser.one(".lengths input")

    def state() -> tuple[str, list[str], list[str]]:
        heads = [head.text.replace("\n", " ") for head in browser.all(".lengths thead th")[1:]]
        return browser.one(".lengths output").text, heads, [cell.text for cell in browser.all(".lengths td")]

    assert state() == ("20", ["parity at 20: 2x training", "copy not tested"], ["99.9", "-", "-", "-"])
    slider.send_keys(Keys.ARROW_RIGHT)
    assert state() == ("40", ["parity at 40: 4x training", "copy not tested"], ["3.2", "-", "-", "-"])
    slider.send_keys(Keys.HOME)
    heads = ["parity at 5: as in training", "copy at 5: as in training"]
    assert state() == ("5", heads, ["100", "50.0", "-", "1.0"])
    assert slider.get_attribute("aria-valuetext") == "length 5"


def colours(browser: Browser) -> tuple[bool, bool, bool]:
    """Whether the paper, the letters and a chart's letters are dark."""
    places = [["body", "backgroundColor"], ["body", "color"], ["text[fill='#000']", "fill"]]
    script = "arguments[0].map(([where, what]) => getComputedStyle(document.querySelector(where))[what])"
    texts = browser.ask(script, places)
    paper, ink, chart = (sum(map(int, text[4:-1].split(", "))) < 384 for text in texts)
    return paper, ink, chart


def test_light_and_dark(browser: Browser, page: Path):
    browser.open(page)
    assert colours(browser) == (False, True, True)
    browser.prefer("dark")
    assert colours(browser) == (True, False, False)
    switch = browser.one(".tools button")
    assert switch.accessible_name == "Switch to light colours"
    switch.click()
    assert colours(browser) == (False, True, True)

    def is_remembered() -> bool:
        browser.driver.refresh()
        if colours(browser) == (False, True, True):
            return True
        browser.one(".tools button").click()  # a busy Chromium may reload a page before it has stored the choice
        return False

    wait_until(is_remembered, "remembering the choice")
    browser.one(".tools button").click()
    browser.prefer("light")
    assert colours(browser) == (True, False, False)
    browser.prefer("dark", media="print")
    assert colours(browser) == (False, True, True), "paper is white"
    browser.ask("localStorage.clear()")


def test_everything_can_be_reached_with_the_keyboard(browser: Browser, page: Path):
    from selenium.webdriver import Keys

    browser.open(page)
    stops = list[str]()
    for _ in range(25):
        browser.driver.switch_to.active_element.send_keys(Keys.TAB)
        active = browser.driver.switch_to.active_element
        if active.tag_name == "body":
            break
        stops.append(f"{active.tag_name} {active.accessible_name}".strip())
        assert browser.ask("getComputedStyle(document.activeElement).outlineStyle") != "none", stops[-1]
    expected = [
        "a Skip to the content",
        "button Switch to dark colours",
        "summary Contents",
        "figure Seeds",
        "figure Points",
    ]
    expected += ["input Length", "input Filter rows", *(f"button {name}" for name in HEADER)]
    assert stops == [*expected, "button Sort by name", "button share"]
    browser.all("#part-3 th button")[4].send_keys(Keys.ENTER)
    assert column(browser, 4)[0] == "1,200"
    tables = browser.ask(
        "[...document.querySelectorAll('table')].map(t => [!!t.caption, !!t.tHead.querySelector('[scope=col]')])"
    )
    assert tables == [[True, True]] * 3
    assert len(browser.all("main")) == len(browser.all("h1")) == 1


@pytest.mark.parametrize("width", [1100, 390])
def test_a_long_title_leaves_room_for_the_button(browser: Browser, page: Path, width: int):
    browser.resize(width)
    browser.open(page)
    browser.driver.execute_script("document.querySelector('h1').textContent = 'a long title '.repeat(20)")
    script = """((range, button) => {
        range.selectNodeContents(document.querySelector('h1'));
        return [...range.getClientRects()].map(r => r.right > button.left && r.top < button.bottom);
    })(document.createRange(), document.querySelector('.tools button').getBoundingClientRect())"""
    lines = browser.ask(script)
    assert len(lines) > 1
    assert not any(lines)


def test_on_a_phone_and_on_paper(browser: Browser, page: Path):
    browser.resize(390)
    browser.open(page)
    assert browser.ask("document.documentElement.scrollWidth") <= 390
    wide = browser.one("#part-3 .wide")
    assert wide.size["width"] < browser.one("#part-3 table").size["width"]
    assert wide.get_attribute("tabindex") == "0", "its rest can be scrolled to"
    browser.resize(1000)
    browser.prefer(media="print")
    controls = ".tools, .filter, .lengths, .skip, .tooltip"
    assert not any(control.is_displayed() for control in browser.all(controls))
    assert browser.ask("getComputedStyle(arguments[0]).overflowX", wide) == "visible"


def test_a_page_needs_no_script(browser: Browser, page: Path):
    browser.command("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(page)
        assert browser.all("button, input") == []
        assert not browser.one(".lengths").is_displayed()
        assert browser.one("#part-3 tfoot td").is_displayed()
        assert browser.one("figure svg").is_displayed()
    finally:
        browser.command("Emulation.setScriptExecutionDisabled", value=False)


def test_nothing_is_fetched(browser: Browser, page: Path):
    browser.open(page)
    assert browser.requests() == [page.as_uri()]
    assert browser.ask("performance.getEntriesByType('resource').length") == 0
    assert browser.ask("document.fonts.size") == 0
    blocked = "fetch('http://127.0.0.1:9/').catch(() => 'refused')"
    assert browser.ask(blocked) == "refused"
    assert any("Content Security Policy" in text for text in browser.complaints()), "the page's own rule refuses it"
