"""Children under care: what is said of those that end, and which are not started again."""

import asyncio
import os
import sys
from pathlib import Path

import pytest
from patience import patience

from minikube_py.control_plane import supervisor
from minikube_py.control_plane.errors import RoleFailed
from minikube_py.control_plane.exit_codes import DAMAGED, DISMISSED
from minikube_py.control_plane.supervisor import Child
from minikube_py.env import SystemClock

pytestmark = pytest.mark.real_time("its children are processes")

ENDS_AT_ONCE = "import sys; print('minikube-py store: {why}', file=sys.stderr); print('more'); sys.exit({code})"
READY_THEN_ENDS = "print('ready there', flush=True)\n" + ENDS_AT_ONCE
COUNTS = """
import sys
from pathlib import Path
count = Path(sys.argv[0]).with_name("count")
done = int(count.read_text()) if count.exists() else 0
count.write_text(str(done + 1))
if done < {fails}:
    print("minikube-py store: damaged", file=sys.stderr)
    sys.exit(4)
print("ready there", flush=True)
sys.stdin.read()
"""


class Care:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.said: list[str] = []
        self.told = asyncio.Event()
        real = asyncio.create_subprocess_exec

        async def run(*command: str, **options):
            self.command = command
            return await real(sys.executable, str(folder / "role.py"), **options)

        monkeypatch.setattr(supervisor.asyncio, "create_subprocess_exec", run)
        monkeypatch.setattr(supervisor, "RESTART_FIRST_S", 0.01)
        monkeypatch.setattr(supervisor, "RESTART_MAX_S", 0.02)

    def child(self, script: str, **options) -> Child:
        (self.folder / "role.py").write_text(script)
        return Child("store-2", lambda: ["--x"], self.folder / "log", SystemClock(), role="store", **options)

    def say(self, text: str) -> None:
        self.said.append(text)
        self.told.set()

    async def until_said(self, text: str) -> None:
        async with patience():
            while not any(text in each for each in self.said):
                self.told.clear()
                await self.told.wait()


@pytest.fixture
def care(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Care:
    return Care(tmp_path, monkeypatch)


async def test_it_runs_its_role_under_its_own_name(care: Care) -> None:
    child = care.child(ENDS_AT_ONCE.format(why="no", code=1))
    with pytest.raises(RoleFailed, match=r"^store-2 ended before it was ready: no$"):
        await child.start()
    assert care.command[1:] == ("-m", "minikube_py", "store", "--with-parent", "--x")


async def test_a_failed_start_has_its_code_and_what_to_do(care: Care) -> None:
    advice = {DAMAGED: "; remove it"}
    child = care.child(ENDS_AT_ONCE.format(why="broken", code=DAMAGED), advice=lambda code: advice.get(code, ""))
    with pytest.raises(RoleFailed, match="broken; remove it") as failed:
        await child.start()
    assert failed.value.code == DAMAGED
    assert os.stat(child.log_file).st_mode & 0o777 == 0o600


@pytest.mark.parametrize("when", ["while it runs", "before it is kept", "when it starts"])
async def test_one_that_was_dismissed_is_left_alone(care: Care, when: str) -> None:
    script = ENDS_AT_ONCE if when == "when it starts" else READY_THEN_ENDS
    child = care.child(script.format(why="it was removed", code=DISMISSED))
    if when == "when it starts":
        with pytest.raises(RoleFailed):
            await child.start()
    else:
        await child.start()
    if when == "before it is kept":
        await child._process.wait()  # type: ignore[union-attr]
    child.keep(care.say)
    await care.until_said("store-2 is not started again: it was removed")
    async with patience():
        await child._keeper  # type: ignore[misc]
    assert child.dismissed and len(care.said) == 1
    await child.stop()


async def test_one_that_fails_again_and_again_is_told_of_once_and_comes_back(care: Care) -> None:
    child = care.child(COUNTS.format(fails=5))
    with pytest.raises(RoleFailed):
        await child.start()
    child.keep(care.say)
    await care.until_said("store-2 is back: there")
    assert [text.partition(":")[0] for text in care.said] == ["store-2 ended before it was ready", "store-2 is back"]
    await child.stop()


@pytest.mark.parametrize("ended", [False, True], ids=["while it is kept", "before"])
async def test_an_end_is_told_with_its_reason(care: Care, ended: bool) -> None:
    child = care.child(READY_THEN_ENDS.format(why="the disk is full", code=70))
    await child.start()
    if ended:
        await child._process.wait()  # type: ignore[union-attr]
    child.keep(care.say)
    await care.until_said("ended with exit code 70 (the disk is full) after")
    await child.stop()
