"""docs/reference/limits.md names every limit, with its default."""

from __future__ import annotations

import argparse
import re
from dataclasses import fields
from pathlib import Path

from minikube_py.apiserver.limits import Limits
from minikube_py.cli import apiserver, forms
from minikube_py.ports.descriptors import PortLimits
from minikube_py.store.limits import ServerLimits
from minikube_py.store.peer_connection import PeerLimits

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "limits.md"


def test_the_page_names_every_limit_and_its_default() -> None:
    sections = PAGE.read_text(encoding="utf-8").split("\n## ")
    own = [each for each in sections if not each.startswith(("Simulated containers\n", "The live page\n"))]
    found = dict(re.findall(r"^\| `(\w+)` \| ([0-9]+) \|", "".join(own), re.M))
    limits = {field.name: float(getattr(Limits(), field.name)) for field in fields(Limits)}
    assert {name: float(value) for name, value in found.items()} == limits


def test_the_page_names_what_the_ports_of_the_store_hold() -> None:
    found = re.findall(r"^\| `(\w+)` \| ([0-9]+) \| ([0-9]+) \| ([0-9]+) \|", PAGE.read_text(), re.M)
    names = {"stranger_patience_s": "patience_s", "header_timeout_s": "handshake_s"}
    for column, given in ((2, ServerLimits()), (3, PeerLimits())):
        limits = PortLimits.proving(given.connections_max, given.hello_s)
        told = {names.get(row[0], row[0]): float(row[column]) for row in found}
        assert told == {name: float(getattr(limits, name)) for name in told}
        assert set(told) == {field.name for field in fields(PortLimits)} - {"proof_s"}
        assert limits.proof_s == limits.handshake_s


def test_flags_have_the_defaults_of_the_limits() -> None:
    parser = argparse.ArgumentParser()
    apiserver.configure(parser)
    given = parser.parse_args(["--store", "127.0.0.1:1"])
    forms.require(given, "", {})
    limits = Limits()
    assert given.max_requests_inflight == limits.reads_in_flight_max
    assert given.max_mutating_requests_inflight == limits.writes_in_flight_max
    assert given.request_timeout == limits.request_timeout_s
