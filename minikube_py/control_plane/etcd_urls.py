"""URLs of an external etcd or of our etcd API, as in etcd's flags."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from urllib.parse import urlsplit

from minikube_py.control_plane.errors import SetupError


def parse_urls(text: str, flag: str, *, plain_anywhere: bool = False) -> tuple[bool, Sequence[tuple[str, int]]]:
    """Whether they are https, and the places. `plain_anywhere`: http is not limited to loopback addresses.

    Raises: SetupError."""
    schemes, places = set(), []
    for item in filter(None, (part.strip() for part in text.split(","))):
        wrong = SetupError(f"{flag} {item!r}: write https://HOST:PORT, comma-separated")
        try:
            url = urlsplit(item)
            port = url.port
        except ValueError:
            raise wrong from None
        if url.scheme not in ("http", "https") or not url.hostname or port is None or url.path.strip("/"):
            raise wrong
        if url.scheme == "http" and not plain_anywhere and not _is_loopback(url.hostname):
            raise SetupError(f"{flag} {item!r}: without TLS clients are not authenticated; use a loopback address")
        schemes.add(url.scheme)
        places.append((url.hostname, port))
    if len(schemes) != 1:
        raise SetupError(f"{flag} {text!r}: names no URL, or http and https together")
    return schemes == {"https"}, places


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
