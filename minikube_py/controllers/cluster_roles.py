"""Aggregation: a ClusterRole with an `aggregationRule` holds the rules of all roles that it selects.

Source: k8s.io/kubernetes/pkg/controller/clusterroleaggregation.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import orjson

from minikube_py.api.errors import StatusError
from minikube_py.api.label_selectors import selector_of
from minikube_py.api.patch import APPLY_PATCH
from minikube_py.client.informer import Handler, Informer
from minikube_py.client.rest import CLUSTER_ROLES, Object
from minikube_py.controllers.base import ControllerContext, QueueController, QueueWorkers
from minikube_py.controllers.volume_views import WholeView
from minikube_py.env import Slices

_SELECTOR_STEPS: Final = 30
_RULES_AT_ONCE: Final = 100
_RULE_STEPS: Final = 2


class ClusterRoleAggregation(QueueController):
    """On every change of a role, all aggregating roles are checked again."""

    name = "clusterrole-aggregation-controller"
    _applying: Final = {"fieldManager": name, "force": "true"}

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._roles: Informer[WholeView] = context.informers.of(CLUSTER_ROLES)
        self._workers = QueueWorkers(context, "ClusterRoleAggregator", self.sync)
        self._roles.add_handler(
            Handler(
                on_add=lambda role: self._enqueue(),
                on_update=lambda old, new: self._enqueue(),
                on_delete=lambda role: self._enqueue(),
            )
        )

    def _enqueue(self) -> None:
        for role in self._roles.store.values():
            if role.obj.get("aggregationRule") is not None:
                self._workers.queue.add(role.name)

    async def sync(self, name: str) -> None:
        found = self._roles.store.get(name)
        if found is None or found.obj.get("aggregationRule") is None:
            return
        slices = Slices()
        rules = await aggregated(found.obj, [role.obj for role in self._roles.store.values()], slices)
        await slices.spend(len(rules))
        if rules == (found.obj.get("rules") or []):
            return
        # Applied, not written: without rules that it selects, a role keeps those that somebody else gave it.
        applied: Object = {"apiVersion": CLUSTER_ROLES.api_version, "kind": "ClusterRole", "metadata": {"name": name}}
        if rules:
            applied["rules"] = told = []
            for first in range(0, len(rules), _RULES_AT_ONCE):
                some = rules[first : first + _RULES_AT_ONCE]
                await slices.spend(len(some))
                told += [{key: value for key, value in rule.items() if value} for rule in some]
        try:
            await self._client.patch(CLUSTER_ROLES, name, applied, content_type=APPLY_PATCH, params=self._applying)
        except StatusError as error:
            if error.code != 404:
                raise


async def aggregated(role: Object, roles: Iterable[Object], slices: Slices) -> list[Object]:
    """The rules of the roles that `role` selects, in the order of its selectors and of their names, each once."""
    by_name = sorted(roles, key=lambda each: str(each["metadata"]["name"]))
    labelled: dict[tuple[str, str], list[Object]] = {}
    for each in by_name:
        labels = each["metadata"].get("labels") or {}
        await slices.spend(1 + len(labels) // 8)
        for label in labels.items():
            labelled.setdefault(label, []).append(each)
    rules: dict[bytes, Object] = {}
    for document in role["aggregationRule"].get("clusterRoleSelectors") or ():
        await slices.spend(_SELECTOR_STEPS)
        wanted = document.get("matchLabels") or {}
        first, selector = next(iter(wanted.items()), None), None
        for each in by_name if first is None else labelled.get(first, ()):
            await slices.spend()
            labels = each["metadata"].get("labels") or {}
            if each["metadata"]["name"] == role["metadata"]["name"] or not wanted.items() <= labels.items():
                continue
            # Parsed for a role that may be selected only: it may have thousands of labels, at each change of any role.
            selector = selector or selector_of(document)
            if not selector.matches(labels):
                continue
            held = each.get("rules") or ()
            for start in range(0, len(held), _RULES_AT_ONCE):
                some = held[start : start + _RULES_AT_ONCE]
                await slices.spend(_RULE_STEPS * len(some))
                for rule in some:
                    rules.setdefault(orjson.dumps(rule, option=orjson.OPT_SORT_KEYS), rule)
    return list(rules.values())
