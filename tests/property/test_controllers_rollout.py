"""Rolling updates of Deployments, whatever the bounds and however pods come up: in bounds, and with an end."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from minikube_py.controllers import rollout
from minikube_py.controllers.views import WorkloadView, project_workload

bounds = st.one_of(st.integers(0, 6), st.sampled_from(("0%", "10%", "25%", "50%", "100%")))


def view(name: str, image: str, replicas: int, available: int = 0, **spec: Any) -> WorkloadView:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": image}]}}
    metadata = {
        "name": name,
        "namespace": "n",
        "uid": name,
        "generation": 1,
        "creationTimestamp": f"2026-01-01T00:00:0{image}Z",
    }
    full = {"replicas": replicas, "selector": {"matchLabels": {"a": "b"}}, "template": template, **spec}
    return project_workload({"metadata": metadata, "spec": full, "status": {"availableReplicas": available}})


def sized(each: WorkloadView, replicas: int, available: int) -> WorkloadView:
    return replace(each, spec={**each.spec, "replicas": replicas}, status={"availableReplicas": available})


@st.composite
def rollouts(draw: st.DrawFn) -> tuple[WorkloadView, list[WorkloadView]]:
    """A Deployment and its ReplicaSets, the new one last; all that there is fits into its bounds."""
    surge, unavailable = draw(bounds), draw(bounds)
    replicas = draw(st.integers(0, 20))
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}
    deployment = view("web", "9", replicas, strategy=strategy)
    sets = []
    left = rollout.max_size(deployment)
    for number in range(draw(st.integers(1, 4))):
        size = draw(st.integers(0, left))
        left -= size
        sets.append(view(f"web-{number}", str(number), size, draw(st.integers(0, size))))
    return deployment, [*sets, view("web-new", "9", draw(st.integers(0, min(left, replicas))))]


@settings(max_examples=300)
@given(rollouts(), st.randoms(use_true_random=False))
def test_a_rollout_keeps_its_bounds_and_comes_to_an_end(
    given_: tuple[WorkloadView, list[WorkloadView]], chance: random.Random
) -> None:
    deployment, sets = given_
    least = deployment.replicas - rollout.max_unavailable(deployment)
    assert rollout.find_new(deployment, sets) is sets[-1]
    for _ in range(400):
        *old, new = sets
        now = {each.uid: each for each in sets}
        wanted = rollout.new_size(deployment, sets, new.replicas)
        assert wanted >= new.replicas
        if wanted != new.replicas:
            now[new.uid] = sized(new, wanted, new.status["availableReplicas"])
        else:
            before = rollout.count(sets, "availableReplicas")
            for each, size in rollout.shrink_old(deployment, sets, [o for o in old if o.replicas], new):
                standing = now[each.uid]
                assert 0 <= size < standing.replicas
                # Pods that are not available go first.
                now[each.uid] = sized(standing, size, min(standing.status["availableReplicas"], size))
            assert rollout.count(now.values(), "availableReplicas") >= min(before, least)
        sets = [now[each.uid] for each in sets]
        assert rollout.size(sets) <= rollout.max_size(deployment)
        if not any(each.replicas for each in sets[:-1]) and sets[-1].replicas == deployment.replicas:
            return
        new = sets[-1]
        up = chance.randint(0, new.replicas - new.status["availableReplicas"]) or int(
            new.replicas > new.status["availableReplicas"]
        )
        sets[-1] = sized(new, new.replicas, new.status["availableReplicas"] + up)
    raise AssertionError([(each.replicas, each.status) for each in sets])


@settings(max_examples=300)
@given(rollouts(), st.integers(0, 40))
def test_a_scaled_deployment_shares_its_size_in_proportion(
    given_: tuple[WorkloadView, list[WorkloadView]], replicas: int
) -> None:
    deployment, sets = given_
    noted = rollout.size_annotations(deployment)
    active = [replace(each, annotations=noted) for each in sets if each.replicas > 0]
    scaled = sized(deployment, replicas, 0)
    planned = rollout.proportional(scaled, active)
    assert sorted(each.uid for each, _ in planned) == sorted(each.uid for each in active)
    assert all(size >= 0 for _, size in planned)
    if active:
        wanted = rollout.max_size(scaled) if replicas else 0
        assert sum(size for _, size in planned) == wanted
    if 0 < replicas == deployment.replicas and rollout.size(active) == rollout.max_size(deployment):
        assert all(size == each.replicas for each, size in planned)
