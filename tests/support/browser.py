"""A real Chromium without a window, over its DevTools protocol."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
from needs import absent
from patience import PATIENCE_S, until

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--ignore-certificate-errors",
    "--remote-debugging-port=0", "--window-size=1400,900",
)  # fmt: skip


class Tab:
    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0
        self.errors: list[str] = []
        """Errors that the page logged, threw, or that its policy caused."""

    async def do(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": params})
        while True:
            message = json.loads((await asyncio.wait_for(self._socket.receive(), PATIENCE_S)).data)
            if message.get("id") == self._number:
                assert "error" not in message, message
                return dict(message["result"])
            self._heard(message)

    def _heard(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(str(params["exceptionDetails"]))
        if message.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])

    async def value(self, expression: str) -> Any:
        answer = await self.do("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        return answer["result"].get("value")

    async def until(self, expression: str) -> None:
        await until(lambda: self.value(expression), expression)


@contextlib.asynccontextmanager
async def opened(url: str, folder: Path) -> AsyncIterator[Tab]:
    """Skips, or fails in CI, without Chromium."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        absent("no Chromium: install the package chromium, or google-chrome")
    arguments = [program, *FLAGS, f"--user-data-dir={folder}", "about:blank"]
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*arguments, stdout=quiet, stderr=quiet)
    try:
        ports = folder / "DevToolsActivePort"
        await until(lambda: ports.exists() and ports.read_text().count("\n"), "Chromium has a port")
        port = ports.read_text().split("\n")[0]
        async with aiohttp.ClientSession() as session:
            tabs = await (await session.get(f"http://127.0.0.1:{port}/json/list")).json()
            address = next(each["webSocketDebuggerUrl"] for each in tabs if each["type"] == "page")
            async with session.ws_connect(address, max_msg_size=0) as socket:
                tab = Tab(socket)
                for part in ("Runtime", "Log", "Page"):
                    await tab.do(f"{part}.enable")
                await tab.do("Page.navigate", url=url)
                yield tab
    finally:
        process.kill()
        await process.wait()
