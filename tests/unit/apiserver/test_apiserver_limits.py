"""docs/reference/limits.md names every limit, with its default."""

from __future__ import annotations

import argparse
import re
from dataclasses import fields
from pathlib import Path

from minikube_py.apiserver.limits import Limits
from minikube_py.cli import apiserver

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "limits.md"


def test_the_page_names_every_limit_and_its_default() -> None:
    found = dict(re.findall(r"^\| `(\w+)` \| ([0-9]+) \|", PAGE.read_text(), re.M))
    assert {name: float(value) for name, value in found.items()} == {
        field.name: float(getattr(Limits(), field.name)) for field in fields(Limits)
    }


def test_flags_have_the_defaults_of_the_limits() -> None:
    parser = argparse.ArgumentParser()
    apiserver.configure(parser)
    given = parser.parse_args(["--store", "127.0.0.1:1"])
    limits = Limits()
    assert given.max_requests_inflight == limits.reads_in_flight_max
    assert given.max_mutating_requests_inflight == limits.writes_in_flight_max
    assert given.request_timeout == limits.request_timeout_s
