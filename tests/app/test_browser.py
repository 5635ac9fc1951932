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


def open_first(browser: Browser, address: str, width: int) -> None:
    """Open a page in a tab that remembers nothing."""
    browser.open(address, width=width)
    browser.ask("sessionStorage.clear()")
    browser.open(address, width=width)


def click(browser: Browser, name: str) -> None:
    browser.driver.find_element("id", name).click()


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
    if address in ("/", "/leak"):  # nothing to scroll sideways for, in tables neither
        assert browser.ask("[...document.querySelectorAll('.scroll')].every(box => box.scrollWidth <= box.clientWidth)")
    colour = browser.ask("getComputedStyle(document.body).backgroundColor")
    assert (colour == "rgb(21, 24, 27)") == (scheme == "dark")
    fetched = browser.ask("performance.getEntriesByType('resource').map(entry => entry.name)")
    assert all(name.startswith((f"{home}/", "data:")) for name in fetched)
    fields = "Array.from(document.querySelectorAll('input:not([type=hidden]), select'))"
    assert browser.ask(f"{fields}.every(field => field.labels.length)")
    assert browser.ask("document.querySelectorAll('img:not([alt])').length") == 0
    assert browser.complaints() == []


def test_upload_slider_and_counting(browser: Browser, home: str, picture: Path) -> None:
    open_first(browser, f"{home}/", width=1000)
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
    wait_for(browser, "document.getElementById('spoken').textContent.includes('of 50 jigsaws')")
    wait_for(browser, "location.search.includes('ratio=0.3&')")
    browser.ask("document.getElementById('ratio').dispatchEvent(new Event('input', { bubbles: true }))")
    assert not browser.ask(COUNTED)  # a count never stands beside a jigsaw that it is not of
    wait_for(browser, COUNTED)
    assert browser.complaints() == []


def test_attack_cancel_and_attack_again(browser: Browser, home: str, picture: Path) -> None:
    open_first(browser, f"{home}/leak", width=1000)
    choose(browser, picture)
    browser.ask(f"(document.getElementById('model').value = '{MODELS[0]}')")
    browser.driver.find_element("id", "start").send_keys(Keys.ENTER)
    wait_for(browser, f"!{RESTING}")
    browser.driver.switch_to.active_element.send_keys(Keys.ENTER)  # the keyboard is on Cancel by now
    wait_for(browser, f"{RESTING} && {STATUS}.startsWith('Cancelled')")
    assert browser.ask("document.activeElement.id") == "start"
    assert "no verdict" in browser.ask("document.querySelector('#rows').textContent")
    browser.ask("document.querySelector('[value=mjp]').click()")  # only the first defence is left
    click(browser, "start")
    wait_for(browser, f"{STATUS}.includes('attacks are done')")
    assert browser.ask("[...document.querySelectorAll('#rows h2')].map(title => title.textContent)") == [
        *("The picture", "Data-free guess", "No defence")
    ]
    assert browser.ask("document.querySelector('.verdict').textContent").startswith("exposed direct")
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
    open_first(browser, f"{home}/", width=800)
    choose(browser, bad)
    wait_for(browser, "document.getElementById('problem').textContent.includes('cannot be read as a picture')")
    choose(browser, picture)
    wait_for(browser, "document.getElementById('problem').hidden")
    mine = browser.ask("JSON.parse(sessionStorage.getItem('mjp')).picture")
    browser.driver.switch_to.new_window("window")  # another person has no picture of the first one
    try:
        browser.open(f"{home}/", width=800)
        wait_for(browser, COUNTED)
        assert mine not in browser.ask("document.getElementById('original').src")
    finally:
        browser.driver.close()
        browser.driver.switch_to.window(browser.driver.window_handles[0])


def test_views_share_picture_and_settings_and_a_run_is_there_again(browser: Browser, home: str, picture: Path) -> None:
    open_first(browser, f"{home}/", width=1000)
    choose(browser, picture)
    browser.driver.find_element("id", "ratio").send_keys(Keys.ARROW_LEFT)
    wait_for(browser, COUNTED)
    browser.driver.find_element("link text", "Leak").click()
    assert browser.ask("document.getElementById('ratio-value').textContent") == "0.26"
    assert browser.ask("document.getElementById('file-notes').textContent") == "photo.png"
    assert "sample" not in browser.ask("document.getElementById('preview').src")
    click(browser, "start")
    wait_for(browser, f"!{RESTING}")
    link = browser.ask("location.href")
    assert "defence=none&defence=mjp&" in link
    browser.driver.find_element("link text", "Jigsaw").click()
    wait_for(browser, "!document.getElementById('original').src.includes('sample')")
    browser.driver.find_element("link text", "Leak").click()
    wait_for(browser, f"{STATUS}.includes('mjp:0.26')")  # the second defence of the run that was left
    click(browser, "cancel")
    wait_for(browser, RESTING)
    browser.ask("sessionStorage.clear()")
    browser.open(link, width=1000)
    assert browser.ask("document.getElementById('ratio').value") == "0.26"  # by the address alone


def test_after_a_restart_the_picture_is_missed_with_a_sentence(browser: Browser, home: str) -> None:
    open_first(browser, f"{home}/", width=800)
    wait_for(browser, COUNTED)
    browser.ask("sessionStorage.setItem('mjp', JSON.stringify({ picture: 'gone', file: 'gone.png', job: 'gone' }))")
    browser.open(f"{home}/", width=800)
    wait_for(browser, "document.getElementById('problem').textContent.includes('choose it again')")
    wait_for(browser, COUNTED)
    assert browser.ask("document.getElementById('original').src").endswith("/picture/sample")
    assert not browser.ask("document.getElementById('problem').hidden")
    browser.driver.find_element("id", "ratio").send_keys(Keys.ARROW_RIGHT)
    wait_for(browser, "document.getElementById('problem').hidden")


def test_a_server_that_is_gone_is_told(browser: Browser) -> None:
    with running((MODELS[0],)) as (_, address):
        open_first(browser, f"{address}/", width=800)
        wait_for(browser, COUNTED)
    browser.driver.find_element("id", "ratio").send_keys(Keys.ARROW_RIGHT)
    wait_for(browser, "document.getElementById('problem').textContent.includes('start mjp app again')")


def test_the_jigsaw_can_be_read_without_javascript(home: str) -> None:
    with urlopen(f"{home}/?ratio=0.5&seed=4") as answer:
        page = answer.read().decode()
    assert "/jigsaw.jpg?picture=sample&amp;ratio=0.5&amp;sampler=blockwise&amp;seed=4" in page
    assert page.count('class="text after') == len(MODELS)
    assert "<noscript><p><button>Show" in page
