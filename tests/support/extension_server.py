"""Another API server over HTTPS, for those that pass requests on: it serves one group and version, says what it was
asked, and can misbehave."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import ssl
import urllib.parse
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

from minikube_py.control_plane.certificates import ensure_authority

GROUP, VERSION = "echo.example.com", "v1"
ROOT = f"/apis/{GROUP}/{VERSION}"
NAME = f"{VERSION}.{GROUP}"
_VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]
GROUPED = {
    "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {},
    "items": [{"metadata": {"name": GROUP}, "versions": [{"version": VERSION, "freshness": "Current", "resources": [
        {
            "resource": "sounds", "responseKind": {"group": GROUP, "version": VERSION, "kind": "Sound"},
            "scope": "Namespaced", "singularResource": "sound", "verbs": _VERBS, "shortNames": ["sd"],
            "subresources": [{
                "subresource": "status", "responseKind": {"group": GROUP, "version": VERSION, "kind": "Sound"},
                "verbs": ["get"],
            }],
        },
    ]}]}],
}  # fmt: skip
LISTED = {
    "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/{VERSION}",
    "resources": [
        {
            "name": "sounds", "singularName": "sound", "namespaced": True, "kind": "Sound", "verbs": _VERBS,
            "shortNames": ["sd"],
        },
        {"name": "sounds/status", "singularName": "", "namespaced": True, "kind": "Sound", "verbs": ["get"]},
    ],
}  # fmt: skip
OPENAPI = {"openapi": "3.0.0", "info": {"title": "Echo", "version": "v1"}, "paths": {}}
_V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class Seen(NamedTuple):
    """A request; names of headers in lower case, of each all values."""

    method: str
    target: str
    headers: dict[str, list[str]]
    body: bytes
    certificate: dict[str, Any] | None


class Extension:
    """`hangs`: paths not answered before `release`. `huge`: paths whose answer has no end. `says`: whole answers, by
    path, with their heads. `grouped`: whether it has the aggregated form of discovery. `fails`: the code of every
    answer. `told`: other answers, by path."""

    def __init__(self) -> None:
        self.port = 0
        self.authority = b""
        self.seen: list[Seen] = []
        self.hangs: set[str] = set()
        self.huge: set[str] = set()
        self.says: dict[str, bytes] = {}
        self.grouped = True
        self.fails = 0
        self.told: dict[str, bytes] = {}
        self.sent_bytes = 0
        self.release = asyncio.Event()
        self.events: asyncio.Queue[str] = asyncio.Queue()

    @property
    def bundle(self) -> str:
        return base64.b64encode(self.authority).decode()

    @property
    def passed_on(self) -> list[Seen]:
        """The requests for its resources: all others are about discovery."""
        return [each for each in self.seen if each.target.startswith(f"{ROOT}/")]

    def service(self, name: str = "echo", **more: Any) -> dict[str, Any]:
        return {"metadata": {"name": name}, "spec": {"type": "ExternalName", "externalName": "localhost", **more}}

    def api_service(self, **spec: Any) -> dict[str, Any]:
        whole = {
            "group": GROUP, "version": VERSION, "groupPriorityMinimum": 900, "versionPriority": 50,
            "caBundle": self.bundle, "service": {"namespace": "default", "name": "echo", "port": self.port},
        }  # fmt: skip
        return {"metadata": {"name": NAME}, "spec": {**whole, **spec}}

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
            method, target, _ = first.split(" ")
            headers: dict[str, list[str]] = {}
            for line in lines:
                name, _, value = line.partition(":")
                headers.setdefault(name.lower(), []).append(value.strip())
            body = await reader.readexactly(int("".join(headers.get("content-length", ["0"]))))
            certificate = writer.get_extra_info("ssl_object").getpeercert()
            self.seen.append(Seen(method, target, headers, body, certificate))
            await self.answer(self.seen[-1], reader, writer)

    async def answer(self, seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        url = urllib.parse.urlsplit(seen.target)
        if url.path in self.hangs:
            await self.release.wait()
        if url.path in self.says:
            writer.write(self.says[url.path])
        elif url.path in self.huge:
            await self.without_end(writer)
        elif self.fails:
            await self.say(writer, self.fails, {"failed": self.fails})
        elif url.path in self.told:
            of = _V2 if url.path == "/apis" else "application/json"
            await self.say(writer, 200, self.told[url.path], of)
        elif url.path == "/apis" and self.grouped and "as=APIGroupDiscoveryList" in "".join(seen.headers["accept"]):
            await self.say(writer, 200, GROUPED, _V2)
        elif url.path == ROOT:
            await self.say(writer, 200, LISTED)
        elif url.path == "/openapi/v3":
            path = {"serverRelativeURL": f"/openapi/v3{ROOT}?hash=ECHO"}
            await self.say(writer, 200, {"paths": {ROOT[1:]: path, "apis/other.example.com/v1": path}})
        elif url.path == f"/openapi/v3{ROOT}":
            await self.say(writer, 200, OPENAPI)
        elif url.path == f"{ROOT}/redirect":
            writer.write(b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n")
        elif "upgrade" in "".join(seen.headers.get("connection", ())).lower():
            await self.upgraded(seen, reader, writer)
        elif "watch=true" in url.query:
            await self.watched(writer)
        elif not url.path.startswith(f"{ROOT}/"):
            await self.say(writer, 404, {"kind": "Status", "code": 404})
        else:
            await self.say(writer, 201 if seen.method == "POST" else 200, self.echo(seen))
        await writer.drain()

    def echo(self, seen: Seen) -> dict[str, Any]:
        told = {name: all_ for name, all_ in seen.headers.items() if name.startswith("x-remote-") or name == "accept"}
        named = {"kind": "Sound", "apiVersion": f"{GROUP}/{VERSION}", "metadata": {"name": "echo"}}
        return {**named, "method": seen.method, "target": seen.target, "headers": told, "body": seen.body.decode()}

    async def say(
        self, writer: asyncio.StreamWriter, code: int, found: Any, content_type: str = "application/json"
    ) -> None:
        body = found if isinstance(found, bytes) else json.dumps(found).encode()
        head = f"HTTP/1.1 {code} X\r\nContent-Type: {content_type}\r\nX-Echo: a\r\nX-Echo: b\r\nConnection: X-Hop\r\n"
        writer.write(f"{head}X-Hop: 1\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)

    async def without_end(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"10000\r\n" + b" " * 65536 + b"\r\n")
            self.sent_bytes += 65536
            await writer.drain()

    async def watched(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        while text := await self.events.get():
            line = json.dumps({"type": "ADDED", "object": {"metadata": {"name": text}}}).encode() + b"\n"
            writer.write(b"%x\r\n%b\r\n" % (len(line), line))
            await writer.drain()
        writer.write(b"0\r\n\r\n")

    async def upgraded(self, seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        protocol = "".join(seen.headers.get("upgrade", ()))
        writer.write(f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n".encode())
        while data := await reader.read(4096):
            writer.write(data.upper())
            await writer.drain()


@contextlib.asynccontextmanager
async def extension(folder: Path, clients: bytes = b"") -> AsyncIterator[Extension]:
    """Its certificate is for localhost and the service `echo` in the namespace `default`. `clients`: the authority of
    the certificates that it asks for."""
    folder.mkdir(exist_ok=True)
    authority = ensure_authority(folder / "ca.crt", folder / "ca.key")
    files = folder / "server.crt", folder / "server.key"
    authority.ensure_leaf(*files, ["echo.default.svc", "localhost"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    if clients:
        context.load_verify_locations(cadata=clients.decode())
        context.verify_mode = ssl.CERT_OPTIONAL
    found = Extension()
    found.authority = authority.pem
    talking: dict[asyncio.Task[Any] | None, asyncio.StreamWriter] = {}

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talking[asyncio.current_task()] = writer
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await found.talk(reader, writer)
        writer.transport.abort()
        del talking[asyncio.current_task()]

    server = await asyncio.start_server(talk, "127.0.0.1", 0, ssl=context)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()
        found.release.set()
        found.events.put_nowait("")
        ending = [task for task in talking if task is not None]
        for writer in talking.values():
            writer.transport.abort()
        await asyncio.gather(*ending)
