"""Jobs and CronJobs in virtual time, from the pods that fake kubelets end to the status and its events."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import orjson
import pytest

from minikube_py import Cluster
from minikube_py.cluster.virtual import VirtualCluster, VirtualConfig
from minikube_py.kubelet.config import NodeSpec

JOBS = "/apis/batch/v1/namespaces/default/jobs"
CRON_JOBS = "/apis/batch/v1/namespaces/default/cronjobs"
FOREVER = "1000000"
PODS = "/api/v1/namespaces/default/pods"


def job(name: str, run_s: str | None = "5", exit_code: str | None = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"template": template(run_s, exit_code), **spec}}


def template(run_s: str | None = "5", exit_code: str | None = None, policy: str = "Never") -> dict[str, Any]:
    given = {"minikube-py.io/run-seconds": run_s, "minikube-py.io/exit-code": exit_code}
    annotations = {key: value for key, value in given.items() if value is not None}
    pod = {"restartPolicy": policy, "containers": [{"name": "c", "image": "i"}]}
    return {"metadata": {"annotations": annotations}, "spec": pod}


def cluster() -> VirtualCluster:
    return VirtualCluster(7, config=VirtualConfig(nodes=(NodeSpec("a"), NodeSpec("b"))))


def post(c: VirtualCluster, path: str, obj: dict[str, Any]) -> None:
    response = c.request("POST", path, body=orjson.dumps(obj))
    assert response.status == 201, response.body


def patch(c: VirtualCluster, path: str, change: dict[str, Any]) -> None:
    response = c.request("PATCH", path, body=orjson.dumps(change), content_type="application/merge-patch+json")
    assert response.status == 200, response.body


def get(c: VirtualCluster, path: str) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(c.request("GET", path).body)
    return found


def conditions(obj: dict[str, Any]) -> dict[str, tuple[str, str]]:
    listed = obj["status"].get("conditions") or ()
    return {each["type"]: (each["status"], each.get("reason", "")) for each in listed}


def reasons(c: VirtualCluster, name: str) -> set[str]:
    events = get(c, "/api/v1/namespaces/default/events")["items"]
    return {event["reason"] for event in events if event["involvedObject"]["name"] == name}


def test_a_job_runs_its_pods_and_counts_each_once() -> None:
    with cluster() as c:
        post(c, JOBS, job("j", parallelism=2, completions=5))
        c.advance(4)
        running = get(c, f"{JOBS}/j")["status"]
        assert (running["active"], running["ready"]) == (2, 2)
        c.advance(60)
        done = get(c, f"{JOBS}/j")
        pods = get(c, PODS)["items"]
        told = reasons(c, "j")
    status = done["status"]
    assert status["succeeded"] == 5 and not status.get("active") and not status.get("failed")
    assert status["uncountedTerminatedPods"] == {}
    assert conditions(done) == {
        "SuccessCriteriaMet": ("True", "CompletionsReached"),
        "Complete": ("True", "CompletionsReached"),
    }
    assert status["completionTime"] > status["startTime"]
    assert len(pods) == 5 and not any(pod["metadata"].get("finalizers") for pod in pods)
    assert told == {"SuccessfulCreate", "Completed"}


def test_pods_of_jobs_end_by_themselves_and_others_do_not() -> None:
    with cluster() as c:
        post(c, JOBS, job("j", run_s=None))
        lone = {"metadata": {"name": "lone"}, "spec": template(None)["spec"]}
        post(c, PODS, lone)
        c.advance(30)
        assert conditions(get(c, f"{JOBS}/j"))["Complete"][0] == "True"
        assert get(c, f"{PODS}/lone")["status"]["phase"] == "Running"


def test_an_indexed_job_gives_each_pod_its_index() -> None:
    with cluster() as c:
        post(c, JOBS, job("j", parallelism=3, completions=3, completionMode="Indexed"))
        c.advance(30)
        done = get(c, f"{JOBS}/j")["status"]
        pods = get(c, PODS)["items"]
    assert (done["succeeded"], done["completedIndexes"]) == (3, "0-2")
    key = "batch.kubernetes.io/job-completion-index"
    assert sorted(pod["metadata"]["annotations"][key] for pod in pods) == ["0", "1", "2"]
    for pod in pods:
        index = pod["metadata"]["labels"][key]
        assert pod["spec"]["hostname"] == f"j-{index}" and pod["metadata"]["name"].startswith(f"j-{index}-")
        assert pod["spec"]["containers"][0]["env"][0]["name"] == "JOB_COMPLETION_INDEX"


def test_failures_are_tried_again_ever_later_until_the_limit() -> None:
    with cluster() as c:
        post(c, JOBS, job("j", run_s="1", exit_code="3", backoffLimit=2))
        created = []
        for _ in range(90):
            c.advance(1)
            created.append(len(get(c, PODS)["items"]))
        failed = get(c, f"{JOBS}/j")
        told = reasons(c, "j")
        pods = get(c, PODS)["items"]
    # 10 s after the first end, 20 s after the second.
    second, third = created.index(2), created.index(3)
    assert 10 <= second <= 14 and 20 <= third - second <= 25
    assert failed["status"]["failed"] == 3 and created[-1] == 3
    assert conditions(failed)["Failed"] == ("True", "BackoffLimitExceeded")
    assert "BackoffLimitExceeded" in told
    ended = {pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] for pod in pods}
    assert ended == {3} and {pod["status"]["phase"] for pod in pods} == {"Failed"}


@pytest.mark.parametrize(
    ("action", "reason", "failed"), [("FailJob", "PodFailurePolicy", 1), ("Count", "BackoffLimitExceeded", 1)]
)
def test_a_failure_policy_decides(action: str, reason: str, failed: int) -> None:
    rule = {"action": action, "onExitCodes": {"operator": "In", "values": [3]}}
    with cluster() as c:
        post(c, JOBS, job("j", "1", "3", backoffLimit=0, podFailurePolicy={"rules": [rule]}))
        c.advance(30)
        ended = get(c, f"{JOBS}/j")
    assert conditions(ended)["Failed"] == ("True", reason) and ended["status"]["failed"] == failed


def test_indexes_fail_by_themselves() -> None:
    spec = {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimitPerIndex": 1}
    with cluster() as c:
        post(c, JOBS, job("j", "1", "3", **spec))
        c.advance(90)
        ended = get(c, f"{JOBS}/j")
    assert ended["status"]["failedIndexes"] == "0,1" and ended["status"]["failed"] == 4
    assert conditions(ended)["Failed"] == ("True", "FailedIndexes")


def test_a_success_policy_ends_a_job_and_its_other_pods() -> None:
    policy = {"rules": [{"succeededCount": 1}]}
    spec = {"completionMode": "Indexed", "completions": 3, "parallelism": 1, "successPolicy": policy}
    with cluster() as c:
        post(c, JOBS, job("j", **spec))
        c.advance(40)
        ended = get(c, f"{JOBS}/j")
    assert ended["status"]["succeeded"] == 1
    assert conditions(ended)["Complete"] == ("True", "SuccessPolicy")


def test_a_deadline_ends_a_job_and_its_pods() -> None:
    with cluster() as c:
        post(c, JOBS, job("j", run_s=FOREVER, activeDeadlineSeconds=20))
        c.advance(15)
        assert get(c, f"{JOBS}/j")["status"]["active"] == 1
        c.advance(60)
        ended = get(c, f"{JOBS}/j")
        left = get(c, PODS)["items"]
    assert conditions(ended)["Failed"] == ("True", "DeadlineExceeded") and not left
    assert ended["status"]["failed"] == 1 and not ended["status"].get("active")


def test_a_suspended_job_has_no_pods_until_it_goes_on() -> None:
    with cluster() as c:
        post(c, JOBS, job("j", run_s="30"))
        c.advance(5)
        patch(c, f"{JOBS}/j", {"spec": {"suspend": True}})
        c.advance(40)
        waiting = get(c, f"{JOBS}/j")
        assert not get(c, PODS)["items"] and conditions(waiting) == {"Suspended": ("True", "JobSuspended")}
        assert "startTime" not in waiting["status"]
        patch(c, f"{JOBS}/j", {"spec": {"suspend": False}})
        c.advance(60)
        done = get(c, f"{JOBS}/j")
        told = reasons(c, "j")
    assert conditions(done)["Complete"][0] == "True" and conditions(done)["Suspended"] == ("False", "JobResumed")
    assert {"Suspended", "Resumed", "SuccessfulDelete"} <= told


def test_another_controllers_job_is_left_alone() -> None:
    with cluster() as c:
        post(c, JOBS, job("j", managedBy="example.com/x"))
        c.advance(30)
        assert not get(c, PODS)["items"] and get(c, f"{JOBS}/j")["status"] == {}


def test_a_job_goes_some_time_after_its_end_with_its_pods() -> None:
    with cluster() as c:
        post(c, JOBS, job("j", ttlSecondsAfterFinished=60))
        c.advance(50)
        assert conditions(get(c, f"{JOBS}/j"))["Complete"][0] == "True"
        c.advance(60)
        assert c.request("GET", f"{JOBS}/j").status == 404 and not get(c, PODS)["items"]


def test_pods_of_a_deleted_job_go() -> None:
    with cluster() as c:
        post(c, JOBS, job("j", run_s=FOREVER))
        c.advance(5)
        assert c.request("DELETE", f"{JOBS}/j", params={"propagationPolicy": "Background"}).status == 200
        c.advance(60)
        assert not get(c, PODS)["items"]


def cron(name: str, run_s: str = "5", **spec: Any) -> dict[str, Any]:
    inner = {"spec": {"template": template(run_s)}}
    return {"metadata": {"name": name}, "spec": {"schedule": "*/10 * * * *", "jobTemplate": inner, **spec}}


def test_a_cron_job_fires_in_virtual_time_and_keeps_what_its_limit_says() -> None:
    with cluster() as c:
        post(c, CRON_JOBS, cron("c"))
        c.advance(3 * 3600 + 60)
        found, jobs = get(c, f"{CRON_JOBS}/c"), get(c, JOBS)["items"]
        events = get(c, "/api/v1/namespaces/default/events")["items"]
    made = [each for each in events if (each["reason"], each["involvedObject"]["name"]) == ("SuccessfulCreate", "c")]
    # Events are kept for an hour.
    assert 5 <= sum(event.get("count", 1) for event in made) <= 7
    assert len(jobs) == 3 and all(conditions(each)["Complete"][0] == "True" for each in jobs)
    assert not found["status"].get("active") and found["status"]["lastSuccessfulTime"]
    assert found["status"]["lastScheduleTime"].endswith("0:00Z")
    for each in jobs:
        at = each["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"]
        assert each["metadata"]["name"] == f"c-{seconds(at) // 60}"


def seconds(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


@pytest.mark.parametrize(("policy", "most"), [("Allow", 3), ("Forbid", 1), ("Replace", 1)])
def test_what_still_runs_at_the_next_time_is_dealt_with_by_the_policy(policy: str, most: int) -> None:
    with cluster() as c:
        post(c, CRON_JOBS, cron("c", "100000", concurrencyPolicy=policy))
        c.advance(1900)
        jobs, found = get(c, JOBS)["items"], get(c, f"{CRON_JOBS}/c")
        told = reasons(c, "c")
    assert len(jobs) == most and len(found["status"]["active"]) == most
    assert ("SuccessfulDelete" in told) == (policy == "Replace") and "MissingJob" not in told


def test_a_schedule_that_is_never_due_is_told_as_soon_as_it_is_given() -> None:
    with cluster() as c:
        post(c, CRON_JOBS, cron("c"))
        c.advance(60)
        patch(c, f"{CRON_JOBS}/c", {"spec": {"schedule": "0 0 31 2 *"}})
        c.advance(10)
        assert "InvalidSchedule" in reasons(c, "c")


def test_a_suspended_cron_job_starts_nothing() -> None:
    with cluster() as c:
        post(c, CRON_JOBS, cron("c", suspend=True))
        c.advance(3600)
        assert not get(c, JOBS)["items"]


def test_a_cron_job_fires_while_a_cluster_in_virtual_time_advances() -> None:
    with Cluster(nodes=1, clock="virtual", seed=7) as cluster:
        cluster.apply({"apiVersion": "batch/v1", "kind": "CronJob", **cron("c", schedule="0 * * * *")})
        cluster.advance(hours=1)
        (made,) = cluster.objects("jobs")
        assert made["status"]["succeeded"] == 1
