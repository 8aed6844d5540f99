"""Which kubelet a configuration asks for. Stage support is loaded on first use."""

from __future__ import annotations

from collections.abc import Callable

from minikube_py.client.informer import InformerFactory
from minikube_py.client.transport import ApiTransport
from minikube_py.env import Clock, Rng
from minikube_py.kubelet.config import KubeletConfig
from minikube_py.kubelet.fake import FakeKubelet
from minikube_py.kubelet.nodes import Registered


def make_kubelet(
    transport: ApiTransport,
    clock: Clock,
    rng: Rng,
    config: KubeletConfig,
    on_registered: Registered = lambda *_: None,
    beyond: Callable[[], ApiTransport] | None = None,
    informers: InformerFactory | None = None,
) -> FakeKubelet:
    """`beyond`: makes a transport for stages that need more than kubelet permissions; None: use `transport`."""
    if config.stages is None:
        return FakeKubelet(transport, clock, rng, config, on_registered, informers)
    from minikube_py.kubelet.staged import StagedKubelet

    wider = beyond() if beyond is not None and config.stages.beyond_kubelets else None
    return StagedKubelet(transport, clock, rng, config, on_registered, wider, informers)
