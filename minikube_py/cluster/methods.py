"""Shared by both forms of the public API: access to a cluster from outside, and kubectl."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, Unpack, overload

from minikube_py.client.transport import JSON, ApiResponse, ApiTransport
from minikube_py.cluster import arguments as of
from minikube_py.cluster.clients import Clients
from minikube_py.cluster.errors import STOPPED, ClusterError
from minikube_py.cluster.faults import Faults
from minikube_py.cluster.kinds import Kinds, served_kind
from minikube_py.cluster.operations import Operations
from minikube_py.cluster.player import GatedPlane
from minikube_py.cluster.wait_forms import Held, Object, OfMany
from minikube_py.cluster.waiting import Waiting
from minikube_py.cluster.webhooks import Webhook
from minikube_py.control_plane.plane import Plane
from minikube_py.env import Clock
from minikube_py.sim.faults import Fault

if TYPE_CHECKING:
    from minikube_py.cluster.program_clients import ProgramClients

DEFAULT: str = "default"
TIMEOUT_S: float = 30.0


class Engine(Protocol):
    """The runner of a cluster. `plane` raises ClusterError if it runs elsewhere."""

    @property
    def plane(self) -> GatedPlane: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def url(self) -> str: ...

    @property
    def token(self) -> str: ...

    @property
    def authority_pem(self) -> str: ...

    def kubeconfig(self, namespace: str) -> Path: ...

    def transport(self) -> ApiTransport: ...

    def own_transport(self) -> ApiTransport: ...

    def in_process(self, package: Any) -> Any: ...

    def clients_within(self, namespace: str) -> ProgramClients | None: ...

    def inject(self, fault: Fault) -> None: ...

    def do(self, name: str, call: Callable[[], None]) -> None: ...

    def all_well(self) -> None: ...


class BlockingEngine(Engine, Protocol):
    """A runner for synchronous code. `time_passes`: by itself, not only by `advance`."""

    time_passes: bool

    @property
    def ending(self) -> bool:
        """Whether it has been told to stop."""

    def within(self, work: Callable[[Plane, Clock], Coroutine[Any, Any, Any]], *named: Any) -> Any: ...

    def call(self, work: Callable[[Operations], Any], operations: Operations, reads: bool) -> Any: ...

    def wait(
        self, operations: Operations, waiting: Waiting, timeout_s: float, namespace: str | None, selector: str
    ) -> list[Object]: ...


class ClusterMethods(Faults):
    """`namespace`: the default one."""

    def __init__(self, namespace: str = DEFAULT) -> None:
        self.namespace = namespace
        self._kinds = Kinds()

    def _reached(self) -> Engine:
        raise NotImplementedError

    # -- access -------------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """`https://127.0.0.1:PORT`."""
        return self._reached().url

    @property
    def token(self) -> str:
        """An administrator's bearer token."""
        return self._reached().token

    @property
    def authority_pem(self) -> str:
        """The certificate that clients trust."""
        return self._reached().authority_pem

    @property
    def kubeconfig_path(self) -> Path:
        """An administrator's; deleted with the cluster."""
        return self._reached().kubeconfig(self.namespace)

    @cached_property
    def client(self) -> Clients:
        """Ready clients: `client.kubernetes()`, `client.kr8s()`, `client.lightkube()`, `client.httpx()`, ..."""
        return Clients(self)

    def transport(self) -> ApiTransport:
        """Directly to the API server, as an administrator; for coroutines of the cluster's loop. Faults affect it,
        too."""
        return self._reached().transport()

    def _inject(self, fault: Fault) -> None:
        reached = self._reached()
        reached.plane.player.check(fault)
        reached.inject(fault)

    def _plural(self, on: str) -> str:
        return on and served_kind(self._reached().plane.core.registry, on).plural

    def webhook(self, name: of.Label, answer: of.Answer) -> Webhook:
        """The API server asks `answer(request)` wherever a configuration has the `url` of the result: the request of an
        AdmissionReview or ConversionReview. It returns True, False or the response, whose uid is filled in and whose
        `patch` may be a list. The same name again replaces it."""
        reached = self._reached()
        plane, said = reached.plane, f"webhook {name}"
        hook = Webhook(name, answer, lambda call: self._reached().do(said, call))
        reached.do(said, lambda: plane.serve(hook))
        return hook

    def all_well(self) -> None:
        """Ends every injected fault; nodes that were down are up."""
        self._reached().all_well()

    def _operations(self) -> Operations:
        reached = self._reached()
        return Operations(reached.own_transport(), self.namespace, self._kinds, reached.clock)


class BlockingMethods(ClusterMethods):
    """For plain code: each method returns when it is done. All raise: StatusError, ClusterError."""

    def _reached(self) -> BlockingEngine:
        raise NotImplementedError

    def request(
        self,
        method: of.Method,
        path: of.RequestPath,
        body: of.Body | None = None,
        params: of.Params | None = None,
        content_type: of.ContentType = JSON,
    ) -> ApiResponse:
        """One request, as an administrator; returns any status without raising."""
        reached = self._reached()
        given = reached.own_transport(), method, path, params, body, content_type
        found: ApiResponse = reached.call(lambda _: _requested(*given), self._operations(), method == "GET")
        return found

    def apply(self, manifests: of.Manifests) -> list[Object]:
        """YAML or JSON text, a path, an object or several: created if missing, else patched to match, as by `kubectl
        apply`. Returns them as stored."""
        found: list[Object] = self._do(lambda operations: operations.apply(manifests))
        return found

    def objects(
        self, kind: of.KindName, *, namespace: of.Namespaces | None = None, selector: of.Selector = "",
        field_selector: of.FieldSelector = "",
    ) -> list[Object]:  # fmt: skip
        """All of a kind (`pods`, `rc`, `Deployment`, `leases.coordination.k8s.io`); `namespace` "": of all namespaces.
        `selector`: by labels, as `app=web`."""
        found: list[Object] = self._do(
            lambda operations: operations.objects(kind, namespace, selector, field_selector), reads=True
        )
        return found

    def get(self, name: of.ObjectName, *, namespace: of.Namespace | None = None) -> Object:
        """One object: `get("rc/web")`. Raises: StatusError 404."""
        found: Object = self._do(lambda operations: operations.get(name, namespace), reads=True)
        return found

    def delete(self, name: of.ObjectName, *, namespace: of.Namespace | None = None) -> None:
        """Returns when the deletion is accepted; `wait(name, gone=True)` waits for its end."""
        self._do(lambda operations: operations.delete(name, namespace))

    @overload
    def wait(  # type: ignore[overload-overlap]
        self, target: OfMany, *, gone: Literal[False] = ..., selector: str = ..., **held: Unpack[Held]
    ) -> list[Object]: ...

    @overload
    def wait(self, target: str, *, gone: Literal[False] = ..., selector: str, **held: Unpack[Held]) -> list[Object]: ...

    @overload
    def wait(self, target: str, *, gone: Literal[False] = ..., **held: Unpack[Held]) -> Object: ...

    @overload
    def wait(self, target: str, *, gone: Literal[True], selector: str = ..., **held: Unpack[Held]) -> list[Object]: ...

    def wait(
        self,
        target: of.Target,
        *,
        ready: of.Ready | None = None,
        condition: of.Word | None = None,
        phase: of.Word | None = None,
        gone: of.Flag = False,
        until: of.Until | None = None,
        namespace: of.Namespaces | None = None,
        selector: of.Selector = "",
        timeout_s: of.Seconds = TIMEOUT_S,
    ) -> Object | list[Object]:
        """`wait("rc/web", ready=3)`, `wait("pod/a", phase="Running")`, `wait("pods", ready=3, selector="app=web")`,
        `wait("cm/done")` until it is there, `wait("pod/a", gone=True)`, `wait("rc/web", until=lambda rc: ...)`,
        `wait("deploy/web", condition="Available")`. In virtual time, time passes. Returns what it saw.

        Raises: WaitTimeout, with what was seen last."""
        waiting = _waiting(Waiting(target, ready, condition, phase, gone, until), namespace, selector)
        found = self._reached().wait(self._operations(), waiting, timeout_s, namespace, selector)
        return found if waiting.of_many or not found else found[0]

    def end_container(
        self, pod: of.Name, code: of.ExitCode = 1, *, container: of.Text = "", reason: of.Text = "",
        namespace: of.Namespace | None = None,
    ) -> Object:  # fmt: skip
        """Ends a container of that pod with that exit code, and its kubelet reports it: by restartPolicy it is
        restarted, or the pod becomes Failed or Succeeded. Returns the pod. Raises: ClusterError if it is not
        running."""
        found: Object = self._do(lambda operations: operations.end_container(pod, code, container, reason, namespace))
        return found

    def kubectl(self, *arguments: of.Argument, input: of.Input | None = None) -> str:
        """What `kubectl` prints. In virtual time no time passes meanwhile: `delete` does not wait, and commands that
        would are refused.

        Raises: ClusterError if there is no kubectl, or it fails, with its output; or if it would wait."""
        from minikube_py.cluster.kubectl import run_kubectl, without_waiting

        reached = self._reached()
        given = arguments if reached.time_passes else without_waiting(arguments)
        try:
            return run_kubectl(self.kubeconfig_path, given, input)
        except ClusterError as error:
            if reached.ending:
                raise ClusterError(STOPPED) from error
            raise

    def _do(self, work: Callable[[Operations], Any], reads: bool = False) -> Any:
        return self._reached().call(work, self._operations(), reads)


class AsyncMethods(ClusterMethods):
    """For coroutines in the cluster's loop; as BlockingMethods, but awaited."""

    async def request(
        self,
        method: of.Method,
        path: of.RequestPath,
        body: of.Body | None = None,
        params: of.Params | None = None,
        content_type: of.ContentType = JSON,
    ) -> ApiResponse:
        return await _requested(self._reached().own_transport(), method, path, params, body, content_type)

    async def apply(self, manifests: of.Manifests) -> list[Object]:
        return await self._operations().apply(manifests)

    async def objects(
        self, kind: of.KindName, *, namespace: of.Namespaces | None = None, selector: of.Selector = "",
        field_selector: of.FieldSelector = "",
    ) -> list[Object]:  # fmt: skip
        return await self._operations().objects(kind, namespace, selector, field_selector)

    async def get(self, name: of.ObjectName, *, namespace: of.Namespace | None = None) -> Object:
        return await self._operations().get(name, namespace)

    async def delete(self, name: of.ObjectName, *, namespace: of.Namespace | None = None) -> None:
        await self._operations().delete(name, namespace)

    @overload
    async def wait(  # type: ignore[overload-overlap]
        self, target: OfMany, *, gone: Literal[False] = ..., selector: str = ..., **held: Unpack[Held]
    ) -> list[Object]: ...

    @overload
    async def wait(
        self, target: str, *, gone: Literal[False] = ..., selector: str, **held: Unpack[Held]
    ) -> list[Object]: ...

    @overload
    async def wait(self, target: str, *, gone: Literal[False] = ..., **held: Unpack[Held]) -> Object: ...

    @overload
    async def wait(
        self, target: str, *, gone: Literal[True], selector: str = ..., **held: Unpack[Held]
    ) -> list[Object]: ...

    async def wait(
        self,
        target: of.Target,
        *,
        ready: of.Ready | None = None,
        condition: of.Word | None = None,
        phase: of.Word | None = None,
        gone: of.Flag = False,
        until: of.Until | None = None,
        namespace: of.Namespaces | None = None,
        selector: of.Selector = "",
        timeout_s: of.Seconds = TIMEOUT_S,
    ) -> Object | list[Object]:
        waiting = _waiting(Waiting(target, ready, condition, phase, gone, until), namespace, selector)
        found = await self._operations().wait(waiting, timeout_s, namespace, selector, self._clock())
        return found if waiting.of_many or not found else found[0]

    async def end_container(
        self, pod: of.Name, code: of.ExitCode = 1, *, container: of.Text = "", reason: of.Text = "",
        namespace: of.Namespace | None = None,
    ) -> Object:  # fmt: skip
        return await self._operations().end_container(pod, code, container, reason, namespace)

    async def kubectl(self, *arguments: of.Argument, input: of.Input | None = None) -> str:
        """In a thread, because it sends requests to the cluster, which runs in this loop."""
        import asyncio

        from minikube_py.cluster.kubectl import run_kubectl

        return await asyncio.to_thread(run_kubectl, self.kubeconfig_path, arguments, input)

    def _clock(self) -> Clock:
        raise NotImplementedError


async def _requested(transport: ApiTransport, method: str, path: str, *more: Any) -> ApiResponse:
    """Raises: ClusterError for a watch."""
    try:
        return await transport.request(method, path, *more)
    except ValueError as error:
        raise ClusterError(f"{path}: {error}") from None


def _waiting(waiting: Waiting, namespace: str | None, selector: str) -> Waiting:
    """Raises: ClusterError for conditions that apply only to several objects."""
    if not waiting.of_many and (selector or namespace == ""):
        given = "selector" if selector else 'namespace ""'
        raise ClusterError(f'{given} is for all of a kind, as wait("pods"), not for {waiting.target}')
    return waiting
