"""Every plane makes its API server with the options that were set on it."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from minikube_py.api.feature_gates import parse
from minikube_py.apiserver.auth import ADMIN
from minikube_py.cluster.player import GatedControlPlane, GatedPlane
from minikube_py.control_plane.in_process import ControlPlane
from minikube_py.control_plane.plane import Plane
from minikube_py.env import Clock, Rng
from minikube_py.lab.calls.recorded import RecordedControlPlane
from minikube_py.store.storage import Storage


def kinds_of(plane: type[Plane]) -> Iterator[type[Plane]]:
    yield plane
    for each in plane.__subclasses__():
        yield from kinds_of(each)


def test_no_kind_of_plane_repeats_the_construction() -> None:
    found = set(kinds_of(Plane))
    assert {GatedPlane, GatedControlPlane, ControlPlane, RecordedControlPlane} <= found
    assert [each.__name__ for each in found if "make_core" in vars(each)] == ["Plane"]


@pytest.mark.parametrize("kind", [Plane, GatedPlane])
def test_options_set_on_a_plane_reach_its_api_server(kind: type[Plane], monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[dict[str, Any]] = []
    new_core = kind.new_core

    def watched(self: Plane, storage: Storage, *given: Any, **options: Any) -> Any:
        taken.append({"storage": storage, **options})
        return new_core(self, storage, *given, **options)

    monkeypatch.setattr(kind, "new_core", watched)
    plane = kind(cast(Clock, SimpleNamespace(wall_s=lambda: 0.0, monotonic_s=lambda: 0.0)), Rng("planes"))
    plane.enabled_plugins = ("ServiceAccount",)
    plane.gates = parse("GenericWorkload=true")
    plane._other = storage = cast(Storage, object())
    core = plane.make_core({"token": ADMIN}, Rng("core"))
    assert taken[0]["storage"] is storage
    assert taken[0]["enabled_plugins"] == ("ServiceAccount",)
    assert any(each.plural == "podgroups" for each in core.registry.kinds)
