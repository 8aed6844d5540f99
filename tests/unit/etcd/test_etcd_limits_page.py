"""docs/reference/limits.md names the limits of etcd's API, with their values."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

from minikube_py.apiserver import http1
from minikube_py.etcd import http, kv, large, maintenance, proto_json, users, watch
from minikube_py.etcd.grpc_server import Limits
from minikube_py.etcd.http import HttpLimits
from minikube_py.http2.limits import ConnectionLimits
from minikube_py.mvcc import auth, budgets, validate

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "limits.md"


def test_the_page_names_each_limit_and_its_value() -> None:
    owners = SimpleNamespace(
        Limits=Limits(),
        ConnectionLimits=ConnectionLimits(),
        auth=auth,
        users=users,
        budgets=budgets,
        validate=validate,
        HttpLimits=HttpLimits(),
        http=http,
        http1=http1,
        kv=kv,
        large=large,
        maintenance=maintenance,
        proto_json=proto_json,
        watch=watch,
    )
    found = re.findall(r"^\| `(\w+)\.(\w+)` \| ([0-9]+) \|", PAGE.read_text(), re.M)
    assert [float(value) for _, _, value in found] == [
        float(getattr(getattr(owners, owner), name)) for owner, name, _ in found
    ]
    named = {name for owner, name, _ in found if owner == "HttpLimits"}
    assert named == set(HttpLimits.__dataclass_fields__)
    named = {name for owner, name, _ in found if owner == "Limits"}
    assert named == set(Limits.__dataclass_fields__) - {"progress_s"}
    named = {name for owner, name, _ in found if owner == "ConnectionLimits"}
    assert named == set(ConnectionLimits.__dataclass_fields__)
