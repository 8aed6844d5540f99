"""helm's own chart, by helm unchanged, on upstream's control plane and on ours: the same commands print the same.
`make judge-helm` types more."""

from __future__ import annotations

from pathlib import Path

import pytest
from judge_helm import play
from planes import both

pytestmark = [pytest.mark.original, pytest.mark.slow, pytest.mark.timeout(300)]

STEPS = """
helm install w ./chart --set replicaCount=2,autoscaling.enabled=true,ingress.enabled=true --wait --timeout 60s
kubectl get cm w-look -o jsonpath={.data}
helm upgrade w ./chart --set replicaCount=3,setImage=b --wait --timeout 80s
helm upgrade w ./chart --set service.port=99999
helm rollback w 1 --wait --timeout 80s
helm history w
kubectl get deploy,sts,ds,ing -o wide
helm uninstall w --wait --timeout 60s
kubectl get deploy,sts,ds,pvc,svc -A -o name
"""


def test_helm_installs_and_rolls_back_the_same_on_both(tmp_path: Path) -> None:
    with both(tmp_path, "helm") as ask:
        play(ask, STEPS)
    assert not ask.differing, "\n".join(ask.differing)
    assert ask.succeeded == ask.steps - 1, "but the port that is refused"
