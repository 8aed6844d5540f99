"""Declared indexes at members: the same declarations on all of them, each building its own beside running writes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from member_net import MemberNet, three
from patience import until
from virtual_time import LoopClock

from minikube_py.errors import InvalidRequest, NotLeader
from minikube_py.fields.builtin import NODES, PODS
from minikube_py.fields.spec import FieldSpec
from minikube_py.fields.where import Comparison, Where
from minikube_py.index import planner
from minikube_py.index.declared import IndexSpec, dump, key_of
from minikube_py.mvcc.types import Op, Put, RangeRequest
from minikube_py.store.member import MemberConfig, StoreMember

FITS = IndexSpec("fits", "nodes", ("free.cpu", "free.memory"), "columns")
ZONES = IndexSpec(
    "zones",
    "nodes",
    ("zone",),
    "columns",
    declares=(FieldSpec("zone", "string", "path@1", {"path": "metadata.labels.zone"}),),
)
MANY = RangeRequest(NODES.prefix, NODES.prefix[:-1] + b"0", where=Where((Comparison("free.cpu", ">=", ("4",)),)))
IN_ZONE = MANY._replace(where=Where((Comparison("zone", "=", ("z1",)),)))


@pytest.fixture(autouse=True)
def indexes_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The columns are so quick among so few rows that the planner would ask nobody else."""
    monkeypatch.setattr(planner, "COLUMNS_US", 1e6)


def node(number: int, cpu: int) -> Put:
    value = b'{"metadata":{"name":"n%d","labels":{"zone":"z%d"}},"status":{"allocatable":{"cpu":"%d","memory":"%dGi"}}}'
    return Put(NODES.prefix + b"n%03d" % number, value % (number, number % 3, cpu, cpu))


async def fill(net: MemberNet, nodes: int) -> None:
    leader = await net.leader()
    await leader.storage.declare(NODES)
    await leader.storage.declare(PODS)
    for start in range(0, nodes, 50):
        ops: list[Op] = [node(number, number % 8) for number in range(start, min(start + 50, nodes))]
        await leader.storage.txn((), ops)


def ready(net: MemberNet, *names: str) -> Callable[[], bool]:
    def all_ready() -> bool:
        return all(
            [report.spec.name for report in member.state.tables.reports() if report.state == "ready"] == sorted(names)
            for member in net.members.values()
        )

    return all_ready


async def answers(member: StoreMember, request: RangeRequest) -> tuple[list[bytes], str]:
    found = await member.storage.range(request)
    assert found.stats is not None
    return [kv.key for kv in found.kvs], found.stats.index


async def test_all_members_agree_on_what_is_declared_and_each_builds_it(tmp_path):
    async with three(tmp_path, MemberConfig(own_gc=False, snapshot_log_bytes=20 << 10, tail_entries_max=10)) as net:
        await fill(net, 120)
        leader = await net.leader()
        away = net.others(leader)[0]
        before = await answers(leader, MANY)
        net.isolate(away)
        revision = await leader.storage.declare_index(FITS)
        assert revision == leader.state.revision
        await leader.storage.declare_index(ZONES)
        for number in range(100):
            await net.put(b"/filler/%d" % number, bytes(2000))
        # What was away gets the declarations by a snapshot, the others had them by the log.
        await until(lambda: leader.raft.log.offset > net[away].raft.log.applied)
        net.heal()
        await until(ready(net, "fits", "zones"))
        await net.alike()
        for member in net.members.values():
            assert await answers(member, MANY) == (before[0], "fits")
            keys, index = await answers(member, IN_ZONE)
            assert len(keys) == 40 and index == "zones"
            assert await answers(member, MANY._replace(revision=revision)) == (before[0], "fits")
        leader = await net.leader()
        with pytest.raises(NotLeader):
            await net[net.others(leader)[0]].storage.declare_index(FITS)
        await leader.storage.drop_index("fits")
        await until(ready(net, "zones"))
        await net.alike()
        assert await answers(leader, MANY) == (before[0], "")
        await leader.storage.drop_index("zones")
        for member in net.members.values():
            await until(lambda member=member: not member.state.tables.specs and not member.state.tables.unbuilt)
            with pytest.raises(InvalidRequest, match="field 'zone' is not declared"):
                await member.storage.range(IN_ZONE)
        await net.alike()


async def test_an_index_outlives_restarts_and_is_built_beside_writes(tmp_path):
    net = MemberNet(tmp_path)
    await net.form(1)
    await fill(net, 400)
    await net[1].storage.declare_index(ZONES)

    async def write() -> None:
        for number in range(400):
            await net[1].storage.txn((), (node(number % 50, number % 8),))

    writing = asyncio.ensure_future(write())
    while (await answers(net[1], IN_ZONE))[1] != "zones":
        assert len((await answers(net[1], IN_ZONE))[0]) == 133
        await asyncio.sleep(0.001)
    await writing
    assert len((await answers(net[1], IN_ZONE))[0]) == 133
    hashed = net[1].state.hash()
    await net.stop()
    again = MemberNet(tmp_path)
    await again.start(1)
    assert again[1].state.hash() == hashed
    assert (await again[1].storage.get(key_of("zones")))[0].value == dump(ZONES)
    await until(ready(again, "zones"))
    assert (await answers(again[1], IN_ZONE))[1] == "zones"
    await again.stop()


async def test_what_is_asked_and_what_it_cost_is_counted_and_explained(tmp_path):
    net = MemberNet(tmp_path)
    net.clock = LoopClock(reading_s=0.00001)
    await net.form(1)
    await fill(net, 200)
    storage = net[1].storage
    await storage.declare_index(FITS)
    await until(ready(net, "fits"))
    found = await storage.range(MANY)
    assert found.stats is not None and found.stats.taken_us > 0
    metrics = net[1].metrics()
    prefix = "minikube_py_store_index_"
    assert metrics[prefix + "queries_total"] == metrics[prefix + "hits_total"] == 1
    assert metrics[prefix + 'hits_by_name_total{index="fits"}'] == 1
    assert 0 < metrics[prefix + "query_seconds_total"] < 1
    states = {
        state: metrics[f'minikube_py_store_indexes{{state="{state}"}}'] for state in ("building", "ready", "degraded")
    }
    assert states == {"building": 0, "ready": 1, "degraded": 0}
    (report,) = await storage.indexes()
    assert (report.spec, report.state, report.progress, report.rows) == (FITS, "ready", 1.0, 200)
    assert (report.queries, report.hits) == (1, 1)
    explanation = await storage.explain(MANY)
    chosen = explanation.chosen
    assert (chosen.name, chosen.structure, chosen.found, chosen.objects_decoded) == ("fits", "columns", 100, 0)
    assert chosen.taken_us > 0 and explanation.rows == 200 and 0.3 < explanation.share < 0.7
    columns, scan = explanation.others
    assert (columns.structure, columns.found) == ("columns", 100) and columns.taken_us > 0
    assert (scan.structure, scan.taken_us) == ("scan", -1.0) and scan.estimated_us == 2000.0
    with pytest.raises(InvalidRequest, match="nothing to explain"):
        await storage.explain(MANY._replace(where=None))
    await net.stop()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (IndexSpec("a", "nodes", ("free.cpu",), "magic"), "no structure is named 'magic'; there are scan, columns"),
        (IndexSpec("a", "nodes", ("free.cpu",), "scan", {"depth": 3}), "structure scan has no option 'depth'"),
        (IndexSpec("a", "nodes", ("free.cpu",), "columns", {"block_slots": 1}), "it takes 64 to"),
        (IndexSpec("a", "nodes", ("free.cpu",), "columns", {"block_slots": "many"}), "it takes a whole number"),
        (IndexSpec("a", "nodes", ("color",), "scan"), "field 'color' is not declared on nodes"),
        (IndexSpec("A", "nodes", ("free.cpu",), "scan"), "index name 'A'"),
    ],
    ids=["structure", "option", "value", "kind of value", "field", "name"],
)
async def test_what_cannot_be_is_refused_where_it_comes_in(tmp_path, spec, message):
    net = MemberNet(tmp_path)
    await net.form(1)
    await fill(net, 3)
    before = net[1].state.revision
    with pytest.raises(InvalidRequest, match=message):
        await net[1].storage.declare_index(spec)
    with pytest.raises(InvalidRequest, match="there is no index 'a'"):
        await net[1].storage.drop_index("a")
    assert net[1].state.revision == before and await net[1].storage.indexes() == []
    await net.stop()
