"""Second keys in a real etcd, kept up in the Txn of their object, answer any bounds as brute force does after any
changes; so does our mirror; and the patches for upstream are whole."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from etcd_api import real_etcd
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rivals.contract import Node
from rivals.etcd_keys import END, Bounds, ByCpu, Grid, KeysByCpu, Kv, Mirrored, OfEach, Scan

from minikube_py.etcd.messages import pb

SMALL = st.sampled_from([0, 1, 2, 63, 64, 255, 256, 257, 65_535, 65_536, 100_000])
NODES = st.builds(Node, SMALL, SMALL, st.integers(0, 8))
BOUND = st.one_of(
    st.just((0, END)), SMALL.map(lambda low: (low, END)), SMALL.map(lambda value: (value, value + 1))
)  # fmt: skip
BOUNDS = st.builds(Bounds, BOUND, BOUND, BOUND).filter(lambda bounds: any(each != (0, END) for each in bounds))
CHANGES = st.lists(st.tuples(st.integers(0, 29), NODES), max_size=12)
PATCHES = Path(__file__).parents[2] / "docs" / "upstream"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with real_etcd(tmp_path_factory.mktemp("etcd")) as place:
        yield place


def truth(rows: dict[int, Node], bounds: Bounds) -> set[int]:
    return {number for number, node in rows.items() if bounds.hold(node)}


@pytest.mark.real_time("a real etcd")
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(NODES, min_size=30, max_size=30), CHANGES, st.lists(BOUNDS, min_size=1, max_size=6))
def test_second_keys_answer_as_brute_force(
    place: str, nodes: list[Node], changes: list[tuple[int, Node]], asked: list[Bounds]
) -> None:
    kv = Kv(place)
    kv.write([], [b"\0"])  # A key that nobody has: only that etcd answers.
    for kind in (Scan, ByCpu, KeysByCpu, OfEach, Grid):
        way = kind(kv, kind.__name__.lower())
        way.load(nodes)
        rows = dict(enumerate(nodes))
        for number, node in changes:
            way.update(number, node)
            rows[number] = node
        for bounds in asked:
            found = way.ask(bounds, 0)
            assert len(found) == len(set(found)) and set(found) == truth(rows, bounds), (kind, bounds)
            few = way.ask(bounds, 3)
            assert len(set(few)) == len(few) == min(3, len(found)) and set(few) <= set(found), (kind, bounds)
        prefix = f"/{kind.__name__.lower()}/index/".encode()
        kept = kv.range(pb.RangeRequest(key=prefix, range_end=prefix[:-1] + b"0", count_only=True)).count
        assert kept == len(nodes) * {Scan: 0, ByCpu: 1, KeysByCpu: 1, OfEach: 3, Grid: 1}[kind], "an old key was left"
        whole = f"/{kind.__name__.lower()}/".encode()
        kv.write([], [])
        for key in [each.key for each in kv.range(pb.RangeRequest(key=whole, range_end=whole[:-1] + b"0")).kvs]:
            kv.write([], [key])
    kv.close()


@pytest.mark.real_time("a real etcd")
def test_our_mirror_answers_the_same(place: str) -> None:
    loop = asyncio.new_event_loop()
    nodes = [Node(cpu, memory, cpu % 3) for cpu in (0, 5, 64, 65_536) for memory in (1, 64, 256)]
    way = Mirrored(loop, place, "mirrored")
    way.load(nodes)
    way.update(3, Node(64, 64, 0))
    rows = {**dict(enumerate(nodes)), 3: Node(64, 64, 0)}
    for bounds in (Bounds((64, END)), Bounds((64, 65)), Bounds((5, END), (64, END)), Bounds(gpus=(1, END))):
        assert set(way.ask(bounds, 0)) == truth(rows, bounds)
    way.close()
    loop.close()


@pytest.mark.parametrize("path", sorted(PATCHES.glob("*.patch")), ids=lambda path: path.name)
def test_a_patch_is_of_upstreams_tree_and_whole(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    files = re.findall(r"^\+\+\+ b/(\S+)$", text, re.MULTILINE)
    assert len(files) == 2 and all(file.startswith("staging/src/k8s.io/") for file in files)
    assert any(file.endswith("_test.go") for file in files) and "func Benchmark" in text
