"""The live page for everybody: axe-core's rules, the keyboard alone, both colour schemes, and what a first paint takes.

`axe/` holds axe-core as its makers build it (MPL-2.0, its licences beside it), packed. Nothing of it is shipped.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import os
import re
from pathlib import Path
from typing import Any

import pytest
from browser import Tab, opened
from test_up_ui import POD, create
from up_process import up

AXE = gzip.decompress((Path(__file__).parent / "axe" / "axe-4.14.1.min.js.gz").read_bytes()).decode()
WAITS = {**POD, "metadata": {"name": "too-large"}, "spec": {"containers": [
    {"name": "c", "image": "i", "resources": {"requests": {"cpu": "2000"}}}]}}  # fmt: skip
SHOWN = (
    "[...document.querySelectorAll('.legend .key')].filter((each) => each.offsetWidth).map((each) => each.innerText)"
)
FIRST_PAINT_REQUESTS, FIRST_PAINT_BYTES = 3, 40_000
"""The page, its style and its script: at the slowest loopback they take milliseconds."""


async def violations(tab: Tab, state: str) -> list[str]:
    """What axe finds, a line each."""
    kept = "({id: each.id, nodes: each.nodes.map((node) => [node.html.slice(0, 150), node.failureSummary])})"
    found: list[Any] = await tab.value(f"axe.run().then((found) => found.violations.map((each) => {kept}))")
    return [f"{state}: {each['id']}: {html}: {why}" for each in found for html, why in each["nodes"]]


async def press(tab: Tab, key: str) -> None:
    text = {"text": "\r"} if key == "Enter" else {}
    for kind in ("keyDown", "keyUp"):
        code = {"Tab": 9, "Enter": 13, "ArrowRight": 39}[key]
        await tab.do("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)


async def scheme(tab: Tab, name: str) -> None:
    await tab.do("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])


async def picture(tab: Tab, name: str) -> None:
    if folder := os.environ.get("MINIKUBE_PY_SCREENSHOTS"):
        shot = await tab.do("Page.captureScreenshot", format="png")
        await asyncio.to_thread(Path(folder, f"{name}.png").write_bytes, base64.b64decode(shot["data"]))


async def test_axe_finds_nothing_and_the_keyboard_reaches_everything(tmp_path: Path) -> None:
    nodes = int(os.environ.get("MINIKUBE_PY_SCREENSHOT_NODES", "3"))
    with up("--nodes", str(nodes), "--ui") as running:
        assert running.until_said("/ui/#")
        link = next(found[0] for line in running.lines if (found := re.search(r"https://\S+/ui/#\S+", line)))
        await create(running, POD)
        await create(running, WAITS)
        async with opened(link, tmp_path) as tab:
            await tab.until("document.querySelector('#waiting').textContent.includes('Insufficient cpu')")
            await tab.until(f"nodes.size === {nodes}")
            await first_paint(tab)
            await tab.value(AXE + "; 0")
            await it_can_find(tab)
            found: list[str] = []
            for colours in ("light", "dark"):
                await scheme(tab, colours)
                await tab.value("$('close').click(); $('where').value = ''; match()")
                assert not await tab.value(f"{SHOWN}.includes('found')")
                found += await violations(tab, f"{colours}, at the start")
                await tab.value("document.querySelector('#where').value = 'free.cpu>=!'; match()")
                await tab.until("document.querySelector('#where').getAttribute('aria-invalid') === 'true'")
                found += await violations(tab, f"{colours}, a wrong selector")
                await tab.value("document.querySelector('#where').value = 'free.cpu>=20'; match()")
                await tab.until(f"{SHOWN}.includes('found')")
                for what, name in (("pod", "default/large"), ("pod", "default/too-large"), ("node", "node-0")):
                    await tab.value(f"open_('{what}', '{name}')")
                    await tab.until("!document.querySelector('#detail').hidden")
                    found += await violations(tab, f"{colours}, {what} {name}")
                await picture(tab, f"page-{nodes}-{colours}")
            assert found == []
            await by_keyboard(tab)


async def it_can_find(tab: Tab) -> None:
    """A control without a name and grey text on grey ground, planted and taken away, are both reported."""
    await tab.value(
        "document.querySelector('main').insertAdjacentHTML('afterbegin', '<div id=planted>grey<input></div>');"
        "Object.assign(document.querySelector('#planted').style, {color: '#999', background: '#888'}); 0"
    )
    rules = {line.split(": ")[1] for line in await violations(tab, "planted")}
    await tab.value("document.querySelector('#planted').remove()")
    assert {"label", "color-contrast"} <= rules, rules


async def first_paint(tab: Tab) -> None:
    """Requests and bytes until the page is drawn; data comes after, by fetch."""
    loaded: list[Any] = await tab.value(
        "[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]"
        ".filter((each) => each.initiatorType !== 'fetch').map((each) => [each.name, each.decodedBodySize])"
    )
    assert len(loaded) <= FIRST_PAINT_REQUESTS, loaded
    assert sum(size for _, size in loaded) <= FIRST_PAINT_BYTES, loaded
    painted_ms: list[float] = await tab.value(
        "performance.getEntriesByName('first-contentful-paint').map((each) => each.startTime)"
    )
    assert len(painted_ms) == 1
    print(f"first paint {painted_ms[0]:.0f} ms after the navigation began, {len(loaded)} requests")


async def by_keyboard(tab: Tab) -> None:
    """Tab comes to each control in the order of the page; the arrows walk over nodes, Enter opens one."""
    await tab.value("document.querySelector('#close').click(); document.querySelector('#resource').focus()")
    reached: list[str] = []
    for _ in range(4):
        await press(tab, "Tab")
        reached.append(await tab.value("document.activeElement.id || document.activeElement.textContent"))
    assert reached == ["group", "where", "nodes", "default/too-large"]
    await tab.value("document.querySelector('#nodes').focus()")
    await press(tab, "ArrowRight")
    assert (await tab.value("document.querySelector('#hover').textContent")).startswith("node-")
    await press(tab, "Enter")
    await tab.until("document.activeElement.id === 'close'")
    assert (await tab.value("document.querySelector('#detail-title').textContent")).startswith("node node-")
    await press(tab, "Enter")
    assert await tab.value("document.querySelector('#detail').hidden && document.activeElement.id") == "nodes"


@pytest.mark.parametrize("name", ["LICENSE", "LICENSE-3RD-PARTY.txt"])
def test_axe_is_here_with_its_licence(name: str) -> None:
    assert AXE.startswith("/*! axe v4.14.1")
    assert (Path(__file__).parent / "axe" / name).stat().st_size > 1000
