"""Addresses in text form: `host:port`, `[address]:port`."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from minikube_py.errors import WrongUsage

PORT_MAX: Final = 65535


def join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def require_address(text: str) -> None:
    """Raises: WrongUsage."""
    if split_address(text) is None:
        raise WrongUsage(f"{text}: not an address; write host:port")


def require_server_url(text: str) -> None:
    """An API server's. Raises: WrongUsage."""
    url = urlsplit(text)
    if url.scheme != "https" or not url.hostname:
        raise WrongUsage(f"{text}: not the URL of a server; write https://HOST:PORT")


def split_address(text: str) -> tuple[str, int] | None:
    """Host and port, None if `text` is not an address. Input from other members is untrusted."""
    host, _, port = text.rpartition(":")
    digits = port.isascii() and port.isdigit() and len(port) <= len(str(PORT_MAX))
    if not host or not digits or int(port) > PORT_MAX:
        return None
    return host.removeprefix("[").removesuffix("]"), int(port)
