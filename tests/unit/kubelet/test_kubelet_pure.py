"""Addresses, statuses and rounds of heartbeats, without an API."""

import random
from itertools import chain

import orjson
import pytest

from minikube_py.errors import RequestError
from minikube_py.kubelet.addresses import AddressPlan, Block
from minikube_py.kubelet.config import Delay
from minikube_py.kubelet.heartbeats import Round, batches
from minikube_py.kubelet.node_status import lease
from minikube_py.kubelet.nodes import version_of
from minikube_py.kubelet.pod_status import Container, PodStatuses, deletion


@pytest.mark.parametrize(("nodes", "cidr"), [(10, "10.0.1.0/24"), (65_536, "10.0.1.0/24"), (65_537, "10.0.0.128/25")])
def test_blocks_shrink_where_so_many_would_not_fit(nodes, cidr):
    plan = AddressPlan("10.0.0.0/8", "172.16.0.0/12", nodes)
    plan.new_block()
    assert plan.new_block().cidr == cidr


@pytest.mark.parametrize(
    ("services", "nodes", "first"),
    [
        ("10.0.0.0/24", 10, "10.0.1.0/24"),
        ("10.0.0.0/20", 10, "10.0.16.0/24"),
        ("10.0.0.0/24", 65_536, "10.0.1.0/25"),
        ("192.168.0.0/16", 10, "10.0.0.0/24"),
    ],
)
def test_no_pod_gets_an_address_of_the_services(services, nodes, first):
    plan = AddressPlan("10.0.0.0/8", "172.16.0.0/12", nodes, service_cidr=services)
    assert plan.new_block().cidr == first


def test_100_000_nodes_fit_and_1_000_000_do_not():
    AddressPlan("10.0.0.0/8", "172.16.0.0/12", 100_000)
    with pytest.raises(RequestError, match="do not fit"):
        AddressPlan("10.0.0.0/8", "172.16.0.0/12", 1_000_000)


def test_blocks_in_use_are_not_given_again():
    plan = AddressPlan("10.0.0.0/8", "172.16.0.0/12", 3)
    plan.block_of("10.0.0.0/24")
    plan.block_of("192.168.0.0/24")
    assert [plan.new_block().cidr for _ in range(2)] == ["10.0.1.0/24", "10.0.2.0/24"]


def test_all_blocks_taken():
    plan = AddressPlan("10.0.0.0/23", "172.16.0.0/12", 2)
    plan.new_block()
    plan.new_block()
    with pytest.raises(RequestError, match="all 2 blocks"):
        plan.new_block()


@pytest.mark.parametrize("cidr", ["10.0.0.0/33", "nonsense", "fd00::/64"])
def test_bad_networks(cidr):
    with pytest.raises(RequestError, match="not an IPv4 network"):
        AddressPlan(cidr, "172.16.0.0/12", 1)


def test_a_block_gives_each_address_once_and_reuses_late():
    block = Block(10 << 24, 3)
    first = [block.take() for _ in range(6)]
    assert first == [f"10.0.0.{number}" for number in range(1, 7)] and block.take() is None
    block.give_back("10.0.0.2")
    block.give_back("192.168.0.1")
    block.give_back("not an address")
    assert block.used == 5 and block.take() == "10.0.0.2"


def test_reserved_addresses_are_not_given():
    block = Block(10 << 24, 3)
    block.reserve("10.0.0.1")
    assert block.take() == "10.0.0.2"


def test_statuses_are_json_and_name_their_pod():
    containers = (Container("c", 'odd"image', "main"), Container("i", "x", "init"))
    statuses = PodStatuses()
    running = orjson.loads(statuses.running("u1", containers, "172.16.0.1", "10.0.0.1", "2026-01-01T00:00:00Z"))
    assert running["metadata"] == {"uid": "u1"} and running["status"]["containerStatuses"][0]["image"] == 'odd"image'
    assert b"@" not in statuses.running("u1", containers, "h", "p", "t")
    finished = orjson.loads(statuses.ended("u2", containers, "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"))
    assert finished["status"]["phase"] == "Succeeded"
    assert orjson.loads(deletion("u1"))["preconditions"] == {"uid": "u1"}


def test_leases_are_json():
    made = orjson.loads(lease("n", "u", "7", 40, "t"))
    assert made["metadata"]["resourceVersion"] == "7" and made["spec"]["leaseDurationSeconds"] == 40
    assert "ownerReferences" not in orjson.loads(lease("n", "", "", 40, "t"))["metadata"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"kind":"Lease","metadata":{"resourceVersion":"7","name":"n"}}', "7"),
        (b'{"metadata":{"name":"n","resourceVersion":"12"},"x":{"resourceVersion":"9"}}', "12"),
        (b"{}", ""),
    ],
)
def test_versions_are_found_without_decoding(body, expected):
    assert version_of(body) == expected


def test_a_round_gives_each_node_one_turn_an_interval():
    round_ = Round(None, lambda: 10.0, None)
    for number in range(7):
        round_.add(f"n{number}")
    turns = [name for _ in range(40) for name in round_.due(0.25)]
    assert sorted(turns) == sorted(f"n{number}" for number in range(7))
    round_.discard("n3")
    turns = [name for _ in range(80) for name in round_.due(0.25)]
    assert "n3" not in turns and {turns.count(f"n{number}") for number in range(7) if number != 3} == {2}


def test_a_node_that_left_and_came_back_before_its_turn_has_one_place():
    round_ = Round(None, lambda: 10.0, None)
    for name in ("n1", "n2"):
        round_.add(name)
    for _ in range(5):
        round_.discard("n1")
        round_.add("n1")
    turns = [name for _ in range(80) for name in round_.due(0.25)]
    assert turns.count("n1") == turns.count("n2") == 2


def test_first_turns_come_soon_whatever_the_interval():
    round_ = Round(None, lambda: 1000.0, None, soon_s=10.0)
    for number in range(100):
        round_.add(f"n{number}", soon=True)
    round_.discard("n7")
    turns = [round_.due(1.0) for _ in range(10)]
    assert all(8 <= len(names) <= 12 for names in turns)
    assert sorted(chain.from_iterable(turns)) == sorted(f"n{number}" for number in range(100) if number != 7)
    later = [name for _ in range(1000) for name in round_.due(1.0)]
    assert sorted(later) == sorted(f"n{number}" for number in range(100) if number != 7)


@pytest.mark.parametrize(("calls", "largest"), [(10, 10), (200, 32), (800, 100)])
def test_many_heartbeats_go_in_larger_batches_not_in_more(calls, largest):
    found = list(batches(range(calls)))
    assert max(map(len, found)) == largest
    assert list(chain.from_iterable(found)) == list(range(calls))


def test_a_round_that_was_held_up_does_not_flood():
    round_ = Round(None, lambda: 10.0, None)
    for number in range(5):
        round_.add(f"n{number}")
    assert len(round_.due(1000.0)) == 5


def test_delays_stay_within_their_bounds():
    rng = random.Random(1)
    uniform = [Delay(1, 3).draw_s(rng) for _ in range(500)]
    assert min(uniform) >= 1 and max(uniform) <= 3 and 1.8 < sum(uniform) / 500 < 2.2
    exponential = [Delay(1, 10, "exponential").draw_s(rng) for _ in range(2000)]
    assert max(exponential) <= 10 and 0.9 < sum(exponential) / 2000 < 1.1
    assert Delay().draw_s(rng) == 0
