"""A typical operator in three wrong versions and a right one; `minikube_explore` distinguishes them.

A site is a config map labelled `site=yes`, with `replicas` and `port`. The operator keeps a replication controller and
a service of the same name for each, and removes them when the site is deleted."""

from __future__ import annotations

import asyncio
import json
from typing import Any

API = "/api/v1/namespaces/default"
SITES, CONTROLLERS, SERVICES = f"{API}/configmaps", f"{API}/replicationcontrollers", f"{API}/services"
OURS = {"labelSelector": "site=yes"}
SITE = {
    "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shop", "labels": {"site": "yes"}},
    "data": {"replicas": "2", "port": "80"},
}  # fmt: skip


class TryAgain(Exception):
    """A temporary error of the server."""


class SiteOperator:
    """Reconciles the complete state for each changed name: missed or forgotten events do no harm."""

    def __init__(self, clients: Any) -> None:
        self.http = clients.httpx_asyncio()
        self.names: asyncio.Queue[str] = asyncio.Queue()
        self.known: dict[str, None] = {}

    async def run(self) -> None:
        async with self.http:
            watching = [self.watch(each) for each in (SITES, CONTROLLERS, SERVICES)]
            await asyncio.gather(self.work(), *watching)

    async def watch(self, path: str) -> None:
        while True:
            try:
                listed = await self.ask("GET", path, params=OURS)
                await self.listed(path, [each["metadata"]["name"] for each in listed["items"]])
                revision = listed["metadata"]["resourceVersion"]
                since = {**OURS, "watch": "true", "resourceVersion": revision}
                async with self.http.stream("GET", path, params=since) as response:
                    async for line in response.aiter_lines():
                        event = json.loads(line)
                        if event["type"] == "ERROR":
                            break
                        await self.seen(path, event["type"], event["object"]["metadata"]["name"])
            except TryAgain:
                pass
            await asyncio.sleep(0.2)

    async def listed(self, path: str, names: list[str]) -> None:
        """Objects no longer in the list were deleted unseen."""
        self.known.update(dict.fromkeys(names))
        for name in self.known:
            self.names.put_nowait(name)

    async def seen(self, path: str, event: str, name: str) -> None:
        self.known[name] = None
        self.names.put_nowait(name)

    async def work(self) -> None:
        while True:
            name = await self.names.get()
            try:
                await self.reconcile(name)
            except TryAgain:
                await asyncio.sleep(0.2)
                self.names.put_nowait(name)

    async def reconcile(self, name: str) -> None:
        site = await self.ask("GET", f"{SITES}/{name}")
        if site is None:
            await self.removed(name)
            return
        await self.keep(CONTROLLERS, controller(site), ("spec", "replicas"))
        await self.keep(SERVICES, service(site), ("spec", "ports", 0, "port"))

    async def removed(self, name: str) -> None:
        for path in (CONTROLLERS, SERVICES):
            found = await self.ask("GET", f"{path}/{name}")
            if found is not None and found["metadata"].get("labels", {}).get("site") == "yes":
                await self.ask("DELETE", f"{path}/{name}", {"preconditions": {"uid": found["metadata"]["uid"]}})

    async def keep(self, path: str, wanted: Any, field: tuple[Any, ...]) -> None:
        found = await self.ask("GET", f"{path}/{wanted['metadata']['name']}")
        if found is None:
            await self.ask("POST", path, wanted)
        elif at(found, field) != at(wanted, field):
            inner = found
            for each in field[:-1]:
                inner = inner[each]
            inner[field[-1]] = at(wanted, field)
            await self.ask("PUT", f"{path}/{wanted['metadata']['name']}", found)

    async def ask(self, method: str, path: str, body: Any = None, params: Any = None) -> Any:
        """None if it does not exist. Raises: TryAgain."""
        answer = await self.http.request(method, path, json=body, params=params)
        if answer.status_code == 404:
            return None
        if answer.status_code in (409, 410, 429) or answer.status_code >= 500:
            raise TryAgain(answer.text)
        answer.raise_for_status()
        return answer.json()


class TakesOneForBoth(SiteOperator):
    """If the controller exists it assumes the service does: true, except after a crash between the two."""

    async def reconcile(self, name: str) -> None:
        site = await self.ask("GET", f"{SITES}/{name}")
        if site is None:
            await self.removed(name)
        elif await self.ask("GET", f"{CONTROLLERS}/{name}") is None:
            await self.keep(CONTROLLERS, controller(site), ("spec", "replicas"))
            await self.keep(SERVICES, service(site), ("spec", "ports", 0, "port"))
        else:
            await self.keep(CONTROLLERS, controller(site), ("spec", "replicas"))
            if await self.ask("GET", f"{SERVICES}/{name}") is not None:
                await self.keep(SERVICES, service(site), ("spec", "ports", 0, "port"))


class BelievesItsList(SiteOperator):
    """Removes objects without a site in its list: a lagging API server does not have new sites."""

    async def listed(self, path: str, names: list[str]) -> None:
        await super().listed(path, names)
        if path == SITES:
            for each in (await self.ask("GET", CONTROLLERS, params=OURS))["items"]:
                if each["metadata"]["name"] not in names:
                    await self.removed(each["metadata"]["name"])


class NeedsTheEvent(SiteOperator):
    """Removes when it sees a site being deleted; it misses deletions while it does not watch."""

    async def seen(self, path: str, event: str, name: str) -> None:
        if path == SITES and event == "DELETED":
            await super().removed(name)
        else:
            await super().seen(path, event, name)

    async def removed(self, name: str) -> None:
        """Not from here: the event does it."""


def at(obj: Any, field: tuple[Any, ...]) -> Any:
    for each in field:
        obj = obj[each]
    return obj


def controller(site: Any) -> Any:
    name = site["metadata"]["name"]
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}
    return {
        "apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": name, "labels": {"site": "yes"}},
        "spec": {"replicas": int(site["data"]["replicas"]), "selector": {"app": name}, "template": template},
    }  # fmt: skip


def service(site: Any) -> Any:
    name = site["metadata"]["name"]
    return {
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "labels": {"site": "yes"}},
        "spec": {"selector": {"app": name}, "ports": [{"port": int(site["data"]["port"])}]},
    }  # fmt: skip


def a_site_comes_changes_and_goes(minikube: Any, operator: type[SiteOperator] = SiteOperator) -> None:
    """The test, of any of them."""
    minikube.program(lambda clients: operator(clients).run(), name="operator")
    minikube.apply(SITE)
    minikube.wait("rc/shop", ready=2, timeout_s=300)
    minikube.wait("service/shop", timeout_s=300)
    first = minikube.get("rc/shop")["metadata"]["uid"]
    minikube.advance(5)
    minikube.apply({**SITE, "data": {"replicas": "1", "port": "8080"}})
    minikube.wait("service/shop", until=lambda each: each["spec"]["ports"][0]["port"] == 8080, timeout_s=300)
    minikube.wait("rc/shop", ready=1, timeout_s=300)
    minikube.advance(20)
    assert minikube.get("rc/shop")["metadata"]["uid"] == first, "the controller was removed and made again"
    minikube.delete("cm/shop")
    minikube.wait("rc/shop", gone=True, timeout_s=300)
    minikube.wait("service/shop", gone=True, timeout_s=300)
