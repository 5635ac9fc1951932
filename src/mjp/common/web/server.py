"""The socket that a page is served from, and deadlines for clients that are slow on purpose.

Without --host only this machine can connect. Nothing is logged: queries are private.
"""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from mjp.common.errors import InputError
from mjp.common.validate import whole
from mjp.common.web.guard import Guard

TIMEOUT = 20.0  # seconds
MAX_PORT = 65535
MAX_CONNECTIONS = 100
MIN_TOKEN = 16  # characters
LOOPBACK = "127.0.0.1"


class Server:
    """A listening socket and what answers on it; `run` blocks until `stop` or Ctrl-C."""

    def __init__(self, app: ASGIApp, listening: socket.socket) -> None:
        self.listening = listening
        self.port: int = listening.getsockname()[1]
        settings: dict[str, Any] = {"lifespan": "off", "log_config": None, "access_log": False, "server_header": False}
        limits: dict[str, Any] = {"limit_concurrency": MAX_CONNECTIONS, "timeout_graceful_shutdown": 2}
        self.uvicorn = uvicorn.Server(uvicorn.Config(app, http=Deadline, ws="none", **settings, **limits))

    def run(self) -> None:
        self.uvicorn.run(sockets=[self.listening])

    def stop(self) -> None:
        self.uvicorn.should_exit = True


@contextmanager
def make_server(app: ASGIApp, *, host: str = LOOPBACK, port: int = 0, token: str | None = None) -> Iterator[Server]:
    """A server that is listening; port 0 takes any free one. Beyond loopback a token is needed."""
    whole("--port", port, most=MAX_PORT)
    check_token(host, token)
    with listen(host, port) as listening:
        names = {"localhost", LOOPBACK, "[::1]"} if is_loopback(host) else {"localhost", socket.gethostname().lower()}
        guard = {"names": frozenset(names), "port": listening.getsockname()[1], "token": token}
        yield Server(Guard(app, **guard), listening)


def address_of(server: Server, *, host: str = LOOPBACK, token: str | None = None) -> str:
    """What a person opens in a browser."""
    name = LOOPBACK if host in ("0.0.0.0", "localhost") else f"[{host}]" if ":" in host else host
    return f"http://{name}:{server.port}/" + (f"?token={token}" if token else "")


def check_token(host: str, token: str | None) -> None:
    if token is None and not is_loopback(host):
        raise InputError(f"--host {host} lets other machines connect: give them a --token of your choice as well")
    if token is not None and (len(token) < MIN_TOKEN or not token.isascii() or not token.isalnum()):
        raise InputError(f"--token needs at least {MIN_TOKEN} letters and digits")


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((LOOPBACK if host == "localhost" else host, port), family=family, backlog=128)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while")[0]  # create_server adds the address, named here
        raise InputError(f"port {port} of {host} cannot be used ({reason}): choose another one with --port") from error


class Deadline(H11Protocol):
    """Cuts a connection that has started no new request within TIMEOUT seconds, however slowly it sends or reads.

    uvicorn itself waits for ever for the rest of a request. A request therefore gets one to two TIMEOUTs in total.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._look_again(self.cycle)

    def _look_again(self, request: object) -> None:
        self.watch = self.loop.call_later(TIMEOUT, self._cut_if_still, request)

    def _cut_if_still(self, request: object) -> None:
        if self.transport.is_closing():
            return
        if self.cycle is request:
            self.transport.abort()
        else:
            self._look_again(self.cycle)

    def connection_lost(self, exc: Exception | None) -> None:
        self.watch.cancel()
        super().connection_lost(exc)
