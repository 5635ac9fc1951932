"""Who may ask. Every answer, refusals too, carries the headers that lock a page down.

A request must name this machine: a foreign site that rebinds its own name to this address is turned away. Beyond
loopback it must also carry the token, in a cookie that opening /?token=TOKEN sets, or as "Authorization: Bearer TOKEN".
What changes something (any method but GET and HEAD) must come from a page of this server, if it comes from a browser.
"""

from hmac import compare_digest
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "mjp-token"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; img-src 'self' data:; style-src 'self'; script-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class Guard:
    """Around the application: refuses, or passes on and adds headers."""

    def __init__(self, app: ASGIApp, *, names: frozenset[str], port: int, token: str | None) -> None:
        """`names`: host names that mean this machine; with a token its addresses are accepted too."""
        self.app = app
        self.names = names
        self.port = port
        self.token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def locked(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refusal(scope) if scope["type"] == "http" else None
        await (refusal or self.app)(scope, receive, locked)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if not self._is_ours(headers.get("host", "").lower()):
            return PlainTextResponse("Misdirected request: this server only answers to its own name.\n", 421)
        if scope["method"] not in ("GET", "HEAD") and not _is_same_origin(headers):
            return PlainTextResponse("Refused: this request comes from another site.\n", 403)
        if self.token is None or self._knows(self.token, headers):
            return None
        sent = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if scope["path"] == "/" and _same(sent, self.token):
            return _remembering(self.token)
        text = "A token is needed: open the address that the command printed.\n"
        return PlainTextResponse(text, 401, headers={"WWW-Authenticate": "Bearer"})

    def _is_ours(self, host: str) -> bool:
        name, colon, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
        name = name if colon else host
        if (port if colon else "80") != str(self.port):
            return False
        if name in self.names:
            return True
        return self.token is not None and _is_address(name)  # a name can be rebound, an address cannot

    def _knows(self, token: str, headers: Headers) -> bool:
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            cookie = None
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        return _same(bearer, token) or (cookie is not None and _same(cookie.value, token))


def _remembering(token: str) -> Response:
    """To the page, without the token in its address."""
    answer = RedirectResponse("/", 303, headers={"Cache-Control": "no-store"})
    answer.set_cookie(COOKIE, token, httponly=True, samesite="strict")
    return answer


def _is_same_origin(headers: Headers) -> bool:
    """Browsers say where a request comes from; other programs need not."""
    origin = headers.get("origin")
    return origin is None or origin.lower() == f"http://{headers.get('host', '').lower()}"


def _same(sent: str, token: str) -> bool:
    return compare_digest(sent.encode(), token.encode())


def _is_address(name: str) -> bool:
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
