"""The page in a real browser, from the disk: nothing fails, nothing overflows, the pictures are there."""

from pathlib import Path
from typing import Literal

import pytest
from PIL import Image

from browser import Browser
from mjp.report.page import render
from mjp.report.runs import collect
from mjp.report.sections import KINDS
from report.folders import (
    CORRUPTIONS,
    evaluated,
    masking,
    retrieval,
    write_bench,
    write_eval,
    write_retrieval,
    write_study,
)

LONG = "/a/rather/deep/folder/of-a-run/" + 60 * "x"
CARDS = (".card:not(.themed)", ".card.themed")
MODELS = ("out/plain", "out/mjp", "<b>bold</b>", LONG)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("report")
    models = {name: evaluated(robustness={"corruptions": CORRUPTIONS}) for name in MODELS}
    found = {name: retrieval(160.0, masking=masking()) for name in MODELS}
    folders = [write_eval(folder / "eval", models, data=LONG), write_study(folder / "study", MODELS)]
    folders += [write_retrieval(folder / "retrieval", found), write_bench(folder / "bench", LONG)]
    Image.new("RGB", (1200, 400), (21, 24, 27)).save(folder / "eval" / "sweep-dark.png")
    runs = collect(folders, kinds=KINDS)
    path = folder / "a page.html"
    path.write_text(render(runs, title="Four models"), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(params=[(w, s) for w in (360, 800, 1400) for s in ("light", "dark")], ids=lambda p: f"{p[0]}-{p[1]}")
def shown(request: pytest.FixtureRequest, browser: Browser, address: str) -> Browser:
    width: int
    scheme: Literal["light", "dark"]
    width, scheme = request.param
    browser.open(address, width=width, scheme=scheme)
    assert browser.ask("innerWidth") == width
    assert browser.ask(f"matchMedia('(prefers-color-scheme: {scheme})').matches")
    return browser


def test_nothing_fails_and_nothing_is_fetched(shown: Browser) -> None:
    assert shown.ask("document.title") == "Four models"
    assert shown.complaints() == []
    fetched = shown.ask("performance.getEntriesByType('resource').map(entry => entry.name)")
    assert [name for name in fetched if not name.startswith("data:")] == []


def test_nothing_overflows(shown: Browser) -> None:
    assert shown.ask("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    shown.ask("document.querySelectorAll('details').forEach(part => { part.open = true })")
    assert shown.ask("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_the_pictures_are_there(shown: Browser) -> None:
    widths = shown.ask("Array.from(document.images, image => [image.complete, image.naturalWidth, image.width])")
    assert len(widths) == 8
    assert all(complete and natural == 1200 and width >= 300 for complete, natural, width in widths)


def test_wide_tables_scroll_in_their_own_container(browser: Browser, address: str) -> None:
    browser.open(address, width=360)
    wide = "Array.from(document.querySelectorAll('.scroll')).filter(part => part.scrollWidth > part.clientWidth)"
    assert browser.ask(f"{wide}.length") > 4
    assert browser.ask(f"{wide}.every(part => part.tabIndex === 0 && part.getAttribute('aria-label'))")


def test_dark_is_dark(browser: Browser, address: str) -> None:
    """Figures too, if they have a dark version; pictures on white paper keep it."""
    grounds = {}
    browser.open(address, width=800)
    light = browser.ask("document.querySelector('.themed img').getAttribute('src')")
    dark = browser.ask("document.querySelector('.themed source').getAttribute('srcset')")
    assert light != dark
    for scheme in ("light", "dark"):
        browser.open(address, width=800, scheme=scheme)
        grounds[scheme] = browser.ask("getComputedStyle(document.body).backgroundColor")
        cards = [browser.ask(f"getComputedStyle(document.querySelector('{name}')).backgroundColor") for name in CARDS]
        assert cards == ["rgb(255, 255, 255)", "rgb(255, 255, 255)" if scheme == "light" else "rgb(21, 24, 27)"]
        source = browser.ask("document.querySelector('.themed img').currentSrc")
        assert source == (light if scheme == "light" else dark)
    assert grounds == {"light": "rgb(253, 252, 250)", "dark": "rgb(21, 24, 27)"}


def test_the_keyboard_finds_the_skip_link_first(browser: Browser, address: str) -> None:
    browser.open(address, width=800)
    browser.driver.switch_to.active_element.send_keys("\ue004")  # tab
    assert browser.ask("document.activeElement.className") == "skip"
    assert browser.ask("document.activeElement.getBoundingClientRect().top >= 0")


def test_a_complaint_would_be_heard(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "bad.html").write_text("<!doctype html><img src='missing.png'><script>throw 1</script>")
    browser.open((tmp_path / "bad.html").as_uri(), width=800)
    assert len(browser.complaints()) == 2


def test_a_phone_shows_accuracy_and_consistency_without_scrolling(browser: Browser, address: str) -> None:
    browser.open(address, width=390)
    heads = "Array.from(document.querySelectorAll('#summary thead th')).slice(0, 3)"
    assert max(browser.ask(f"{heads}.map(head => head.getBoundingClientRect().right)")) <= 390
    shades = browser.ask("getComputedStyle(document.querySelector('#summary .scroll')).backgroundAttachment")
    assert shades == "local, local, scroll, scroll"  # a shadow shows that the table goes on
