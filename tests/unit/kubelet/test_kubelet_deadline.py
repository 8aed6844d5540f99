"""Fake kubelets: pods that may be active for so long and no longer."""

from __future__ import annotations

from test_kubelet_fake import World, condition


async def test_a_pod_fails_after_its_active_deadline():
    """In the words of kubernetes `pkg/kubelet/active_deadline.go`. It may be set and brought forward while it runs."""
    run = {"minikube-py.io/run-seconds": "30"}
    async with World() as w:
        w.pod("late", spec={"activeDeadlineSeconds": 20}, metadata={"annotations": run})
        w.pod("done", spec={"activeDeadlineSeconds": 40}, metadata={"annotations": run})
        w.pod("leaving", spec={"activeDeadlineSeconds": 20})
        for name, deadline_s in (("set", None), ("sooner", 60)):
            w.pod(name, spec={} if deadline_s is None else {"activeDeadlineSeconds": deadline_s})
        await w.clock.advance(10)
        for name in ("set", "sooner"):
            spec = w.api.kind("pods")[f"a/{name}"]["spec"]
            w.api.change("pods", f"a/{name}", spec={**spec, "activeDeadlineSeconds": 25})
        await w.clock.advance(9)
        assert {w.status(name)["phase"] for name in w.names} == {"Running"}
        w.api.remove("pods", "a/leaving", gracePeriodSeconds=30)
        await w.clock.advance(2)
        status = w.status("late")
        assert (status["phase"], status["reason"]) == ("Failed", "DeadlineExceeded")
        assert status["message"] == "Pod was active on the node longer than the specified deadline"
        assert condition(status, "Ready") == "False"
        assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137
        assert w.status("set")["phase"] == w.status("sooner")["phase"] == "Running"
        await w.restart()
        await w.clock.advance(5)
        assert w.status("set")["reason"] == w.status("sooner")["reason"] == "DeadlineExceeded"
        await w.clock.advance(20)
        assert w.status("done")["phase"] == "Succeeded" and w.status("late")["phase"] == "Failed"
