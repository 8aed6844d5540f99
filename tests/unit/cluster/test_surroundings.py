"""What a program under test finds beside the cluster is the seed's, and the caller's is left as it was."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import kubernetes
import numpy
import pytest

from minikube_py import Cluster
from minikube_py.sim import running as sim
from minikube_py.sim.replaced import held
from minikube_py.sim.tasks import WAIT_FOR


def draws() -> list[object]:
    return [
        random.random(), random.choice("abc"), random.SystemRandom().random(), secrets.token_hex(4), str(uuid.uuid4()),
        os.urandom(3), float(numpy.random.rand()), float(numpy.random.default_rng().random()),
    ]  # fmt: skip


def asynchronous(cluster: Cluster, found: list[object]) -> None:
    async def main(_: Any) -> None:
        for _ in range(3):
            await asyncio.sleep(1)
            found.append(draws())

    cluster.program(main)
    cluster.advance(2)
    cluster.advance(5)


def plain(cluster: Cluster, found: list[object]) -> None:
    def main(_: Any) -> None:
        for _ in range(3):
            time.sleep(1)
            found.append(draws())

    cluster.program(main)
    cluster.advance(2)
    cluster.advance(5)


def by_run(cluster: Cluster, found: list[object]) -> None:
    async def main() -> None:
        found.append(draws())

    for _ in range(3):
        cluster.run(main)


@pytest.mark.parametrize("kind", [asynchronous, plain, by_run])
def test_what_it_draws_is_the_seeds(kind: Callable[[Cluster, list[object]], None]) -> None:
    def drawn(seed: int, callers: int) -> list[object]:
        random.seed(callers)
        numpy.random.seed(callers)
        expected = random.Random(callers)
        found: list[object] = []
        with Cluster(nodes=0, clock="virtual", seed=seed) as cluster:
            assert random.random() == expected.random()
            kind(cluster, found)
            assert random.random() == expected.random()
        assert random.random() == expected.random()
        assert numpy.random.rand() == numpy.random.RandomState(callers).rand()
        assert len(found) == 3 and found[0] != found[1] != found[2]
        return found

    own = os.urandom
    assert drawn(5, 1) == drawn(5, 2) != drawn(6, 1)
    assert os.urandom is own and random._urandom is own  # type: ignore[attr-defined]


def test_clusters_on_several_threads_draw_what_each_draws_alone() -> None:
    def drawn(seed: int) -> list[object]:
        found: list[object] = []
        with Cluster(nodes=0, clock="virtual", seed=seed) as cluster:
            for _ in range(20):
                asynchronous(cluster, found)
        return found

    alone = [drawn(seed) for seed in range(3)]
    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(drawn, range(3))) == alone


def test_what_a_client_discovers_stays_in_its_cluster() -> None:
    """DynamicClient keeps it in a file named for the server's URL."""
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "zeds.x.io"},
        "spec": {
            "group": "x.io", "scope": "Namespaced", "names": {"plural": "zeds", "kind": "Zed"},
            "versions": [{
                "name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}},
            }],
        },
    }  # fmt: skip

    def found(with_definition: bool) -> tuple[str, str]:
        seen: list[str] = []

        def main(clients: Any) -> None:
            client = kubernetes.dynamic.DynamicClient(clients.kubernetes())
            try:
                seen.append(client.resources.get(api_version="x.io/v1", kind="Zed").name)
            except kubernetes.dynamic.exceptions.ResourceNotFoundError:
                seen.append("none")

        with Cluster(nodes=0, clock="virtual", seed=1) as cluster:
            if with_definition:
                cluster.apply(definition)
                cluster.advance(1)
            cluster.program(main)
            cluster.advance(10)
            return seen[0], cluster.digest

    before = set(Path(tempfile.gettempdir()).glob("osrcp-*"))
    (none, digest), (some, _), (none_again, digest_again) = found(False), found(True), found(False)
    assert (none, some, none_again) == ("none", "zeds", "none") and digest == digest_again
    assert set(Path(tempfile.gettempdir()).glob("osrcp-*")) == before


async def outcome_of(timeout: float | None, work: str) -> str:
    """What a caller of wait_for sees, and what became of the work."""
    log: list[str] = []

    async def quick() -> str:
        log.append("began")
        return "value"

    async def late() -> str:
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            log.append("cancelled")
            raise
        return "late"

    async def clings() -> str:
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            return "kept on"
        return "late"

    async def fails() -> str:
        raise KeyError("bad")

    made: Any = {"quick": quick, "late": late, "clings": clings, "fails": fails}[work.partition(" ")[0]]()
    if work.endswith("task"):
        made = asyncio.ensure_future(made)
        if work.startswith("quick"):
            await made
    try:
        log.append(str(await asyncio.wait_for(made, timeout)))
    except (TimeoutError, KeyError) as error:
        log.append(repr(error))
    return " ".join(log)


@pytest.mark.parametrize("work", ["quick", "late", "fails", "quick task", "late task", "fails task", "clings task"])
@pytest.mark.parametrize("timeout", [None, -1, 0, 0.001, 1])
def test_wait_for_means_what_asyncio_means(timeout: float | None, work: str) -> None:
    with held(WAIT_FOR):
        simulated = sim.run(lambda: outcome_of(timeout, work))
    assert simulated == asyncio.run(outcome_of(timeout, work))


@pytest.mark.parametrize("plainly", [True, False])
def test_what_modules_draw_as_they_are_imported_moves_nothing(
    plainly: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As rich does, which httpx imports where it is installed."""
    text = "import os, random, numpy\nfound = random.random(), os.urandom(3), numpy.random.rand()\nimport drawing_inner"
    (tmp_path / "drawing.py").write_text(text)
    (tmp_path / "drawing_inner.py").write_text(text.rpartition("\n")[0])
    monkeypatch.syspath_prepend(tmp_path)

    def drawn(*loaded: str) -> list[object]:
        for name in {"drawing", "drawing_inner"}.difference(loaded):
            sys.modules.pop(name, None)
        found: list[object] = []

        def imports() -> None:
            module = import_module("drawing")
            found.extend((module.found, module.drawing_inner.found, draws()))

        async def main(_: Any) -> None:
            imports()

        with Cluster(nodes=0, clock="virtual", seed=5) as cluster:
            cluster.program((lambda _: imports()) if plainly else main)
            cluster.advance(1)
        return found

    first = drawn()
    assert drawn() == first
    # What it finds loaded has drawn in another run.
    assert drawn("drawing_inner") == drawn("drawing", "drawing_inner") == first
    assert len({str(each) for each in first[:2]}) == 2
