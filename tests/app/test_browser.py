"""The page in a real browser: upload, slider, attacks, cancelling, two people, a broken file, a server that is gone."""

from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from app.site import MODELS, photo, running
from browser import Browser

FITS = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
COUNTED = "Array.from(document.querySelectorAll('.consistency')).every(cell => cell.textContent.endsWith('of 50'))"
RESTING = "document.getElementById('cancel').hidden"
STATUS = "document.getElementById('status').textContent"


@pytest.fixture(scope="module")
def home() -> Iterator[str]:
    with running() as (_, address):
        yield address


def wait_for(browser: Browser, condition: str) -> None:
    WebDriverWait(browser.driver, 90, poll_frequency=0.1).until(lambda _: browser.ask(condition))


def choose(browser: Browser, path: Path) -> None:
    browser.driver.find_element("id", "file").send_keys(str(path))
    wait_for(browser, "!document.getElementById('file-notes').textContent.startsWith('Reading')")


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "photo.png"
    path.write_bytes(photo())
    return path


@pytest.mark.parametrize("address", ["/", "/leak", "/search/", "/results"])
@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1200, "light")])
def test_every_view_fits_and_loads_nothing_from_elsewhere(
    browser: Browser, home: str, address: str, width: int, scheme: str
) -> None:
    browser.open(home + address, width=width, scheme=scheme)  # type: ignore[arg-type]
    assert browser.ask(FITS)
    colour = browser.ask("getComputedStyle(document.body).backgroundColor")
    assert (colour == "rgb(21, 24, 27)") == (scheme == "dark")
    fetched = browser.ask("performance.getEntriesByType('resource').map(entry => entry.name)")
    assert all(name.startswith((f"{home}/", "data:")) for name in fetched)
    fields = "Array.from(document.querySelectorAll('input:not([type=hidden]), select'))"
    assert browser.ask(f"{fields}.every(field => field.labels.length)")
    assert browser.ask("document.querySelectorAll('img:not([alt])').length") == 0
    assert browser.complaints() == []


def test_upload_slider_and_counting(browser: Browser, home: str, picture: Path) -> None:
    browser.open(f"{home}/", width=1000)
    choose(browser, picture)
    wait_for(browser, "document.getElementById('original').src.indexOf('sample') < 0")
    wait_for(browser, COUNTED)
    before = browser.ask("document.getElementById('shuffled').src")
    slider = browser.driver.find_element("id", "ratio")
    slider.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)  # with the keyboard
    assert browser.ask("document.getElementById('ratio-value').textContent") == "0.30"
    wait_for(browser, f"document.getElementById('shuffled').src != '{before}'")
    wait_for(browser, "document.getElementById('shuffled').src.includes('ratio=0.3&')")
    wait_for(browser, COUNTED)
    assert browser.complaints() == []


def test_attack_cancel_and_attack_again(browser: Browser, home: str, picture: Path) -> None:
    browser.open(f"{home}/leak", width=1000)
    choose(browser, picture)
    browser.ask(f"(document.getElementById('model').value = '{MODELS[0]}')")
    browser.ask("document.getElementById('start').click()")
    wait_for(browser, f"!{RESTING}")
    browser.ask("document.getElementById('cancel').click()")
    wait_for(browser, f"{RESTING} && {STATUS}.startsWith('Cancelled')")
    browser.ask("document.querySelector('[value=mjp]').click()")  # only the first defence is left
    browser.ask("document.getElementById('start').click()")
    wait_for(browser, f"{STATUS}.includes('attacks in')")
    assert browser.ask("document.querySelectorAll('#rows section').length") == 1
    assert browser.ask("document.querySelector('.verdict').textContent").startswith("exposed: direct")
    wait_for(browser, "Array.from(document.images).every(image => image.complete && image.naturalWidth > 0)")
    assert browser.ask("document.querySelectorAll('#rows img').length") == 3
    assert "--defences none --attacks" in browser.ask("document.getElementById('command').textContent")
    assert browser.ask(FITS)
    assert browser.complaints() == []


def test_a_broken_file_is_told_and_two_people_do_not_meet(
    browser: Browser, home: str, tmp_path: Path, picture: Path
) -> None:
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"not a picture")
    browser.open(f"{home}/", width=800)
    choose(browser, bad)
    wait_for(browser, "document.getElementById('upload-error').textContent.includes('cannot be read as a picture')")
    choose(browser, picture)
    wait_for(browser, "document.getElementById('upload-error').hidden")
    mine = browser.ask("sessionStorage.getItem('mjp-picture')")
    browser.driver.switch_to.new_window("window")  # another person has no picture of the first one
    try:
        browser.open(f"{home}/", width=800)
        wait_for(browser, COUNTED)
        assert mine not in browser.ask("document.getElementById('original').src")
    finally:
        browser.driver.close()
        browser.driver.switch_to.window(browser.driver.window_handles[0])


def test_a_server_that_is_gone_is_told(browser: Browser) -> None:
    with running((MODELS[0],)) as (_, address):
        browser.open(f"{address}/", width=800)
        wait_for(browser, COUNTED)
    browser.driver.find_element("id", "ratio").send_keys(Keys.ARROW_RIGHT)
    wait_for(browser, "document.getElementById('upload-error').textContent.includes('start mjp app again')")


def test_the_jigsaw_can_be_read_without_javascript(home: str) -> None:
    with urlopen(f"{home}/?ratio=0.5&seed=4") as answer:
        page = answer.read().decode()
    assert "/jigsaw.jpg?picture=sample&amp;ratio=0.5&amp;sampler=blockwise&amp;seed=4" in page
    assert page.count('class="text after"') == len(MODELS)
    assert "<noscript><p><button>Show" in page
