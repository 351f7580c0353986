"""A headless Chromium of this system, which can reach nothing but files and this machine."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

MISSING = "NOT TESTED IN A BROWSER: {} not installed (Debian: chromium chromium-driver; pip install 'assay[browser]')"
SWITCHES = (
    "headless=new",
    "no-sandbox",
    "disable-gpu",
    "disable-quic",
    "disable-dev-shm-usage",
    "no-first-run",
    "disable-background-networking",
    "disable-component-update",
    "disable-sync",
    "host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
    "window-size=1280,900",
)


class Browser:
    """A browser with one tab, and what the tests ask of it."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, address: str | Path) -> None:
        self.driver.get(address.as_uri() if isinstance(address, Path) else address)

    def ask(self, script: str, *arguments: Any) -> Any:
        """The value of a JavaScript expression."""
        return self.driver.execute_script(f"return {script}", *arguments)

    def all(self, selector: str) -> list[Any]:
        found: list[Any] = self.driver.find_elements("css selector", selector)
        return found

    def one(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def command(self, name: str, **options: Any) -> None:
        self.driver.execute_cdp_cmd(name, options)

    def prefer(self, scheme: str = "light", media: str = "") -> None:
        """The colours that the reader's system asks for, and screen or print."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.command("Emulation.setEmulatedMedia", media=media, features=features)

    def resize(self, width: int, height: int = 900) -> None:
        options = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.command("Emulation.setDeviceMetricsOverride", **options)

    def complaints(self) -> list[str]:
        """What the console says, since it was last asked."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """The addresses that pages asked for, since this was last asked; the browser's own are not among them."""
        messages = (json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance"))
        urls = (m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent")
        return [url for url in urls if not url.startswith(("chrome:", "data:"))]


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests; they are skipped where there is none."""
    programs = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
    except ImportError:
        programs.append("selenium")
    if programs:
        pytest.skip(MISSING.format(", ".join(programs)))
    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for switch in (*SWITCHES, f"user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(f"--{switch}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    try:
        driver = webdriver.Chrome(options=options, service=Service(str(shutil.which("chromedriver"))))
    except Exception as error:
        pytest.skip(f"NOT TESTED IN A BROWSER: chromium does not start: {str(error).splitlines()[0]}")
    driver.set_page_load_timeout(30)
    try:
        yield Browser(driver)
    finally:
        driver.quit()


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    """The browser as if it were new: light colours, a wide screen. At the end, no script may have complained."""
    chromium.complaints()
    chromium.requests()
    chromium.prefer()
    chromium.resize(1280)
    yield chromium
    assert chromium.complaints() == []
