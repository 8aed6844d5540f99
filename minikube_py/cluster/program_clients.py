"""Asynchronous clients for a program in virtual time, over its simulated connection to the API server."""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from minikube_py.cluster.errors import ClusterError
from minikube_py.cluster.in_process import (
    SERVER,
    Session,
    api_client,
    async_transport,
    bearer,
    http_package,
    installed,
    kubeconfig,
)
from minikube_py.sim.process_state import simulated
from minikube_py.sim.replaced import Replaced

if TYPE_CHECKING:
    import httpx as of_httpx
    import kubernetes_asyncio as of_kubernetes_asyncio
    import lightkube as of_lightkube

    from minikube_py.cluster.program import Remote

PLAIN: Final = ("httpx", "kubernetes", "lightkube")
OUTSIDE: Final = ("kr8s", "kr8s_asyncio")


async def _run_sync(func: Any, *args: Any, **options: Any) -> Any:
    """In place of anyio's, as asyncio.to_thread: one after the other, which no limit or cancellation concerns."""
    if not simulated(asyncio.get_running_loop()):
        return await _of_anyio()[0].own(func, *args, **options)
    await asyncio.sleep(0)
    return copy_context().run(func, *args)


@cache
def _of_anyio() -> tuple[Replaced, ...]:
    """Empty where it is not installed."""
    try:
        return (Replaced(import_module("anyio.to_thread"), "run_sync", _run_sync),)
    except ImportError:
        return ()


class ProgramClients:
    """The clients of a program. Each raises ClusterError if its package is not installed."""

    def __init__(self, transport: Remote, namespace: str) -> None:
        self.transport, self.namespace = transport, namespace
        for attribute in _of_anyio():
            transport.replace(attribute)

    def __getattr__(self, name: str) -> Any:
        if name in PLAIN:
            raise ClusterError(f"{name}() is for a program that is a plain function; this one is asynchronous")
        if name in OUTSIDE:
            raise ClusterError(f"{name}() opens sockets on a loop of its own: it works in real time only")
        raise AttributeError(name)

    def httpx_asyncio(self) -> of_httpx.AsyncClient:
        """Plain HTTP: `await client.get("/api/v1/pods")`; a watch by `client.stream(...)` and `aiter_lines()`."""
        package = installed("httpx")
        transport, headers = async_transport(package, self.transport.exchange), bearer(self.transport.token)
        found: of_httpx.AsyncClient = package.AsyncClient(
            transport=transport, base_url=SERVER, trust_env=False, headers=headers
        )
        return found

    def lightkube_asyncio(self) -> of_lightkube.AsyncClient:
        module = installed("lightkube")
        package = http_package(module.AsyncClient)
        found: of_lightkube.AsyncClient = module.AsyncClient(
            config=module.KubeConfig.from_dict(kubeconfig(self.namespace, self.transport.token)),
            transport=async_transport(package, self.transport.exchange),
            trust_env=False,
        )
        return found

    async def kopf(self, registry: Any = None, **options: Any) -> None:
        """Runs the handlers of a registry (the default one) forever, like `kopf.operator(**options)`. Handlers find
        these clients, and plain functions the plain ones, as `memo.clients`."""
        from minikube_py.cluster.program_kopf import operate

        await operate(self, self.transport.wall_s, registry, options)

    async def kubernetes_asyncio(self) -> of_kubernetes_asyncio.client.ApiClient:
        """For `kubernetes_asyncio.client.CoreV1Api(...)` and `kubernetes_asyncio.watch.Watch()`."""
        module: Any = installed("kubernetes_asyncio").client
        configuration = module.Configuration(host=self.transport.around.server)
        # Its own constructor opens sockets and reads certificates.
        found: Any = module.ApiClient.__new__(module.ApiClient)
        rest: Any = module.rest.RESTClientObject.__new__(module.rest.RESTClientObject)
        rest.pool_manager = Session(self.transport.exchange)
        rest.proxy = rest.proxy_headers = rest.server_hostname = None
        found.configuration, found.rest_client = configuration, rest
        found.pool_threads, found.cookie = 1, None
        found.client_side_validation = configuration.client_side_validation
        api: of_kubernetes_asyncio.client.ApiClient = api_client("kubernetes_asyncio", found, self.transport.token)
        return api
