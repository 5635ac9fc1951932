"""Take the picture of `mjp app` for the README, with Chromium and its driver on PATH:

    python tools/draw_app.py docs/pictures/app.png

The view Leak with the shipped model and the embedded picture that it begins with, after all attacks: minutes.
"""

import shutil
import sys
import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mjp  # noqa: F401  before torchvision

# isort: split
from PIL import Image
from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

from mjp.app.serve import serving

SETTINGS: dict[str, Any] = {"index": None, "results": (), "host": "127.0.0.1", "port": 0, "token": None}
MODELS = ("mini-cifar10-plain", "mini-cifar10-mjp")
LINK = "leak?defence=none&defence=mjp&ratio=0.27"
OVER = "document.getElementById('status').textContent.includes('attacks are done')"
LOADED = "Array.from(document.images).every(image => image.complete)"
WIDTH = 1200
PATIENCE = 1800  # seconds
ARGUMENTS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage")


def draw(target: Path) -> None:
    with serving(MODELS, **SETTINGS) as (server, address), TemporaryDirectory() as folder:
        thread = threading.Thread(target=server.run)
        thread.start()
        driver = _open_browser(folder)
        try:
            _attack(driver, address + LINK)
            driver.save_screenshot(str(Path(folder) / "app.png"))
            with Image.open(Path(folder) / "app.png") as file:
                file.convert("RGB").quantize(256).save(target, optimize=True)
        finally:
            driver.quit()
            server.stop()
            thread.join()


def _open_browser(folder: str) -> Any:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for argument in (*ARGUMENTS, f"--user-data-dir={folder}/profile"):
        options.add_argument(argument)
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))


def _attack(driver: Any, address: str) -> None:
    """Open the page, run its attacks, and make the window as high as the page."""
    _resize(driver, 900)
    driver.get(address)
    driver.find_element("id", "start").click()
    wait = WebDriverWait(driver, PATIENCE, poll_frequency=0.5)
    wait.until(lambda _: driver.execute_script(f"return {OVER} && {LOADED}"))
    driver.execute_script("document.activeElement.blur()")
    _resize(driver, driver.execute_script("return document.documentElement.scrollHeight"))


def _resize(driver: Any, height: int) -> None:
    size = {"width": WIDTH, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
