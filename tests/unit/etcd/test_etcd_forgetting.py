"""The mirror holds no more history than etcd does, but an interval's."""

from __future__ import annotations

from fake_etcd import fake_etcd
from virtual_time import LoopClock

from minikube_py.errors import Unavailable
from minikube_py.etcd.compactor import Forgetting

WITHIN_S = 60.0
KEY = b"/registry/nodes/n"


async def test_what_etcd_compacts_by_itself_is_forgotten_an_interval_later() -> None:
    async with fake_etcd() as etcd:
        feed = etcd.feed()
        await etcd.put(KEY, b"x")
        await feed.start()
        forgetting = Forgetting(etcd, LoopClock(), feed)  # type: ignore[arg-type]
        compacted: list[int] = []
        for _ in range(4):
            revisions = [await etcd.put(KEY, b"x" * 1000) for _ in range(100)]
            await feed.reached(revisions[-1], WITHIN_S)
            await etcd.compact(revisions[70])
            await forgetting.step()
            state = feed.mirror.state
            # What was compacted and known an interval ago.
            expected = min(compacted[-1] + 29, revisions[70]) if compacted else state.compact_revision
            assert state.compact_revision == expected
            compacted.append(revisions[70])
            assert state.log.last - state.compact_revision < 300
        await forgetting.step()
        assert feed.mirror.state.compact_revision == compacted[-1]
        before = feed.mirror.state.compact_revision
        await forgetting.step()
        assert feed.mirror.state.compact_revision == before
        await feed.stop(Unavailable("the test ends"))
