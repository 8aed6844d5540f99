"""Checks a write against quotas, and computes the new usage.

Source: `apiserver/pkg/admission/plugin/resourcequota/controller.go` (CheckRequest).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from minikube_py.api.errors import Json, StatusError, forbidden
from minikube_py.api.kind import Kind
from minikube_py.api.quota.amounts import Amounts, above, mask, plus, read, same, shown
from minikube_py.api.quota.evaluators import Evaluator, Seen, hard_of


class Refused(StatusError):
    """By a quota: after the object was found to be valid, so that its sender also gets the warnings."""


class Write(NamedTuple):
    """`old` None: a create."""

    kind: Kind
    sub: str
    name: str
    new: Json
    old: Json | None = None


CONCERNED_MAX: Final = 100
"""A txn has 128 operations, of which the object's own write takes some."""


def charge(write: Write, evaluator: Evaluator, quotas: Iterable[Json], seen: Seen) -> list[tuple[Json, Amounts]]:
    """The affected quotas, each with its new total usage. Raises: StatusError 403."""
    if not evaluator.handles(write.sub, write.new, write.old):
        return []
    concerned = [quota for quota in quotas if evaluator.matches(quota, write.new, seen)]
    for quota in concerned:
        _check_known(write, evaluator, quota, seen)
    if not concerned:
        return []
    usage = evaluator.usage(write.new, seen)
    if negative := sorted(name for name, amount in usage.items() if amount.unscaled < 0):
        raise _refused(write, f"quota usage is negative for resource(s): {','.join(negative)}")
    more = usage if write.old is None else above(usage, evaluator.usage(write.old, seen))
    found = []
    for quota in concerned:
        # If the quota did not match before, charge the whole usage.
        counted = write.old is None or evaluator.matches(quota, write.old, seen)
        asked = {name: amount for name, amount in (more if counted else usage).items() if amount.unscaled}
        before = read((quota.get("status") or {}).get("used"))
        after = _within(write, quota, mask(asked, hard_of(quota)), before)
        if not same(before, after):
            found.append((quota, after))
    if len(found) > CONCERNED_MAX:
        why = f"{len(found)} ResourceQuotas count it, and all are charged in one write: {CONCERNED_MAX} at most"
        raise _refused(write, why)
    return found


def _check_known(write: Write, evaluator: Evaluator, quota: Json, seen: Seen) -> None:
    name, used = quota["metadata"]["name"], (quota.get("status") or {}).get("used") or {}
    limited = evaluator.matching(hard_of(quota), seen)
    if missing := evaluator.missing(limited, write.new):
        raise _refused(write, f"failed quota: {name}: must specify {missing}")
    if any(each not in used for each in limited):
        raise _refused(write, f"status unknown for quota: {name}, resources: {','.join(sorted(limited))}")


def _within(write: Write, quota: Json, asked: Amounts, before: Amounts) -> Amounts:
    after, hard = plus(before, asked), read(hard_of(quota))
    exceeded = {name for name in asked if after[name].compare(hard[name]) > 0}
    if exceeded and write.sub != "status":
        parts = ((what, shown(mask(of, exceeded))) for what, of in _told(asked, before, hard))
        told = ", ".join(f"{what}: {text}" for what, text in parts)
        raise _refused(write, f"exceeded quota: {quota['metadata']['name']}, {told}")
    return after


def _told(asked: Amounts, before: Amounts, hard: Amounts) -> tuple[tuple[str, Amounts], ...]:
    return (("requested", asked), ("used", before), ("limited", hard))


def _refused(write: Write, why: str) -> Refused:
    found = forbidden(write.kind, write.name, why)
    return Refused(found.code, found.reason, found.message, found.details)
