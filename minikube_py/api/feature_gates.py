"""`--feature-gates`, as in upstream: which gates can be set, and their dependencies.

Two gates can be enabled. All others have upstream's defaults; changing one is an error that names it. Source:
component-base `featuregate/feature_gate.go`; `pkg/features/kube_features.go`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import orjson

from minikube_py.api.errors import go_quote
from minikube_py.errors import RequestError
from minikube_py.fields.booleans import BOOLEANS

GENERIC_WORKLOAD: Final = "GenericWorkload"
"""The kinds Workload and PodGroup, a pod's schedulingGroup, and the scheduling cycle of a group."""
GANG_SCHEDULING: Final = "GangScheduling"
"""The scheduler's plugin of that name."""
NEEDS: Final[Mapping[str, tuple[str, ...]]] = {GENERIC_WORKLOAD: (), GANG_SCHEDULING: (GENERIC_WORKLOAD,)}
"""The gates that may be turned on, and the gates that each depends on."""

FeatureGates = frozenset[str]
"""The names of the gates enabled beyond upstream's defaults."""
NO_GATES: Final[FeatureGates] = frozenset()
EVERY_GATE: Final[FeatureGates] = frozenset(NEEDS)

_OF_ALL: Final = ("AllAlpha", "AllBeta")


class FeatureGateError(RequestError):
    """Upstream's words, except for gates that cannot be set here."""


@cache
def known() -> Mapping[str, tuple[bool, bool]]:
    """By gate of upstream, whether it is on by default, and whether it cannot be changed."""
    read = orjson.loads(Path(__file__).with_name("feature_gates.json").read_bytes())
    return {name: (bool(default), bool(locked)) for name, (default, locked) in read.items()}


def parse(text: str) -> FeatureGates:
    """`Name=true,Other=false`. Raises: FeatureGateError."""
    wanted: dict[str, bool] = {}
    for part in filter(None, text.split(",")):
        name, given, written = (piece.strip() for piece in part.partition("="))
        if not given:
            raise FeatureGateError(f"missing bool value for {name}")
        if written not in BOOLEANS:
            why = f"strconv.ParseBool: parsing {go_quote(written)}: invalid syntax"
            raise FeatureGateError(f"invalid value of {name}={written}, err: {why}")
        wanted[name] = BOOLEANS[written]
    for name, value in wanted.items():
        _check(name, value)
    on = frozenset(name for name, value in wanted.items() if value and name in NEEDS)
    for name in sorted(on):
        if missing := [each for each in NEEDS[name] if each not in on]:
            lacking = " ".join(missing)
            raise FeatureGateError(f"{name} is enabled, but depends on features that are disabled: [{lacking}]")
    return on


def _check(name: str, value: bool) -> None:
    if name in _OF_ALL:
        raise FeatureGateError(f"{name} cannot be set here; the gates that can are {', '.join(NEEDS)}")
    if name not in known():
        raise FeatureGateError(f"unrecognized feature gate: {name}")
    default, locked = known()[name]
    if value == default or name in NEEDS:
        return
    wanted, stands = str(value).lower(), str(default).lower()
    if locked:
        raise FeatureGateError(f"cannot set feature gate {name} to {wanted}, feature is locked to {stands}")
    text = f"feature gate {name} cannot be set to {wanted} here, it is {stands} as by upstream's default"
    raise FeatureGateError(f"{text}; the gates that can be set are {', '.join(NEEDS)}")
