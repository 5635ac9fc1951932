"""The server: only this machine is answered, strangers need a token, and a slow client is cut off."""

import http.client
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from aladin.search.site import Site, make_site, running
from mjp.aladin.model.aladin import Aladin
from mjp.common.errors import InputError
from mjp.common.web import server as module
from mjp.common.web.server import Server, is_loopback

TOKEN = "0123456789abcdef"


@pytest.fixture(scope="module")
def site(model: Aladin, tmp_path_factory: pytest.TempPathFactory) -> Site:
    return make_site(tmp_path_factory.mktemp("server"), model)


@pytest.fixture(scope="module")
def server(site: Site) -> Iterator[Server]:
    with running(site) as server:
        yield server


def ask(
    port: int, address: str, host: str | None = None, method: str = "GET", **headers: str
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.putrequest(method, address, skip_host=True)
    if host != "":
        connection.putheader("Host", host or f"127.0.0.1:{port}")
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response, body


def test_it_listens_on_this_machine_only(server: Server) -> None:
    assert server.listening.getsockname()[0] == "127.0.0.1"


def test_only_names_of_this_machine_are_answered(server: Server) -> None:
    port = server.port
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"LocalHost:{port}", f"[::1]:{port}"):
        assert ask(port, "/", host)[0].status == 200
    strangers = ("evil.example", f"evil.example:{port}", f"127.0.0.1.evil.example:{port}", "127.0.0.1", "", "[::1]")
    for host in (*strangers, f"10.0.0.1:{port}", f"user@localhost:{port}"):
        response, body = ask(port, "/", host)
        assert response.status in (400, 421)
        assert b"pictures" not in body


def test_every_answer_is_locked_down(server: Server, site: Site) -> None:
    for address, host in (
        ("/", None),
        ("/page.css", None),
        (f"/thumb/{site.id()}", None),
        ("/no", None),
        ("/", "evil"),
    ):
        response, _ = ask(server.port, address, host)
        policy = response.headers["Content-Security-Policy"]
        directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
        assert directives == {
            **{"default-src": "'none'", "img-src": "'self' data:", "style-src": "'self'", "script-src": "'self'"},
            **{"form-action": "'self'", "base-uri": "'none'", "frame-ancestors": "'none'"},  # in no other page's frame
        }
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert response.headers["Access-Control-Allow-Origin"] is None
        assert response.headers["Server"] is None
    assert ask(server.port, "/", method="POST")[0].status == 405


def test_head_is_get_without_the_body(server: Server, site: Site) -> None:
    for address in ("/", f"/thumb/{site.id()}", "/nowhere"):
        (full, body), (head, _) = ask(server.port, address), ask(server.port, address, method="HEAD")
        assert (head.status, head.headers["Content-Length"]) == (full.status, str(len(body)))
    assert ask(server.port, "/", "evil.example", method="HEAD")[0].status == 421


def test_who_does_not_listen_does_no_harm(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(f"GET /page.css HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n".encode())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # it ends with a reset
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(b"\x00\xff nonsense\r\n\r\n")
        assert b" 400 " in client.recv(100)
    assert ask(server.port, "/page.css")[0].status == 200
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("complete", [False, True])
def test_a_slow_client_is_cut_off(site: Site, monkeypatch: pytest.MonkeyPatch, complete: bool) -> None:
    """A byte now and then must not keep a connection open, neither sent nor read."""

    async def big(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(200):
            await send({"type": "http.response.body", "body": b"x" * 1_000_000, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    monkeypatch.setattr(module, "TIMEOUT", 0.3)
    with running(site, app=big) as server, socket.create_connection(("127.0.0.1", server.port)) as client:
        client.settimeout(5)
        client.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n".encode())
        client.sendall(b"\r\n" if complete else b"")
        began, connections = time.monotonic(), server.uvicorn.server_state.connections
        while not connections:
            time.sleep(0.01)
        with suppress(ConnectionError):
            while connections and time.monotonic() - began < 5:
                if complete:
                    time.sleep(0.02)
                    client.recv(10)
                else:
                    client.sendall(b"x")
                    time.sleep(0.05)
        assert time.monotonic() - began < 3


def test_beyond_this_machine_nobody_is_answered_without_the_token(site: Site) -> None:
    with running(site, host="0.0.0.0", token=TOKEN) as server:
        port = server.port
        for address in (
            "/",
            "/api/search?q=sky",
            f"/thumb/{site.id()}",
            f"/?token={TOKEN}x",
            f"/page.css?token={TOKEN}",
        ):
            assert ask(port, address)[0].status == 401
        entered, _ = ask(port, f"/?token={TOKEN}", f"192.168.0.7:{port}")
        assert (entered.status, entered.headers["Location"]) == (303, "/")
        cookie = entered.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "samesite=strict" in cookie.lower()
        assert ask(port, "/?q=sky", Cookie=cookie.split(";")[0])[0].status == 200
        assert ask(port, "/api/status", Authorization=f"Bearer {TOKEN}")[0].status == 200
        assert ask(port, "/api/status", Authorization=f"Bearer {TOKEN[:-1]}")[0].status == 401
        assert ask(port, "/api/status", f"evil.example:{port}", Authorization=f"Bearer {TOKEN}")[0].status == 421


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"host": "0.0.0.0"}, "--token"),
        ({"host": "192.168.0.7"}, "--token"),
        ({"host": "localhost.evil.example"}, "--token"),
        ({"token": "short"}, "at least 16"),
        ({"token": "spaces and ; signs in it"}, "letters and digits"),
        ({"host": "203.0.113.9", "token": TOKEN}, "cannot be used"),
        ({"port": 70000}, "--port must be"),
    ],
)
def test_a_server_that_would_be_open_or_cannot_be_is_refused(
    site: Site, settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence), running(site, **settings):
        pass


def test_a_port_that_is_taken_is_named(site: Site, server: Server) -> None:
    sentence = rf"^port {server.port} of 127.0.0.1 cannot be used \([^()]*\): choose another one with --port$"
    with pytest.raises(InputError, match=sentence), running(site, port=server.port):
        pass


def test_which_addresses_are_this_machine() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "localhost", "::1")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example.org", "")))


def test_a_missing_package_is_named(
    indexed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from mjp.cli.main import main

    monkeypatch.setitem(__import__("sys").modules, "mjp.common.web.server", None)
    assert main(["aladin", "serve", str(indexed)]) == 2
    assert "mjp[serve]" in capsys.readouterr().err
