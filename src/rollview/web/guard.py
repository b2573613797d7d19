"""Checks of every request: the host it names, the token, the origin of forms; and headers of every answer.

Any web page in the same browser could reach a page on this machine under a name that resolves to it (DNS
rebinding). So on loopback the request must name this machine.
"""

from __future__ import annotations

from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rollview.web.address import Access
from rollview.web.context import LARGEST_FORM
from rollview.web.rendering import Renderer

_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not `no-referrer`: browsers would not say then that a form is one of ours.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_THIS_MACHINE = {"127.0.0.1", "localhost", "::1"}
_OPEN = "/assets/"
_LONGEST_LENGTH = 16
SIGN_IN = "/sign-in"


class Guard:
    """Lets allowed requests through, and adds headers to every answer."""

    def __init__(self, app: ASGIApp, access: Access, renderer: Renderer) -> None:
        self._app = app
        self._access = access
        self._renderer = renderer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        refused = self._refusal(scope)
        await (self._app if refused is None else refused)(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        address = self._access.address
        if address.is_loopback and _name(host) not in {*_THIS_MACHINE, address.host}:
            return PlainTextResponse("This page answers only to the name of this machine.\n", 421)
        if scope["method"] not in ("GET", "HEAD"):
            origin = headers.get("origin")
            if origin is not None and not _is_from(origin, host):
                return PlainTextResponse("The form is not one of this page.\n", 403)
        if _length(headers) > LARGEST_FORM:
            return PlainTextResponse(f"A request has at most {LARGEST_FORM} bytes.\n", 413)
        return self._without_token(scope, headers)

    def _without_token(self, scope: Scope, headers: Headers) -> Response | None:
        """The answer to a request without a needed token."""
        if not self._access.token or scope["path"].startswith(_OPEN) or scope["path"] == SIGN_IN:
            return None
        asked = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
        given = asked.pop("token", None)
        if given is not None and scope["method"] == "GET":
            if not self._access.knows(given):
                return self._renderer.sign_in(401, is_wrong=True)
            # The address bar and the history should not keep it.
            # Two slashes at the front would lead to another machine.
            place = "/" + scope["path"].lstrip("/") + (f"?{urlencode(asked)}" if asked else "")
            return with_pass(RedirectResponse(place, 303), self._access)
        kind, _, bearer = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self._access.knows(bearer.strip()):
            return None
        if self._access.has_pass(_cookie(headers, cookie_name(self._access))):
            return None
        return self._renderer.sign_in(401, is_wrong=False)


def with_pass(response: Response, access: Access) -> Response:
    """Lets the browser keep that it has shown the token."""
    name = cookie_name(access)
    response.set_cookie(name, access.pass_value, httponly=True, samesite="strict", path="/")
    return response


def cookie_name(access: Access) -> str:
    """Browsers keep one jar for all ports of a host."""
    return f"rollview-{access.address.port}"


def _length(headers: Headers) -> int:
    text = headers.get("content-length", "0")
    return int(text) if text.isdecimal() and len(text) < _LONGEST_LENGTH else LARGEST_FORM + 1


def _is_from(origin: str, host: str) -> bool:
    """Whether an Origin header names the host that was asked."""
    try:
        return urlsplit(origin).netloc == host
    except ValueError:
        return False


def _name(host: str) -> str:
    """The name in a Host header, without the port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _cookie(headers: Headers, name: str) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", ""))
    except CookieError:
        return ""
    return found[name].value if name in found else ""
