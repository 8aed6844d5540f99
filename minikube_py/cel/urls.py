"""URLs as Go's net/url parses them, with its error messages. Source: Go `net/url/url.go`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from minikube_py.cel.addresses import NoAddress, read_address
from minikube_py.cel.values import URL, EvaluationError, go_quote

_UNRESERVED: Final = "-_.~"
_PATH: Final = "$&+,/:;=@" + _UNRESERVED
_RAW_PATH: Final = re.compile(r"[A-Za-z0-9\-_.~!$&'()*+,;=:@\[\]%/]*")
_HOST: Final = "!$&'()*+,;=:[]<>\"" + _UNRESERVED
_USER: Final = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9a-fA-F]{2})(?s:.{0,2})")
_PORT: Final = re.compile(r"(?::[0-9]*)?")


class BadURL(Exception):
    """An invalid URL, with Go's message."""


def _unescaped(text: str) -> str:
    wrong = _BAD_ESCAPE.search(text)
    if wrong:
        raise BadURL(f"invalid URL escape {go_quote(wrong[0])}")
    return unquote_to_bytes(text).decode(errors="surrogateescape")


def _unescaped_host(text: str) -> str:
    at = 0
    while at < len(text):
        char = text[at]
        if char == "%":
            escape = text[at : at + 3]
            if _BAD_ESCAPE.match(text, at) or (int(escape[1:], 16) < 0x80 and escape != "%25"):
                raise BadURL(f"invalid URL escape {go_quote(escape)}")
            at += 3
            continue
        if char.isascii() and not char.isalnum() and char not in _HOST:
            raise BadURL(f"invalid character {go_quote(char)} in host name")
        at += 1
    return _unescaped(text)


def _scheme(text: str) -> tuple[str, str]:
    for i, char in enumerate(text):
        if char.isascii() and char.isalpha():
            continue
        if char in "0123456789+-.":
            if i == 0:
                break
        elif char == ":":
            if i == 0:
                raise BadURL("missing protocol scheme")
            return text[:i].lower(), text[i + 1 :]
        else:
            break
    return "", text


def _host(scheme: str, text: str) -> str:
    if text.rfind("[") > 0:
        raise BadURL("invalid IP-literal")
    if text.startswith("["):
        end = text.rfind("]")
        if end < 0:
            raise BadURL("missing ']' in host")
        port = text[end + 1 :]
        if _PORT.fullmatch(port) is None:
            raise BadURL(f"invalid port {go_quote(port)} after host")
        name, percent, zone = text[1:end].partition("%25")
        name = _unescaped_host(name) + (_unescaped(percent + zone) if percent else "")
        try:
            if read_address(name).version == 4:
                raise BadURL("invalid IP-literal")
        except NoAddress as error:
            raise BadURL(f"invalid host: {error}") from None
        return f"[{name}]{port}"
    colon = text.find(":")
    if colon >= 0:
        port = text[colon if scheme in ("http", "https") else text.rfind(":") :]
        if _PORT.fullmatch(port) is None:
            raise BadURL(f"invalid port {go_quote(port)} after host")
    return _unescaped_host(text)


def _parsed(text: str, requested: bool) -> URL:
    """`requested`: as in a request: absolute, fragments not parsed."""
    if any(ord(char) < 0x20 or char == "\x7f" for char in text):
        raise BadURL("net/url: invalid control character in URL")
    if not text and requested:
        raise BadURL("empty url")
    if text == "*":
        return URL("*", "", "", "*", "")
    scheme, rest = _scheme(text)
    rest, asks, query = rest.partition("?")
    tail = f"?{query}" if asks else ""
    if not rest.startswith("/"):
        if scheme:
            return URL(f"{scheme}:{rest}{tail}", scheme, "", "", query)
        if requested:
            raise BadURL("invalid URI for request")
        if ":" in rest.partition("/")[0]:
            raise BadURL("first path segment in URL cannot contain colon")
    user = host = ""
    double = rest.startswith("//") and (scheme != "" or (not requested and not rest.startswith("///")))
    if double:
        authority, slash, path = rest[2:].partition("/")
        rest = slash + path
        user, at, host = authority.rpartition("@")
        host = _host(scheme, host)
        if at:
            if _USER.fullmatch(user) is None:
                raise BadURL("net/url: invalid userinfo")
            _unescaped(user)
            user += at
    path = _unescaped(rest)
    escaped = rest if _RAW_PATH.fullmatch(rest) else quote(path, safe=_PATH, errors="surrogateescape")
    before = f"{scheme}:" if scheme else ""
    if double and (host or user or escaped):
        before += "//"
    return URL(f"{before}{user}{quote(host, safe=_HOST)}{escaped}{tail}", scheme, host, escaped, query)


def url_of(text: str) -> Any:
    said = "URL parse error during conversion from string: parse "
    whole, _, fragment = text.partition("#")
    asked = text
    try:
        _parsed(text, requested=True)
        asked = whole
        found = _parsed(whole, requested=False)
        asked = text
        return replace(found, text=f"{found.text}#{fragment}") if fragment and _unescaped(fragment) else found
    except BadURL as error:
        return EvaluationError(f"{said}{go_quote(asked)}: {error}")


class GoURL(NamedTuple):
    """`user` None: there is none."""

    scheme: str
    user: str | None
    host: str
    path: str
    query: str
    fragment: str


def go_url(text: str) -> GoURL:
    """As url.Parse. Raises: BadURL."""
    whole, _, fragment = text.partition("#")
    found = _parsed(whole, requested=False)
    authority = found.text.partition("//")[2].partition("/")[0] if found.host or "@" in found.text else ""
    user, at, _ = authority.rpartition("@")
    return GoURL(found.scheme, user if at else None, found.host, found.path, found.query, _unescaped(fragment))


def url_problem(text: str) -> str | None:
    """Why it is no URL of a request."""
    try:
        _parsed(text, requested=True)
    except BadURL as error:
        return f"parse {go_quote(text)}: {error}"
    return None


def _host_and_port(url: URL) -> tuple[str, str]:
    host, port = url.host, ""
    colon = host.rfind(":")
    if colon >= 0 and _PORT.fullmatch(host[colon:]):
        host, port = host[:colon], host[colon + 1 :]
    return (host[1:-1] if host.startswith("[") and host.endswith("]") else host), port


def _query(url: URL) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for part in url.query.split("&"):
        name, _, value = part.partition("=")
        if not part or ";" in part or _BAD_ESCAPE.search(part):
            continue
        name, value = (_unescaped(each.replace("+", " ")) for each in (name, value))
        found.setdefault(name, []).append(value)
    return found


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "string_to_url": url_of,
    "is_url_string": lambda text: url_problem(text) is None,
    "url_get_scheme": lambda url: url.scheme,
    "url_get_host": lambda url: url.host,
    "url_get_hostname": lambda url: _host_and_port(url)[0],
    "url_get_port": lambda url: _host_and_port(url)[1],
    "url_get_escaped_path": lambda url: url.path,
    "url_get_query": _query,
}
