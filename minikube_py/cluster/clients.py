"""Ready-made clients of installed packages: authenticated, with the cluster's authority and namespace.

Those for plain code are closed with the cluster, and so are those for coroutines within `async with Cluster()`;
elsewhere the caller, who owns the loop, closes the latter. None uses a proxy of the environment for a server on this
machine, as kubectl does not."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from minikube_py.cluster.errors import ClusterError

if TYPE_CHECKING:
    import httpx as of_httpx
    import kr8s as of_kr8s
    import kubernetes as of_kubernetes
    import kubernetes_asyncio as of_kubernetes_asyncio
    import lightkube as of_lightkube

    from minikube_py.cluster.methods import ClusterMethods
    from minikube_py.cluster.program_clients import ProgramClients


class Clients:
    """Each raises ClusterError if its package is not installed."""

    def __init__(self, door: ClusterMethods) -> None:
        self._door = door
        self._closers: list[Callable[[], object]] = []
        self._async_closers: list[Callable[[], Awaitable[object]]] = []

    def kubernetes(self) -> of_kubernetes.client.ApiClient:
        """For `kubernetes.client.CoreV1Api(...)` and the like; https://github.com/kubernetes-client/python."""
        package = _installed("kubernetes")
        settings = type.__call__(package.client.Configuration)
        package.config.load_kube_config(str(self._door.kubeconfig_path), client_configuration=settings)
        if self._is_here():
            settings.proxy = None
        found: of_kubernetes.client.ApiClient = package.client.ApiClient(settings)
        self._closers += [found.close, found.rest_client.pool_manager.clear]
        return found

    async def kubernetes_asyncio(self) -> of_kubernetes_asyncio.client.ApiClient:
        """`async with await client.kubernetes_asyncio() as api:`; https://github.com/tomplus/kubernetes_asyncio."""
        if (within := self._within()) is not None:
            return await within.kubernetes_asyncio()
        config = _installed("kubernetes_asyncio").config
        found: of_kubernetes_asyncio.client.ApiClient
        found = await config.new_client_from_config(str(self._door.kubeconfig_path))
        if self._is_here():
            found.rest_client.pool_manager._trust_env = False
        self._async_closers.append(found.close)
        return found

    def kr8s(self) -> of_kr8s.Api:
        """https://docs.kr8s.org."""
        module = _installed("kr8s")
        found: of_kr8s.Api = module._async_utils.as_sync_func(self._kr8s_api)(module.Api)

        def close() -> None:
            session = found._session
            if session is not None:
                # It runs on the loop of a thread that kr8s keeps for the whole process.
                module._async_utils.Portal().call(session.aclose)

        self._closers.append(close)
        return found

    async def kr8s_asyncio(self) -> Any:
        """For `kr8s.asyncio`: an Api whose methods are awaited."""
        if (within := self._within()) is not None:
            return await within.kr8s_asyncio()
        found = await self._kr8s_api(_installed("kr8s._api").Api)

        async def close() -> None:
            if found._session is not None:
                await found._session.aclose()

        self._async_closers.append(close)
        return found

    async def _kr8s_api(self, api: Any) -> Any:
        """As `kr8s.api()`, whose first request is sent before the result could be given proxies."""
        path, namespace = str(self._door.kubeconfig_path), self._door.namespace
        given = {"url": None, "kubeconfig": path, "serviceaccount": None, "namespace": namespace, "context": None}
        found = api(**given, bypass_factory=True)
        if self._is_here():
            create = found._create_session

            async def create_direct() -> None:
                await create()
                found._session._mounts.clear()

            found._create_session = create_direct
        return await found

    def _within(self) -> ProgramClients | None:
        """Those for coroutines that run on the loop of a cluster in virtual time."""
        return self._door._reached().clients_within(self._door.namespace)

    def _is_here(self) -> bool:
        return urlsplit(self._door.url).hostname in ("127.0.0.1", "::1", "localhost")

    def lightkube(self) -> of_lightkube.Client:
        """https://lightkube.readthedocs.io."""
        module = _installed("lightkube")
        config = module.KubeConfig.from_file(str(self._door.kubeconfig_path))
        found: of_lightkube.Client = module.Client(config=config, namespace=self._door.namespace, trust_env=False)
        self._closers.append(found._client._client.close)
        return found

    def lightkube_asyncio(self) -> of_lightkube.AsyncClient:
        if (within := self._within()) is not None:
            return within.lightkube_asyncio()
        module = _installed("lightkube")
        config = module.KubeConfig.from_file(str(self._door.kubeconfig_path))
        found: of_lightkube.AsyncClient
        found = module.AsyncClient(config=config, namespace=self._door.namespace, trust_env=False)
        self._async_closers.append(found.close)
        return found

    def httpx(self) -> of_httpx.Client:
        """Plain HTTP: `client.get("/api/v1/pods")`. In virtual time it needs no socket."""
        package = _installed("httpx")
        options = self._door._reached().in_process(package) or self._http()
        found: of_httpx.Client = package.Client(**options)
        self._closers.append(found.close)
        return found

    def httpx_asyncio(self) -> of_httpx.AsyncClient:
        """As `httpx()`; `async with` it."""
        if (within := self._within()) is not None:
            return within.httpx_asyncio()
        found: of_httpx.AsyncClient = _installed("httpx").AsyncClient(**self._http())
        self._async_closers.append(found.aclose)
        return found

    def _made(self) -> int:
        """A mark for `close`."""
        return len(self._closers)

    def close(self, since: int = 0) -> None:
        """Closes those for plain code, all or those made since the mark. Idempotent."""
        closers, self._closers = self._closers[since:], self._closers[:since]
        for close in closers:
            close()

    async def aclose(self) -> None:
        """Closes all of them, on the loop used by those for coroutines. Idempotent."""
        closers, self._async_closers = self._async_closers, []
        for close in closers:
            await close()
        self.close()

    def _http(self) -> dict[str, Any]:
        door = self._door
        return {
            "base_url": door.url,
            "headers": {"Authorization": f"Bearer {door.token}"},
            "verify": ssl.create_default_context(cadata=door.authority_pem),
            "trust_env": False,
        }


def _installed(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise ClusterError(f"{package} is not installed here ({error}); `pip install {package}`") from error
