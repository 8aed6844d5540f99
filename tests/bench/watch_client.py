"""Many watches in one process: counts events by their line ends over non-blocking TLS sockets (epoll, one thread).

usage: watch_client.py HOST PORT TOKEN PATH COUNT EVENTS TIMEOUT_S
Prints `ready` once all watches are answered, and at the end one JSON line: per watcher, events seen and the time
(CLOCK_MONOTONIC) of the last. A watch that the server cuts off is resumed after the last event it saw, and counted.
"""

from __future__ import annotations

import json
import re
import selectors
import socket
import ssl
import sys
import time

VERSION = re.compile(rb'"resourceVersion":"(\d+)"')
CUT = re.compile(rb"\}\r\n[0-9a-f]+\r\n\n")
"""The end of an event, including the boundary between two chunks."""
RECV_BYTES = 1 << 18
LAST_BYTES = 8192  # holds the last whole event, which names the version to resume after


class Watch:
    def __init__(self, host: str, port: int, token: str, path: str) -> None:
        self._where = (host, port)
        self._request = f"Host: x\r\nAuthorization: Bearer {token}\r\nAccept: application/json\r\n\r\n"
        self._path = path
        self.events, self.last_s, self.cuts = 0, 0.0, 0
        self._last, self._rest = b"", b""
        self.tls = self._open(path)

    def _open(self, path: str) -> ssl.SSLSocket:
        tls = ssl._create_unverified_context().wrap_socket(socket.create_connection(self._where, timeout=30))
        tls.sendall(f"GET {path} HTTP/1.1\r\n{self._request}".encode())
        tls.recv(1)
        tls.setblocking(False)
        return tls

    def read(self) -> bool:
        """Reads available data. False if the server has ended the stream."""
        while True:
            try:
                data = self.tls.recv(RECV_BYTES)
            except (ssl.SSLWantReadError, BlockingIOError):
                return True
            if not data or data.endswith(b"0\r\n\r\n"):
                return False
            # An event may be split anywhere, even between its last brace and the newline.
            data = self._rest + data
            end = data.rfind(b"}\n")
            if end < 0:
                self._rest = data
                continue
            self.events += data.count(b"}\n") + len(CUT.findall(data))
            self.last_s = time.monotonic()
            self._last = data[:end][-LAST_BYTES:]
            self._rest = data[end + 2 :]

    def resume(self) -> None:
        self.cuts += 1
        self.tls.close()
        self._rest = b""
        versions = VERSION.findall(self._last)
        began = self._path.partition("&resourceVersion=")[0]
        self.tls = self._open(f"{began}&resourceVersion={versions[-1].decode()}" if versions else self._path)


def main() -> None:
    host, port, token, path = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
    count, events, timeout_s = int(sys.argv[5]), int(sys.argv[6]), float(sys.argv[7])
    poll = selectors.DefaultSelector()
    watches = [Watch(host, port, token, path) for _ in range(count)]
    for watch in watches:
        poll.register(watch.tls, selectors.EVENT_READ, watch)
    print("ready", flush=True)
    deadline = time.monotonic() + timeout_s
    while min(watch.events for watch in watches) < events and time.monotonic() < deadline:
        for key, _ in poll.select(0.5):
            watch = key.data
            if not watch.read():
                poll.unregister(key.fileobj)
                watch.resume()
                poll.register(watch.tls, selectors.EVENT_READ, watch)
    print(
        json.dumps(
            {
                "events": [w.events for w in watches],
                "last_s": max(w.last_s for w in watches),
                "cuts": sum(w.cuts for w in watches),
            }
        )
    )


main()
