"""A volume whose claim ended before the claim named it is released."""

from __future__ import annotations

from typing import Any

from minikube_py import Cluster
from minikube_py.controllers.volume_binder import RESYNC_S


def made(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    modes = {"accessModes": ["ReadWriteOnce"], "storageClassName": "slow"}
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "spec": {**modes, **spec}}


def test_the_volume_of_a_claim_that_never_named_it_is_released() -> None:
    """The claim's end leads to no volume, and the volume's last event came while the claim was there."""
    with Cluster(nodes=0, clock="virtual") as cluster:
        (claim,) = cluster.apply(made("PersistentVolumeClaim", "c", {"resources": {"requests": {"storage": "1Gi"}}}))
        cluster.advance(RESYNC_S)
        named = {"namespace": "default", "name": "c", "uid": claim["metadata"]["uid"]}
        # Its mode does not suit the claim, so nothing is bound.
        spec = {"capacity": {"storage": "1Gi"}, "volumeMode": "Block", "claimRef": named, "hostPath": {"path": "/v"}}
        cluster.apply(made("PersistentVolume", "v", {**spec, "persistentVolumeReclaimPolicy": "Retain"}))
        cluster.advance(1)
        cluster.delete("pvc/c")
        cluster.wait("pvc/c", gone=True)
        cluster.advance(1)
        assert cluster.get("pv/v")["status"]["phase"] != "Released"
        cluster.advance(RESYNC_S)
        assert cluster.get("pv/v")["status"]["phase"] == "Released"
