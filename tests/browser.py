"""A headless Chromium for tests of pages, and what they ask of it.

Without a browser on PATH such a test is skipped; with MJP_REQUIRE_BROWSER=1 it fails instead.
"""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

ARGUMENTS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)


@dataclass(frozen=True)
class Browser:
    driver: Any

    def open(self, address: str, *, width: int, scheme: Literal["light", "dark"] = "light") -> None:
        """Show a page in a window of this width."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        wish = {"name": "prefers-color-scheme", "value": scheme}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [wish]})
        self.driver.get_log("browser")  # what earlier pages said
        self.driver.get(address)

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression on the page."""
        return self.driver.execute_script(f"return {expression}")

    def complaints(self) -> list[str]:
        """What the console shows as an error, failed requests among them."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]

    def screenshot(self, path: Path) -> None:
        """The whole page, not just the window."""
        height = self.ask("document.documentElement.scrollHeight")
        size = {"width": self.ask("innerWidth"), "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.save_screenshot(str(path))


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    chromedriver = shutil.which("chromedriver")
    if not chromium or not chromedriver:
        reason = "no chromium and chromedriver on PATH (Debian: apt-get install chromium chromium-driver)"
        (pytest.fail if os.environ.get("MJP_REQUIRE_BROWSER") == "1" else pytest.skip)(reason)
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in (*ARGUMENTS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=chromedriver))
    yield Browser(driver)
    driver.quit()
