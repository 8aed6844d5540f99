"""`--feature-gates`: upstream's words, and refusals of what is not built."""

from __future__ import annotations

import pytest

from minikube_py.api.feature_gates import EVERY_GATE, NO_GATES, FeatureGateError, known, parse
from minikube_py.api.registry import REGISTRY, registry_of

WRONG = {
    "Wings=true": "unrecognized feature gate: Wings",
    "=true": "unrecognized feature gate: ",
    "GangScheduling": "missing bool value for GangScheduling",
    "GangScheduling=x": 'invalid value of GangScheduling=x, err: strconv.ParseBool: parsing "x": invalid syntax',
    "GangScheduling=true": "GangScheduling is enabled, but depends on features that are disabled: [GenericWorkload]",
    "WorkloadAwarePreemption=true": "feature gate WorkloadAwarePreemption cannot be set to true here",
    "AllAlpha=true": "AllAlpha cannot be set here",
}
"""The first five as kube-scheduler 1.36.2 says them."""


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_refused_by_name(text: str) -> None:
    with pytest.raises(FeatureGateError) as caught:
        parse(text)
    assert str(caught.value).startswith(WRONG[text])


def test_a_gate_that_is_locked_is_refused_as_upstream_does() -> None:
    name = next(name for name, (default, locked) in known().items() if default and locked)
    with pytest.raises(FeatureGateError, match=f"cannot set feature gate {name} to false, feature is locked to true"):
        parse(f"{name}=false")


def test_values_are_read_as_go_does_and_defaults_may_be_repeated() -> None:
    assert parse("") == NO_GATES
    assert parse("GenericWorkload=T, GangScheduling=1,OpportunisticBatching=true") == EVERY_GATE
    assert parse("GenericWorkload=true,GenericWorkload=false") == NO_GATES


def test_the_kinds_of_a_gate_follow_those_of_their_group() -> None:
    assert registry_of(NO_GATES) is REGISTRY
    more = registry_of(EVERY_GATE)
    assert [kind for kind in more.kinds if kind in REGISTRY.kinds] == list(REGISTRY.kinds)
    served = [(kind.version, kind.plural) for kind in more.kinds if kind.group == "scheduling.k8s.io"]
    assert served == [("v1", "priorityclasses"), ("v1alpha2", "podgroups"), ("v1alpha2", "workloads")]
