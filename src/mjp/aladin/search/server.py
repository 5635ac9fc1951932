"""An HTTP server for a site, for users of this machine only.

It listens on 127.0.0.1 and answers to no other host name (a foreign site that rebinds its own name to this address is
turned away). Its pages load nothing from elsewhere and run no script. A request must arrive, and an answer must be
taken, within TIMEOUT seconds in total, however slowly a client sends or reads.
"""

from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedReader, RawIOBase
from socket import socket
from time import monotonic
from typing import Any

from mjp.aladin.search.site import Answer, Site, text_answer
from mjp.common.errors import InputError
from mjp.common.validate import whole

TIMEOUT = 20.0
MAX_PORT = 65535
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; img-src 'self' data:; style-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
MISDIRECTED = text_answer(421, "Misdirected request: this server only answers requests to localhost.")


def make_server(site: Site, port: int) -> ThreadingHTTPServer:
    """A server for this machine only; port 0 takes any free one. The caller runs it."""
    whole("--port", port, most=MAX_PORT)

    class Handler(_Handler):
        def answer(self) -> Answer:
            return site.answer(self.path) if self.headers.get("Host", "").lower() in hosts else MISDIRECTED

    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except OSError as error:
        raise InputError(f"port {port} cannot be used ({error.strerror}): choose another one with --port") from error
    hosts = {f"{name}:{server.server_port}" for name in ("127.0.0.1", "localhost")}
    if server.server_port == 80:
        hosts |= {"127.0.0.1", "localhost"}
    return server


class _Handler(BaseHTTPRequestHandler):
    """Reads one request and sends one answer."""

    server_version = "mjp"
    sys_version = ""

    def answer(self) -> Answer:
        raise NotImplementedError

    def setup(self) -> None:
        super().setup()
        self.rfile = BufferedReader(_Deadline(self.connection, TIMEOUT))

    def handle(self) -> None:
        with suppress(ConnectionError, TimeoutError):  # a browser that has lost interest, or never had any
            super().handle()

    def do_GET(self) -> None:
        try:
            self._send(self.answer())
        except InputError as error:  # the index is gone, or another model's now
            self._send(text_answer(500, str(error)))

    do_HEAD = do_GET  # the same answer without its body

    def _send(self, answer: Answer) -> None:
        self.connection.settimeout(TIMEOUT)  # of a whole sendall, not of each packet
        self.send_response(answer.status)
        for key, value in {**HEADERS, "Content-Type": answer.kind}.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Queries are private: nothing is logged."""


class _Deadline(RawIOBase):
    """A socket's input, with one timeout for all of it. A timeout per read would let a client send for ever."""

    def __init__(self, connection: socket, seconds: float) -> None:
        self.connection = connection
        self.end = monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        left = self.end - monotonic()
        if left <= 0:
            raise TimeoutError("the request took too long")
        self.connection.settimeout(left)
        return self.connection.recv_into(buffer)
