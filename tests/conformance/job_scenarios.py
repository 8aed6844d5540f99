"""Jobs and CronJobs as scripts: what is there after each step is compared with upstream's (test_workloads_vs_original).

A script ends the pods itself, and waits for what must follow before it looks: a controller gathers events of pods for a
second, and puts a failed pod's successor off for ten.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from patience import until
from test_controllers_vs_original import NAMESPACE

from minikube_py.client.rest import JOBS, PODS, ResourceRef, RestClient

ENDED_AT = "2026-01-01T00:01:00Z"
Scenario = Callable[[Any], Awaitable[None]]


def job(image: str = "one", **spec: Any) -> dict[str, Any]:
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": image}]}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod}
    return {"metadata": {"name": "web"}, "spec": {"template": template, **spec}}


async def create(world: Any, **spec: Any) -> None:
    await world.client.create(JOBS, job(**spec), NAMESPACE)


async def end(client: RestClient, code: int = 0, index: str = "") -> None:
    """The first running pod, or that of the index, ends."""

    def fits(pod: dict[str, Any]) -> bool:
        at = (pod["metadata"].get("annotations") or {}).get("batch.kubernetes.io/job-completion-index", "")
        lives = pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")
        return lives and (not index or at == index)

    async def running() -> list[dict[str, Any]]:
        return [pod for pod in await client.list(PODS, NAMESPACE) if fits(pod)]

    async def any_running() -> bool:
        return bool(await running())

    await until(any_running, "a pod runs")
    pod = min(await running(), key=lambda each: (each["metadata"]["creationTimestamp"], each["metadata"]["name"]))
    terminated = {"exitCode": code, "reason": "R", "finishedAt": ENDED_AT, "startedAt": ENDED_AT}
    container: dict[str, Any] = {"name": "c", "image": "one", "imageID": "", "ready": False, "restartCount": 0}
    container["state"] = {"terminated": terminated}
    status = {"phase": "Failed" if code else "Succeeded", "containerStatuses": [container]}
    await client.patch(PODS, pod["metadata"]["name"], {"status": status}, NAMESPACE, subresource="status")


async def reached(world: Any, **counts: Any) -> None:
    """The job's status says so."""

    async def says() -> bool:
        status = (await world.client.get(JOBS, "web", NAMESPACE)).get("status") or {}
        return all((status.get(name) or 0) == value for name, value in counts.items())

    await until(says, f"the job's status comes to {counts}")


async def ended(world: Any, kind: str) -> None:
    async def says() -> bool:
        status = (await world.client.get(JOBS, "web", NAMESPACE)).get("status") or {}
        return any(each["type"] == kind and each["status"] == "True" for each in status.get("conditions") or ())

    await until(says, f"the job is {kind}")


async def completes(world: Any) -> None:
    await create(world, parallelism=2, completions=3)
    await reached(world, active=2, ready=2)
    await world.settle("two run")
    await end(world.client)
    await reached(world, active=2, ready=2, succeeded=1)
    await world.settle("one ended, another runs")
    await world.patch({"spec": {"parallelism": 1}})
    await reached(world, active=1, succeeded=1)
    await world.settle("one at a time")
    await end(world.client)
    await reached(world, active=1, ready=1, succeeded=2)
    await end(world.client)
    await ended(world, "Complete")
    await world.settle("complete")


async def by_index(world: Any) -> None:
    await create(world, completionMode="Indexed", completions=3, parallelism=2, backoffLimitPerIndex=0)
    await reached(world, active=2, ready=2)
    await world.settle("two indexes run")
    await end(world.client, index="1")
    await reached(world, active=2, ready=2, succeeded=1)
    await world.settle("index 1 ended")
    await end(world.client, 1, index="0")
    await reached(world, active=1, failed=1)
    await world.settle("index 0 failed")
    await end(world.client, index="2")
    await ended(world, "Failed")
    await world.settle("failed, with two indexes done")


async def fails(world: Any) -> None:
    await create(world, backoffLimit=1)
    await reached(world, active=1, ready=1)
    await end(world.client, 1)
    await reached(world, active=1, ready=1, failed=1)
    await world.settle("tried again")
    await end(world.client, 1)
    await ended(world, "Failed")
    await world.settle("given up")


async def fails_by_policy(world: Any) -> None:
    codes = {"operator": "In", "values": [42]}
    ignored = {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [7]}}
    policy = {"rules": [ignored, {"action": "FailJob", "onExitCodes": codes}]}
    await create(world, parallelism=2, completions=2, backoffLimit=0, podFailurePolicy=policy)
    await reached(world, active=2, ready=2)
    await end(world.client, 42)
    await ended(world, "Failed")
    await world.settle("one exit code ends the job")


async def suspends(world: Any) -> None:
    await create(world, suspend=True, parallelism=2, completions=2)
    await ended(world, "Suspended")
    await world.settle("suspended")
    await world.patch({"spec": {"suspend": False}})
    await reached(world, active=2, ready=2)
    await world.settle("resumed")
    await world.patch({"spec": {"suspend": True}})
    await ended(world, "Suspended")
    await reached(world, active=0, terminating=0)
    await world.settle("suspended again")


async def succeeds_by_policy(world: Any) -> None:
    policy = {"rules": [{"succeededIndexes": "1"}]}
    await create(world, completionMode="Indexed", completions=2, parallelism=2, successPolicy=policy)
    await reached(world, active=2, ready=2)
    await end(world.client, index="1")
    await ended(world, "Complete")
    await world.settle("one index is enough")
    await world.client.delete(JOBS, "web", NAMESPACE, propagation="Foreground")
    await world.settle("deleted in the foreground")


JOB_SCENARIOS: dict[str, tuple[ResourceRef, tuple[ResourceRef, ...], Scenario]] = {
    "a Job completes": (JOBS, (), completes),
    "a Job by index": (JOBS, (), by_index),
    "a Job fails": (JOBS, (), fails),
    "a Job fails by its policy": (JOBS, (), fails_by_policy),
    "a Job suspends": (JOBS, (), suspends),
    "a Job succeeds by its policy": (JOBS, (), succeeds_by_policy),
}
