"""Which members of an `up --members` may fail to start, and that nobody waits forever for one that did."""

import asyncio
from pathlib import Path

import pytest
from virtual_time import LoopClock

from minikube_py.control_plane.config import ControlPlaneConfig
from minikube_py.control_plane.errors import RoleFailed
from minikube_py.control_plane.split import SplitControlPlane

NAMES = ["store-1", "store-2", "store-3"]


class OfMembers(SplitControlPlane):
    """Starts that fail where their name is among `failing`; with too few, the others wait for them forever."""

    def __init__(self, folder: Path, failing: set[str], enough: bool) -> None:
        super().__init__(ControlPlaneConfig(folder), LoopClock())
        self.failing, self.enough = failing, enough
        self.waiting: set[str] = set()

    async def _start_child(self, name: str) -> None:
        if name in self.failing:
            raise RoleFailed(f"{name} failed", 1)
        if not self.enough:
            self.waiting.add(name)
            try:
                await asyncio.Event().wait()
            finally:
                self.waiting.discard(name)


@pytest.mark.parametrize(
    ("begun", "failing", "enough"),
    [
        pytest.param("", "", True, id="a first start"),
        pytest.param("", "2", False, id="a first start needs all"),
        pytest.param("123", "", True, id="a later start"),
        pytest.param("123", "3", True, id="a majority is enough later"),
        pytest.param("123", "13", False, id="less than a majority is not"),
        pytest.param("12", "3", True, id="one whose disk is lost need not come"),
        pytest.param("12", "1", False, id="one of two that began is not a majority, though a new one came"),
        pytest.param("1", "1", False, id="a restored one, whom the others are to join"),
        pytest.param("1", "2", False, id="one that is to join a restored one"),
    ],
)
async def test_who_is_needed(tmp_path: Path, begun: str, failing: str, enough: bool) -> None:
    plane = OfMembers(tmp_path, {f"store-{each}" for each in failing}, enough)
    start = plane._start_majority(NAMES, {f"store-{each}" for each in begun})
    if enough:
        failures = await asyncio.wait_for(start, 5)
        assert [str(each) for each in failures] == [f"{name} failed" for name in NAMES if name in plane.failing]
    else:
        with pytest.raises(RoleFailed, match="failed"):
            await asyncio.wait_for(start, 5)
    assert not plane.waiting, "nobody is left waiting"
