"""`compare --page`: both runs in one file, opened from the disk in a real Chromium."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from browser import Tab, opened
from test_ui_accessible import AXE, picture, scheme, violations

PACK = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
"""
STATE = """(run) => JSON.stringify([[...run.grid.nodes].map(([name, node]) => [name, node.ready, node.amounts]).sort(),
  [...run.pods].sort(), [...run.waits].sort(), run.totals])"""
THERE_AND_BACK = f"""(() => {{
  const state = {STATE}, wrong = [];
  for (const run of runs) for (const share of [0.3, 0.9, 0.1, 1, 0, 0.5, 0.50001]) {{
    const now = begin + share * (end - begin), fresh = new Run(run.data, "fresh");
    run.to(now);
    fresh.to(now);
    if (state(run) !== state(fresh)) wrong.push([run.data.title, share]);
  }}
  return wrong;
}})()"""


def compared(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    (folder / "pack.yaml").write_text(PACK)
    command = [sys.executable, "-m", "minikube_py", "compare", "default", "pack.yaml", "--seeds", "1", "--pods", "200"]
    command += ["--nodes", "40", "--page", "runs.html", *more]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("recorded")
    done = compared(made)
    assert done.returncode == 0, done.stderr
    assert "open it in a browser" in done.stdout
    return made


async def test_two_runs_stand_side_by_side_under_one_slider(folder: Path, tmp_path: Path) -> None:
    async with opened((folder / "runs.html").as_uri(), tmp_path) as tab:
        await tab.until("document.querySelectorAll('.run .counts div').length === 16")
        assert await tab.value(THERE_AND_BACK) == []
        await tab.value("$('slider').value = end; draw(); 0")
        await tab.until("runs.every((run) => run.totals.bound + run.waits.size === 200)")
        used: list[int] = await tab.value("runs.map((run) => [...run.held.values()].filter((each) => each > 0).length)")
        assert used[0] > used[1], "default spreads, MostAllocated packs"
        await by_keyboard(tab)
        await tab.value(AXE + "; 0")
        for colours in ("light", "dark"):
            await scheme(tab, colours)
            assert await violations(tab, colours) == []
            await picture(tab, f"recorded-{colours}")
        assert tab.errors == []


async def by_keyboard(tab: Tab) -> None:
    """The slider goes by arrow keys, and both runs follow; `play` goes to the end and stops there."""
    await tab.value("$('slider').value = begin; $('slider').step = (end - begin) / 10; draw(); $('slider').focus(); 0")
    for kind in ("keyDown", "keyUp"):
        key = {"key": "ArrowRight", "code": "ArrowRight", "windowsVirtualKeyCode": 39}
        await tab.do("Input.dispatchKeyEvent", type=kind, **key)
    await tab.until("Number($('slider').value) > begin && runs.every((run) => run.played > 0)")
    await tab.value("$('slider').step = 'any'; $('speed').value = $('speed').options[0].value; $('play').click()")
    await tab.until("$('play').textContent === 'play' && Number($('slider').value) === end")


async def test_the_same_runs_are_the_same_bytes(folder: Path) -> None:
    before = await asyncio.to_thread((folder / "runs.html").read_bytes)
    done = await asyncio.to_thread(compared, folder, "--json")
    assert done.returncode == 0, done.stderr
    assert "open it in a browser" in done.stderr
    assert await asyncio.to_thread((folder / "runs.html").read_bytes) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["compare", "default", "default", "--scheduler-only", "--page", "p.html"], "--scheduler-only has no time"),
        (["compare", "default", "default", "--page", "no/such/folder/p.html"], "no file can be written there"),
        (["demo", "--page", "p.html"], "add --virtual"),
        (["bench", "schedule", "--page", "p.html"], "unrecognized arguments: --page"),
        (["replay", "--from", __file__, "--page", "p.html"], "--page needs a trace and --virtual"),
    ],
)
def test_a_page_that_cannot_be_is_refused_at_once(words: list[str], said: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "minikube_py", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0
    assert said in done.stderr
    assert not list(tmp_path.iterdir())
