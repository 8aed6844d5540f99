"""A part of the cases of applies, quotas, rights, webhooks and policies, for which upstream's answers are kept.

So what they judge is judged where upstream is not, and within a second.

A suite is what is made first, and what is asked then. Both are sent one after the other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import apply_cases
import mutation_cases
import policy_cases
import quota_cases
import rbac_cases
import webhook_cases
from asking import Answer, Ask
from webhook_server import WebhookServer

DATA = Path(__file__).parent / "data"
SEED = 11
_KEPT = frozenset((
    "ConfigMap", "ResourceQuota", "SubjectAccessReview", "LocalSubjectAccessReview", "SelfSubjectAccessReview",
    "SelfSubjectRulesReview", "Status",
))  # fmt: skip
"""The kinds of answers that are kept whole; of others, the code."""
_HIDDEN = frozenset(("managedFields", "creationTimestamp", "resourceVersion", "uid", "time"))
_PORT = re.compile(r"(?<=127\.0\.0\.1:)\d+")


class Suite(NamedTuple):
    """`known`: asked until the word is in the answer; then all that was made is known."""

    made: list[Ask]
    known: list[tuple[Ask, bytes]]
    asks: list[Ask]


def applies(server: WebhookServer | None) -> Suite:
    return Suite([], [], [ask for cases in apply_cases.TOLD for ask in cases()])


def quotas(server: WebhookServer | None) -> Suite:
    cases = [*quota_cases.cases("within")]
    of_pods = [ask for ask in cases if ask.name == "quota of pods"]
    asks = [*of_pods[::11], *(ask for ask in cases if ask.name != "quota of pods"), *quota_cases.charges("within")]
    return Suite([*quota_cases.setup("within")], [*quota_cases.known("within")], asks)


def rights(server: WebhookServer | None) -> Suite:
    asks = (*rbac_cases.reviews(SEED, 150), *rbac_cases.grants(SEED, 150), *rbac_cases.refusals(SEED, 50))
    return Suite([*rbac_cases.setup(SEED)], [(rbac_cases.known(), b'"allowed":true')], [*asks])


def _of_policies(module: ModuleType, every: int) -> Suite:
    cases = [case for case in module.cases()[::every] if "authorizer" not in str(case.spec)]
    made = [*module.setup(), *(ask for case in (*cases, module.PROBE) for ask in module.configurations(case))]
    return Suite(made, [module.known()], [ask for case in cases for ask in case.asks])


def policies(server: WebhookServer | None) -> Suite:
    return _of_policies(policy_cases, 1)


def mutations(server: WebhookServer | None) -> Suite:
    return _of_policies(mutation_cases, 2)


def webhooks(server: WebhookServer | None) -> Suite:
    """Not those whose connections fail: where this is judged there are none."""
    assert server is not None
    cases = [case for case in webhook_cases.cases() if case.name == "zz-probe" or not _has_no_door(case)]
    made = [*webhook_cases.setup()]
    made += [ask for case in cases for ask in webhook_cases.configurations(case, server, "them")]
    known = [(ask, b"h2.zz-probe") for ask in webhook_cases.known()]
    return Suite(made, known, [ask for case in cases for ask in case.asks])


def _has_no_door(case: webhook_cases.Case) -> bool:
    large = any(len(ask.payload() or b"") > 100_000 for ask in case.asks)
    return large or any(answer == "hang" or "clientConfig" in more for _, answer, more in case.hooks)


SUITES: dict[str, Callable[[WebhookServer | None], Suite]] = {
    "applies": applies, "quotas": quotas, "rights": rights, "policies": policies, "mutations": mutations,
    "webhooks": webhooks,
}  # fmt: skip


def told(answer: Answer, suite: str) -> list[Any]:
    """What is kept of an answer: code, warnings and what it says, without what differs from server to server."""
    if suite == "applies":
        code, shown = apply_cases.owned(answer)
        return [code, [], json.loads(json.dumps(shown))]
    found = json.loads(answer.body)
    said = _settled(found) if found.get("kind") in _KEPT else None
    return [answer.code, answer.headers.get("warning", []), said]


def _settled(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _settled(each) for name, each in value.items() if name not in _HIDDEN}
    if isinstance(value, str):
        return _PORT.sub("PORT", value)
    return [_settled(each) for each in value] if isinstance(value, list) else value


def sent(reviews: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """What each webhook was sent, in short: the operation, and labels and data of the object before and after."""
    found: dict[str, list[Any]] = {}
    for path, each in sorted(reviews.items()):
        asked = [of["request"] for of in each]
        shown = [[of["operation"], _short(of["oldObject"]), _short(of["object"])] for of in asked]
        # A write on a stale state is worked out again.
        found[path] = [one for i, one in enumerate(shown) if "probe" not in path and (i == 0 or one != shown[i - 1])]
    return found


def _short(obj: Any) -> Any:
    return obj and [obj["metadata"].get("labels"), obj.get("data")]
