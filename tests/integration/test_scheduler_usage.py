"""A scheduler in a process of its own places pods by usage that it reads from the API server's metrics.k8s.io."""

from pathlib import Path

from patience import until
from test_leases_of_processes import bound, client_of, make_node, roles, server, start

from minikube_py.client.rest import NODES, PODS, Object, ResourceRef

__all__ = ["server"]
API_SERVICES = ResourceRef("apiregistration.k8s.io", "v1", "apiservices")
METRICS = ResourceRef("metrics.k8s.io", "v1beta1", "nodes")
PACKING = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    multiPoint: {enabled: [{name: TargetLoadPacking}]}
    score: {enabled: [{name: TargetLoadPacking}], disabled: [{name: "*"}]}
"""


async def test_a_scheduler_of_its_own_fills_the_node_that_is_in_use(server: Path, tmp_path: Path) -> None:
    file = tmp_path / "packing.yaml"
    file.write_text(PACKING)
    async with client_of(server) as client, roles() as children:
        spec = {"group": METRICS.group, "version": METRICS.version, "groupPriorityMinimum": 100, "versionPriority": 100}
        service: Object = {"metadata": {"name": "v1beta1.metrics.k8s.io"}, "spec": spec}
        await client.create(API_SERVICES, service)
        used = {"empty": "0", "third": "2400m", "full": "7900m"}
        for name, cpu in used.items():
            await make_node(client, name)
            metadata = {"name": f"on-{name}", "annotations": {"kwok.x-k8s.io/usage-cpu": cpu}}
            containers = {"containers": [{"name": "c", "image": "x"}], "nodeName": name}
            created = await client.create(PODS, {"metadata": metadata, "spec": containers}, "default")
            await client.update_status(
                PODS, {**created, "status": {"phase": "Running", "startTime": "2023-01-01T00:00:00Z"}}
            )

        async def served() -> bool:
            found = {each["metadata"]["name"]: each["usage"]["cpu"] for each in await client.list(METRICS)}
            return found == used

        await until(served, "usage of the nodes")
        await start(children, "scheduler", tmp_path, "--kubeconfig", str(server), "--scheduler-config", str(file))
        for number in range(3):
            limits = {"resources": {"limits": {"cpu": "100m"}}}
            spec = {"containers": [{"name": "c", "image": "x", **limits}]}
            await client.create(PODS, {"metadata": {"name": f"new-{number}"}, "spec": spec}, "default")
            await until(lambda number=number: bound(client, f"new-{number}"), "bound")
            assert await bound(client, f"new-{number}") == "third"
        assert {node["metadata"]["name"] for node in await client.list(NODES)} == set(used)
