"""Volumes that are assumed: in whatever order things happen, a volume goes to one claim, and a claim to one volume.

Several pods choose, write and give up, while the informer lags behind an API server on which others write too.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from fed_kinds import FedKinds
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from minikube_py.scheduler.volumes.assumed import OutOfSync
from minikube_py.scheduler.volumes.binding import Chosen, assume, restore, write
from minikube_py.scheduler.volumes.finding import find, sorted_claims
from minikube_py.scheduler.volumes.storage import Storage
from minikube_py.scheduler.volumes.views import CLAIMS, VOLUMES, ClaimView, ClassView, VolumeView

NAMES = st.sampled_from(["v0", "v1", "v2"])
CLAIM_NAMES = st.sampled_from(["c0", "c1", "c2"])
CHOICES = st.sampled_from([["c0"], ["c1"], ["c0", "c1"], ["c2", "c0"]])
NODES = st.sampled_from(["n0", "n1"])
AMOUNTS = st.sampled_from(["1Gi", "2Gi"])


class Refused(Exception):
    """What a client raises."""


@types.coroutine
def _pause() -> Iterator[None]:
    yield


class Volumes(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.kinds = FedKinds()
        self.storage = Storage(self.kinds)  # type: ignore[arg-type]
        self.version = 0
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.late: list[tuple[str, str, dict[str, Any] | None]] = []
        self.cycles: list[tuple[Chosen, Any]] = []
        self.owners: dict[str, str] = {}
        kind = {"metadata": {"name": "s", "uid": "s"}, "volumeBindingMode": "WaitForFirstConsumer"}
        self.storage.classes.put("s", ClassView({**kind, "provisioner": "kubernetes.io/no-provisioner"}))
        made = {"metadata": {"name": "m", "uid": "m"}, "volumeBindingMode": "WaitForFirstConsumer"}
        self.storage.classes.put("m", ClassView({**made, "provisioner": "example.com/made"}))

    # --- the API server, and its informers --------------------------------------------------------------------------

    def write(self, kind: str, key: str, obj: dict[str, Any]) -> None:
        self.version += 1
        stored = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}
        if kind == VOLUMES.name:
            claim = (stored["spec"].get("claimRef") or {}).get("name")
            before = self.owners.get(stored["metadata"]["uid"])
            assert before is None or claim == before, f"{key} went from {before} to {claim}"
            if claim is not None:
                self.owners[stored["metadata"]["uid"]] = claim
        self.objects[kind, key] = stored
        self.late.append((kind, key, stored))

    @precondition(lambda self: self.late)
    @rule(number=st.integers(1, 3))
    def deliver(self, number: int) -> None:
        for kind, key, obj in self.late[:number]:
            if obj is None:
                self.kinds.remove(kind, key)
            else:
                self.kinds.put(kind, VolumeView(obj) if kind == VOLUMES.name else ClaimView(obj))
        del self.late[:number]

    @initialize(sizes=st.tuples(AMOUNTS, AMOUNTS, AMOUNTS))
    def begin(self, sizes: tuple[str, str, str]) -> None:
        for name, size, node in zip(("v0", "v1", "v2"), sizes, ("n0", "n1", ""), strict=True):
            self.make_volume(name, size, node)
        self.make_claim("c0", "1Gi", "s")
        self.make_claim("c1", "1Gi", "s")
        self.deliver(len(self.late))

    # --- what others do ---------------------------------------------------------------------------------------------

    @rule(name=NAMES, size=AMOUNTS, pinned=st.sampled_from(["", "n0", "n1"]))
    def make_volume(self, name: str, size: str, pinned: str) -> None:
        if (VOLUMES.name, name) in self.objects:
            return
        spec: dict[str, Any] = {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"]}
        spec["storageClassName"] = "s"
        if pinned:
            where = [{"key": "host", "operator": "In", "values": [pinned]}]
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": where}]}}
        metadata = {"name": name, "uid": f"{name}-{self.version}"}
        self.write(VOLUMES.name, name, {"metadata": metadata, "spec": spec, "status": {"phase": "Available"}})

    @rule(name=CLAIM_NAMES, size=AMOUNTS, of=st.sampled_from(["s", "s", "m"]))
    def make_claim(self, name: str, size: str, of: str) -> None:
        key = f"d/{name}"
        if (CLAIMS.name, key) not in self.objects:
            spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
            metadata = {"name": name, "namespace": "d", "uid": f"{name}-{self.version}"}
            self.write(CLAIMS.name, key, {"metadata": metadata, "spec": {**spec, "storageClassName": of}})

    @rule(name=NAMES, value=st.sampled_from(["x", "y"]))
    def relabel(self, name: str, value: str) -> None:
        obj = self.objects.get((VOLUMES.name, name))
        if obj is not None:
            self.write(VOLUMES.name, name, {**obj, "metadata": {**obj["metadata"], "labels": {"l": value}}})

    @rule(name=NAMES)
    def delete_volume(self, name: str) -> None:
        if self.objects.pop((VOLUMES.name, name), None) is not None:
            self.version += 1
            self.late.append((VOLUMES.name, name, None))

    # --- pods -------------------------------------------------------------------------------------------------------

    @rule(names=CHOICES, node=NODES)
    def choose(self, names: list[str], node: str) -> None:
        claims = [self.storage.claims.get(f"d/{name}") for name in names]
        known = [claim for claim in claims if claim is not None]
        if len(known) < len(names) or any(self.is_being_told(claim.uid) for claim in known):
            return
        found = find(self.storage, sorted_claims(self.storage, known), node, {"host": node})
        if found.reasons:
            return
        for volume, claim in found.bindings:
            other = self.storage.volumes._assumed.get(volume.key)
            assert other is None or other.claim["uid"] == claim.uid, f"{volume.key} is assumed for another claim"
        try:
            chosen = assume(self.storage, found, node)
        except OutOfSync:
            return
        self.cycles.append((chosen, None))

    def is_being_told(self, uid: str) -> bool:
        """A volume was written for the claim, and the informers have not said so: PreBind waits for that, and only then
        is a pod decided again."""
        volumes = (obj for kind, _, obj in self.late if kind == VOLUMES.name and obj is not None)
        return any((obj["spec"].get("claimRef") or {}).get("uid") == uid for obj in volumes)

    async def update(self, resource: Any, obj: dict[str, Any]) -> dict[str, Any]:
        """As a client has it; the answer arrives when the coroutine is resumed."""
        kind = VOLUMES if resource == VOLUMES.resource else CLAIMS
        key = kind.project(obj).key
        now = self.objects.get((kind.name, key))
        if now is None or now["metadata"]["resourceVersion"] != obj["metadata"]["resourceVersion"]:
            raise Refused
        self.write(kind.name, key, obj)
        written = self.objects[kind.name, key]
        await _pause()
        return written

    @precondition(lambda self: self.cycles)
    @rule(data=st.data())
    def write_next(self, data: st.DataObject) -> None:
        """The next write of a cycle; a conflict ends it, and so does its last one."""
        place = data.draw(st.integers(0, len(self.cycles) - 1))
        chosen, writing = self.cycles[place]
        if writing is None:
            writing = write(self, self.storage, chosen)
            self.cycles[place] = chosen, writing
        try:
            writing.send(None)
        except (StopIteration, Refused):
            del self.cycles[place]

    @precondition(lambda self: self.cycles)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        """Before anything is written; after that, PreBind looks after what is assumed."""
        place = data.draw(st.integers(0, len(self.cycles) - 1))
        if self.cycles[place][1] is None:
            restore(self.storage, self.cycles.pop(place)[0])

    # --- laws -------------------------------------------------------------------------------------------------------

    @invariant()
    def no_claim_has_two_volumes(self) -> None:
        named: dict[str, str] = {}
        for (kind, key), obj in self.objects.items():
            reference = obj["spec"].get("claimRef") if kind == VOLUMES.name else None
            if reference is not None:
                assert reference["uid"] not in named, (named, key)
                named[reference["uid"]] = key

    @invariant()
    def what_is_assumed_is_of_the_version_that_is_served(self) -> None:
        for assumed in (self.storage.volumes, self.storage.claims):
            for key, view in assumed._assumed.items():
                served = assumed.served(key)
                assert served is not None and served.resource_version == view.resource_version

    def teardown(self) -> None:
        for chosen, writing in self.cycles:
            if writing is None:
                restore(self.storage, chosen)
                continue
            with suppress(StopIteration, Refused):
                while True:
                    writing.send(None)
        while self.late:
            self.deliver(1)
        assert len(self.storage.volumes) == len(self.storage.claims) == 0


Volumes.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestVolumes: Callable[..., Any] = Volumes.TestCase
