"""The page: nothing leaves this machine, nothing outside the index is shown, nothing foreign runs. And it works."""

import http.client
import shutil
import socket
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from PIL import Image

from aladin.gallery import draw_picture, make_gallery, take_in
from browser import Browser
from mjp.aladin.index.scan import content_hash
from mjp.aladin.index.store import Index
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.search import server as module
from mjp.aladin.search.searcher import PictureSearch
from mjp.aladin.search.server import make_server
from mjp.aladin.search.site import MAX_QUERY, Answer, Site
from mjp.common.errors import InputError
from mjp.pictures import thumbnails

SCRIPT = "<img src=x onerror=document.title='gone'>.png"
QUERY = "a red sky over the <b>green</b> ground"


@pytest.fixture(scope="module")
def site(model: Aladin, tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("site")
    draw_picture(make_gallery(folder / "pictures", 7) / SCRIPT, 40)
    Image.new("RGB", (8, 8), "red").save(folder / "secret.png")
    take_in(folder / "pictures", folder / "index", model)
    return Site(PictureSearch(folder / "index", model), k=5, rerank=8)


@pytest.fixture(scope="module")
def port(site: Site) -> Iterator[int]:
    server = make_server(site, 0)
    assert server.server_address[0] == "127.0.0.1"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


def picture_id(site: Site, name: str = SCRIPT) -> str:
    return content_hash(site.searcher.folder.parent / "pictures" / name)


def ask(
    port: int, address: str, host: str | None = None, method: str = "GET"
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.putrequest(method, address, skip_host=True)
    if host != "":
        connection.putheader("Host", host or f"127.0.0.1:{port}")
    connection.endheaders()
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response, body


def test_thumbnails_are_known_by_id(site: Site) -> None:
    answer = site.answer(f"/thumb/{picture_id(site)}")
    assert (answer.status, answer.kind) == (200, "image/jpeg")
    assert Image.open(BytesIO(answer.body)).size == (320, 267)


@pytest.mark.parametrize(
    "address",
    [
        *("/thumb/../secret.png", "/thumb/..%2Fsecret.png", "/thumb/%2Fetc%2Fpasswd", "/thumb//etc/passwd", "/thumb/"),
        *(
            "/thumb/secret.png",
            "/../secret.png",
            "/secret.png",
            "/page.css/../page.html",
            "/page/page.html",
            "//etc/passwd",
        ),
        *(
            "/thumb/' OR '1'='1",
            "/thumb/%00",
            "/why/../secret.png?q=a",
            "/why/x?q=a",
            "/why/",
            "/index.json",
            "/thumb/" + "a" * 9999,
        ),
    ],
)
def test_nothing_but_the_index_is_shown(site: Site, address: str) -> None:
    assert site.answer(address).status == 404


@pytest.mark.parametrize("word", ["-1", "99", "x", "²", "1.5", "9" * 5000])
def test_words_that_are_not_there(site: Site, word: str) -> None:
    assert site.answer(f"/why/{picture_id(site)}?q=red+sky&word={quote(word)}").status == 404


def test_queries_without_a_word_get_a_sentence(site: Site) -> None:
    page = site.answer("/?q=%3F%21").body.decode()
    assert "contains no word" in page
    assert site.answer(f"/why/{picture_id(site)}?q=%3F%21").status == 404


def test_what_people_wrote_is_escaped(site: Site) -> None:
    page = site.answer(f"/?q={quote(QUERY)}&id={picture_id(site)}").body.decode()
    assert "<b>green" not in page
    assert "<img src=x" not in page
    assert "&lt;img src=x" in page
    attack = site.answer("/?q=" + quote('"><script>alert(1)</script> dog')).body.decode()
    assert "<script" not in attack


def test_the_page_says_how_many_were_re_ranked(site: Site) -> None:
    assert "The nearest 8 by vector" in site.answer("/?q=sky").body.decode()
    assert "The nearest 8 by vector" in replace(site, rerank=99).answer("/?q=sky").body.decode()  # there are no more
    plain = replace(site, rerank=0).answer("/?q=sky").body.decode()
    assert "By vector" in plain
    assert "Re-ranked" not in plain


def test_the_page_says_when_it_has_not_read_all_of_a_query(site: Site) -> None:
    def cut(query: str) -> bool:
        return "the end was not read" in site.answer("/?q=" + quote(query)).body.decode()

    assert not cut("red sky")
    assert not cut("")
    assert not cut("?!")
    assert cut("red sky " * 60)  # more words than the model reads
    assert cut("sky" + "!" * MAX_QUERY)


def test_an_unknown_id_is_no_error(site: Site) -> None:
    page = site.answer("/?q=sky&id=" + quote("'\"><script>")).body.decode()
    assert "By vector" in page
    assert "why-title" not in page
    assert "<script" not in page


def test_a_picture_that_has_gone_is_missing_and_the_rest_stays(model: Aladin, site: Site, tmp_path: Path) -> None:
    pictures = make_gallery(tmp_path / "pictures", 3)
    take_in(pictures, tmp_path / "index", model)
    moved = Site(PictureSearch(tmp_path / "index", model))
    picture = content_hash(pictures / "b" / "02.png")
    shutil.rmtree(pictures / "b")
    assert moved.answer(f"/thumb/{picture}").status == 404
    assert moved.answer("/?q=sky").status == 200
    Index(tmp_path / "index").delete(ids=[picture])
    assert picture not in moved.answer("/?q=sky").body.decode()  # it looks at the index anew


def test_an_index_of_another_model_is_refused(tmp_path: Path, model: Aladin, indexed: Path) -> None:
    shutil.copytree(indexed, tmp_path / "index")
    facts = (tmp_path / "index" / "index.json").read_text()
    (tmp_path / "index" / "index.json").write_text(facts.replace(model.hash, "0" * 16))
    with pytest.raises(InputError, match="another model"):
        Site(PictureSearch(tmp_path / "index", model))


def test_an_index_of_another_model_is_refused_when_it_comes_later(
    tmp_path: Path, model: Aladin, indexed: Path, gallery: Path
) -> None:
    shutil.copytree(indexed, tmp_path / "index")
    site, picture = Site(PictureSearch(tmp_path / "index", model)), content_hash(gallery / "b" / "00.png")
    addresses = ("/", "/?q=sky", f"/thumb/{picture}", f"/why/{picture}?q=sky")
    assert all(site.answer(address).status == 200 for address in addresses)
    facts = (tmp_path / "index" / "index.json").read_text()
    (tmp_path / "index" / "index.json").write_text(facts.replace(model.hash, "0" * 16))
    for address in addresses:
        with pytest.raises(InputError, match="another model"):
            site.answer(address)


def test_what_is_no_address_and_who_does_not_listen(port: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(port, "http://[/")[0].status == 400
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(f"GET /page.css HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n".encode())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # it ends with a reset
    assert ask(port, "/page.css")[0].status == 200
    for thread in [each for each in threading.enumerate() if "process_request" in each.name]:
        thread.join()
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("reads", [False, True])
def test_a_slow_client_does_not_hold_a_thread_past_the_timeout(
    site: Site, monkeypatch: pytest.MonkeyPatch, reads: bool
) -> None:
    """A byte now and then renews a timeout per read, and must not renew the deadline of a request."""
    monkeypatch.setattr(module, "TIMEOUT", 0.6)
    big = Answer(200, "text/plain", b"x" * 50_000_000)
    monkeypatch.setattr(Site, "answer", lambda self, address: big)
    server = make_server(site, 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", server.server_port)) as client:
        client.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{server.server_port}\r\n".encode())
        if reads:  # the request is complete, and the answer is taken a few bytes at a time
            client.sendall(b"\r\n")
        with suppress(ConnectionError):
            while time.monotonic() - began < 5:
                client.sendall(b"" if reads else b"x")
                if reads and not client.recv(1):
                    break
                time.sleep(0.1)
                if not any("process_request" in thread.name for thread in threading.enumerate()):
                    break
    seconds = time.monotonic() - began
    server.shutdown()
    server.server_close()
    assert seconds < 3


def test_a_thumbnail_is_decoded_once_and_not_many_at_a_time(
    model: Aladin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures = make_gallery(tmp_path / "pictures", 6)
    take_in(pictures, tmp_path / "index", model)
    site = Site(PictureSearch(tmp_path / "index", model))
    decoding, most, total, lock = [0], [0], [0], threading.Lock()
    open_rgb = thumbnails.open_rgb

    def slow(path: Path, **settings: Any) -> Image.Image:
        with lock:
            decoding[0] += 1
            total[0] += 1
            most[0] = max(most[0], decoding[0])
        time.sleep(0.05)
        with lock:
            decoding[0] -= 1
        return open_rgb(path, **settings)

    monkeypatch.setattr(thumbnails, "open_rgb", slow)
    addresses = [f"/thumb/{content_hash(path)}" for path in sorted(pictures.rglob("*.png"))] * 3
    with ThreadPoolExecutor(18) as pool:
        assert {answer.status for answer in pool.map(site.answer, addresses)} == {200}
    assert total[0] == 6
    assert most[0] == 2


def test_pictures_beyond_the_pixel_limit_are_not_shown(model: Aladin, tmp_path: Path) -> None:
    pictures = make_gallery(tmp_path / "pictures", 1)
    take_in(pictures, tmp_path / "index", model)
    (path,) = pictures.rglob("*.png")
    for limit, status in ((48 * 40, 200), (48 * 40 - 1, 404)):
        site = Site(PictureSearch(tmp_path / "index", model, max_pixels=limit))
        assert site.answer(f"/thumb/{content_hash(path)}").status == status
        assert site.answer(f"/why/{content_hash(path)}?q=sky").status == status
        assert site.answer(f"/?q=sky&id={content_hash(path)}").status == 200


def test_vectors_stay_mapped_until_the_index_changes(model: Aladin, tmp_path: Path) -> None:
    pictures = make_gallery(tmp_path / "pictures", 3)
    take_in(pictures, tmp_path / "index", model)
    searcher = PictureSearch(tmp_path / "index", model)
    mapped = searcher.index.chunks
    assert searcher.index.chunks is mapped
    searcher.index.delete(ids=[content_hash(pictures / "a" / "01.png")])
    assert searcher.index.chunks is not mapped
    assert len(searcher) == 2


def test_only_names_of_this_machine_are_answered(port: int) -> None:
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"LocalHost:{port}"):
        assert ask(port, "/", host)[0].status == 200
    for host in ("evil.example", f"evil.example:{port}", f"127.0.0.1.evil.example:{port}", "127.0.0.1", ""):
        response, body = ask(port, "/", host)
        assert response.status == 421
        assert b"pictures" not in body


def test_every_answer_is_locked_down(port: int, site: Site) -> None:
    for address in ("/", "/page.css", f"/thumb/{picture_id(site)}", "/nowhere"):
        response, _ = ask(port, address)
        policy = response.headers["Content-Security-Policy"]
        directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
        assert directives == {
            **{"default-src": "'none'", "img-src": "'self' data:", "style-src": "'self'", "form-action": "'self'"},
            **{"base-uri": "'none'", "frame-ancestors": "'none'"},  # no page may put this one into a frame
        }
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert response.headers["Access-Control-Allow-Origin"] is None
    assert ask(port, "/", method="POST")[0].status == 501


def test_head_is_get_without_the_body(port: int, site: Site) -> None:
    for address in ("/", f"/thumb/{picture_id(site)}", "/nowhere"):
        (full, body), (head, _) = ask(port, address), ask(port, address, method="HEAD")
        assert (head.status, head.headers["Content-Length"]) == (full.status, str(len(body)))
    assert ask(port, "/", "evil.example", method="HEAD")[0].status == 421
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client, client.makefile("rb") as answer:
        client.sendall(f"HEAD / HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        assert answer.read().endswith(b"\r\n\r\n")  # http.client would not look further


# in a browser


@pytest.mark.parametrize("width", [360, 1300])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_in_a_browser(browser: Browser, site: Site, port: int, width: int, scheme: str) -> None:
    address = f"http://127.0.0.1:{port}/?q={quote(QUERY)}&id={picture_id(site)}"
    browser.open(address, width=width, scheme=scheme)  # type: ignore[arg-type]
    assert browser.complaints() == []
    assert browser.ask("document.title") == QUERY + " – mjp aladin"  # no script ran, nothing was swallowed
    assert browser.ask("document.querySelectorAll('b, script').length") == 0
    assert browser.ask("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    names = browser.ask("Array.from(document.querySelectorAll('.name'), part => part.textContent)")
    assert SCRIPT in names
    assert len(names) == 10  # five by vector, five re-ranked
    browser.ask("document.querySelectorAll('img').forEach(image => { image.loading = 'eager' })")  # below the fold too
    loaded = "Array.from(document.images).every(image => image.complete && image.naturalWidth > 0)"
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser.driver, 60).until(lambda _: browser.ask(loaded))
    words = browser.ask("Array.from(document.querySelectorAll('.whys strong'), part => part.textContent)")
    assert words == ["a", "red", "sky", "over", "the", "b", "green", "b", "ground"]
    fetched = browser.ask("performance.getEntriesByType('resource').map(entry => entry.name)")
    assert all(name.startswith((f"http://127.0.0.1:{port}/", "data:")) for name in fetched)


def test_one_can_type_and_choose(browser: Browser, port: int) -> None:
    browser.open(f"http://localhost:{port}/", width=1000)
    assert browser.ask("document.activeElement.id") == "q"
    browser.driver.switch_to.active_element.send_keys("green ground\n")
    assert browser.ask("document.querySelectorAll('.columns section').length") == 2
    browser.ask("document.querySelector('.cards a').click()")
    assert browser.ask("document.querySelectorAll('.whys figure').length") == 3
    assert browser.complaints() == []
