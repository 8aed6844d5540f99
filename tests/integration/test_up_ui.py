"""`up --ui` in a real Chromium: the page opens by its link, fills, finds nodes by inequalities, and tells of a pod."""

from __future__ import annotations

import base64
import os
import re
from pathlib import Path

import aiohttp
import orjson
import pytest
from browser import opened
from up_process import up

from minikube_py.cli import main

POD = {
    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "large"},
    "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "20"}}}]},
}  # fmt: skip


async def test_the_page_in_a_browser(tmp_path: Path) -> None:
    with up("--nodes", "3", "--ui") as running:
        assert running.until_said("/ui/#")
        link = next(found[0] for line in running.lines if (found := re.search(r"https://\S+/ui/#\S+", line)))
        async with opened(link, tmp_path) as tab:
            await tab.until("document.querySelector('#counts')?.textContent.includes('nodes3')")
            assert not await tab.value("location.hash"), "the code stays in no history"
            await tab.value("document.querySelector('#where').value = 'free.cpu>=20'; match()")
            await tab.until("document.querySelector('#found').textContent === '3 of 3 nodes'")
            await create(running, POD)
            await tab.until("rates.at(-1)?.[3] === 1")
            await tab.value("match()")
            await tab.until("document.querySelector('#found').textContent === '2 of 3 nodes'")
            await tab.value("open_('pod', 'default/large')")
            await tab.until("document.querySelector('#detail-body').textContent.includes('NodeResourcesFit')")
            shown = await tab.value("document.querySelector('#detail-body').textContent")
            assert re.search(r"Running on node-[012]created.*bound\+.*running\+.*3 of 3|2 of 3", shown), shown
            await tab.value("document.querySelector('#where').value = 'free.cpu>=!'; match()")
            await tab.until("document.querySelector('#where').getAttribute('aria-invalid') === 'true'")
            assert await drawn_pixels(tab) > 1000
            if folder := os.environ.get("MINIKUBE_PY_SCREENSHOTS"):
                picture = await tab.do("Page.captureScreenshot", format="png")
                Path(folder, "page.png").write_bytes(base64.b64decode(picture["data"]))
            assert [each for each in tab.errors if "400" not in each] == []


async def test_an_open_panel_follows_its_pod_and_its_node(tmp_path: Path) -> None:
    with up("--nodes", "1", "--ui") as running:
        assert running.until_said("/ui/#")
        link = next(found[0] for line in running.lines if (found := re.search(r"https://\S+/ui/#\S+", line)))
        async with opened(link, tmp_path) as tab:
            await tab.until("document.querySelector('#counts')?.textContent.includes('nodes1')")
            spec = {**POD["spec"], "nodeSelector": {"kind": "wanted"}}
            await create(running, {**POD, "metadata": {"name": "waits"}, "spec": spec})
            await tab.until("document.querySelector('#waiting').textContent.includes('waits')")
            await tab.value("open_('pod', 'default/waits')")
            body = "document.querySelector('#detail-body')"
            await tab.until(f"{body}.textContent.includes('Why it waits')")
            await label(running, "node-0", {"kind": "wanted"})
            await tab.until(f"/^Running on node-0.*Why this node/.test({body}.textContent)")
            await tab.value("open_('node', 'node-0')")
            await tab.until(f"/^1 pod.*waits/.test({body}.textContent)")
            await tab.value(f"{body}.querySelector('button').focus()")
            await create(running, {**POD, "metadata": {"name": "another"}, "spec": {"containers": SMALL}})
            await tab.until(f"/^2 pods.*another/.test({body}.textContent)")
            assert await tab.value("document.activeElement.textContent") == "default/waits", "the focus stays"
            rates = await tab.value("document.querySelector('#rates').getAttribute('aria-label')")
            assert re.fullmatch(r"Pods per second over the last minute, now bound \d+/s, running \d+/s", rates), rates
            assert tab.errors == []


SMALL = [{"name": "c", "image": "i"}]


async def test_five_thousand_nodes_fit_and_the_arrows_reach_them(tmp_path: Path) -> None:
    with up("--nodes", "1", "--ui") as running:
        assert running.until_said("/ui/#")
        link = next(found[0] for line in running.lines if (found := re.search(r"https://\S+/ui/#\S+", line)))
        async with opened(link, tmp_path) as tab:
            await tab.until("document.querySelector('#counts')?.textContent.includes('nodes1')")
            seen = await tab.value(GRID_OF_5000)
            assert seen["boxes"] == 5000 and seen["size"] >= 5
            assert seen["left"] >= 0 and seen["right"] <= seen["width"] and seen["bottom"] <= seen["height"]
            assert seen["empty"] != seen["half"] != seen["full"] != seen["empty"], "small boxes show shares by colour"
            assert seen["moved"] == ["n-0", "n-1", f"n-{seen['columns'] + 1}", "n-1", "n-0", "n-4999"]


async def test_every_node_is_on_the_canvas_however_many_groups_there_are(tmp_path: Path) -> None:
    with up("--nodes", "1", "--ui") as running:
        assert running.until_said("/ui/#")
        link = next(found[0] for line in running.lines if (found := re.search(r"https://\S+/ui/#\S+", line)))
        async with opened(link, tmp_path) as tab:
            await tab.until("document.querySelector('#counts')?.textContent.includes('nodes1')")
            await groups_fit(tab)


async def groups_fit(tab) -> None:  # type: ignore[no-untyped-def]
    for groups, boxes in ((3, 60), (60, 60), (5000, 5000)):
        drawn = await tab.value(f"({GRID_OF_GROUPS})({groups}, {boxes})")
        assert len(drawn["order"]) == boxes and drawn["bottom"] <= drawn["height"]
        if groups == 3:
            assert drawn["titles"] == ["g-0", "g-1", "g-2"]
        else:
            (title,) = drawn["titles"]
            assert title.startswith(f"{groups:,} groups, too many for a title each")
        assert drawn["order"] == sorted(drawn["order"]), "nodes of a group stay together"


GRID_OF_GROUPS = """(groups, boxes) => {
  const canvas = document.querySelector('#nodes'), grid = new Grid(canvas);
  for (let at = 0; at < boxes; at++) {
    grid.nodes.set(`n-${at}`, { zone: `g-${at % groups}`, ready: true, open: true, pods: 0, amounts: { cpu: [0, 1] } });
  }
  grid.draw('cpu');
  const bottom = Math.max(...[...grid.nodes.values()].map((each) => each.y)) + grid.cell.size;
  const order = grid.order.map((name) => grid.nodes.get(name).zone);
  return { order, bottom, height: canvas.clientHeight, titles: grid.cell.titles.map(([text]) => text) };
}"""

GRID_OF_5000 = """(() => {
  const canvas = document.querySelector('#nodes'), grid = new Grid(canvas), moved = [], pen = canvas.getContext('2d');
  const share = (at) => [0, 2000, 4000][at % 3];
  for (let at = 0; at < 5000; at++) {
    grid.nodes.set(`n-${at}`, { zone: '', ready: true, open: true, pods: 0, amounts: { cpu: [share(at), 4000] } });
  }
  grid.draw('cpu');
  const size = grid.cell.size, places = grid.order.map((name) => grid.nodes.get(name));
  const scale = canvas.width / canvas.clientWidth;
  const colour = (name) => {
    const { x, y } = grid.nodes.get(name);
    return pen.getImageData((x + size / 2) * scale, (y + size / 2) * scale, 1, 1).data.join();
  };
  const drawn = { empty: colour('n-0'), half: colour('n-1'), full: colour('n-2') };
  for (const key of ['Home', 'ArrowRight', 'ArrowDown', 'ArrowUp', 'ArrowLeft', 'ArrowLeft']) {
    moved.push(grid.selected = grid.after(key));
  }
  return {
    ...drawn, moved, size, boxes: places.length, columns: places.filter((each) => each.y === 0).length,
    left: Math.min(...places.map((each) => each.x)), right: Math.max(...places.map((each) => each.x)) + size,
    bottom: Math.max(...places.map((each) => each.y)) + size, width: canvas.clientWidth, height: canvas.clientHeight,
  };
})()"""


async def drawn_pixels(tab) -> int:  # type: ignore[no-untyped-def]
    counted = """(() => {
      const canvas = document.querySelector('#nodes'), pen = canvas.getContext('2d');
      const bytes = pen.getImageData(0, 0, canvas.width, canvas.height).data;
      let found = 0;
      for (let at = 3; at < bytes.length; at += 4) found += bytes[at] > 0;
      return found;
    })()"""
    return int(await tab.value(counted))


async def create(running, pod) -> None:  # type: ignore[no-untyped-def]
    await send(running, "POST", "/api/v1/namespaces/default/pods", pod, "application/json")


async def label(running, node: str, labels: dict[str, str]) -> None:  # type: ignore[no-untyped-def]
    patch = {"metadata": {"labels": labels}}
    await send(running, "PATCH", f"/api/v1/nodes/{node}", patch, "application/merge-patch+json")


async def send(running, method: str, path: str, body, content_type: str) -> None:  # type: ignore[no-untyped-def]
    access = running.access
    headers = {"Authorization": f"Bearer {access.token}", "Content-Type": content_type}
    async with aiohttp.ClientSession() as session:
        asked = session.request(
            method, access.server + path, data=orjson.dumps(body), headers=headers, ssl=running.tls()
        )
        async with asked as answer:
            assert answer.status in (200, 201), await answer.text()


def test_it_is_refused_for_several_processes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["up", "--split", "--ui"]) == 2
    assert "remove --split" in capsys.readouterr().err
