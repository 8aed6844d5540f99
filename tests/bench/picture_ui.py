"""Takes the pictures of docs/how-to/live-page.md in a real Chromium: the live page of 10, 1,000 and 5,000 nodes, a pod
that waits, and two runs side by side.

    PYTHONPATH=tests/support python tests/bench/picture_ui.py [FOLDER]

FOLDER is docs/img by default.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import io
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from browser import Tab, opened
from PIL import Image
from up_process import Up, up

ROOT = Path(__file__).parents[2]
PODS = {10: 15, 1_000: 900, 5_000: 1_500}
CPUS = (2, 4, 6, 8, 10, 14, 20)
AT_ONCE = 16
PARTS = 8
"""One a second, so that the picture shows rates."""
WIDTH, HEIGHT, WHOLE_RUN_HEIGHT = 1400, 757, 973
PACK = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
"""


def pod(name: str, cpu: int) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": str(cpu)}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}


async def create(running: Up, pods: list[dict[str, Any]]) -> None:
    access, waiting = running.access, iter(pods)
    headers = {"Authorization": f"Bearer {access.token}", "Content-Type": "application/json"}
    async with aiohttp.ClientSession(headers=headers) as session:

        async def some() -> None:
            for each in waiting:
                url = f"{access.server}/api/v1/namespaces/default/pods"
                async with session.post(url, data=orjson.dumps(each), ssl=running.tls()) as answer:
                    assert answer.status == 201, await answer.text()

        await asyncio.gather(*(some() for _ in range(AT_ONCE)))


async def sized(tab: Tab, height: int) -> None:
    await tab.do("Emulation.setDeviceMetricsOverride", width=WIDTH, height=height, deviceScaleFactor=1, mobile=False)


async def take(tab: Tab, path: Path) -> None:
    await tab.value("new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))")
    shot = await tab.do("Page.captureScreenshot", format="png")
    assert tab.errors == []
    Image.open(io.BytesIO(base64.b64decode(shot["data"]))).convert("RGB").save(path, optimize=True)
    print(path)


async def live(nodes: int, folder: Path) -> None:
    rng, number = random.Random(nodes), PODS[nodes]
    with up("--nodes", str(nodes), "--ui") as running, tempfile.TemporaryDirectory() as profile:
        assert running.until_said("/ui/#")
        link = next(found[0] for line in running.lines if (found := re.search(r"https://\S+/ui/#\S+", line)))
        async with opened(link, Path(profile)) as tab:
            await sized(tab, HEIGHT)
            await tab.until(f"typeof nodes === 'object' && nodes.size === {nodes}")
            await create(running, [pod("too-large", 40)])
            pods = [pod(f"web-{at}", rng.choice(CPUS)) for at in range(number)]
            for part in range(PARTS):
                await create(running, pods[part * number // PARTS : (part + 1) * number // PARTS])
                await tab.until(f"rates.at(-1)[0] - rates[0][0] > {part + 3}")
            await tab.until(f"rates.at(-1)[3] === {number}")
            await tab.value(f"open_('pod', 'default/web-{number // 2}')")
            await tab.until("document.querySelector('#detail-body').textContent.includes('As things are now')")
            await take(tab, folder / f"ui-{nodes}.png")
            if nodes == min(PODS):
                await tab.value("open_('pod', 'default/too-large')")
                await tab.until("document.querySelector('#detail-body').textContent.includes('Why it waits')")
                await take(tab, folder / "ui-waits.png")


async def recorded(folder: Path) -> None:
    command = [sys.executable, "-m", "minikube_py", "compare", "default", "pack.yaml", "--seeds", "1"]
    command += ["--pods", "1000", "--nodes", "150", "--page", "runs.html"]
    with tempfile.TemporaryDirectory() as made, tempfile.TemporaryDirectory() as profile:
        Path(made, "pack.yaml").write_text(PACK, encoding="utf-8")
        await asyncio.to_thread(subprocess.run, command, cwd=made, check=True, stdout=subprocess.DEVNULL)
        async with opened(Path(made, "runs.html").as_uri(), Path(profile)) as tab:
            await sized(tab, WHOLE_RUN_HEIGHT)
            await tab.until("document.querySelectorAll('.run .counts div').length === 16")
            await tab.value("$('slider').value = begin + 0.55 * (end - begin); draw(); 0")
            await take(tab, folder / "recorded.png")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "docs" / "img")
    folder = parser.parse_args().folder
    for nodes in PODS:
        await live(nodes, folder)
    await recorded(folder)


if __name__ == "__main__":
    asyncio.run(main())
