"""While a test is explored, no client finds a cluster by itself: neither by the environment, nor by the file in the
home folder, nor by what a client package has kept since it was imported. So a test or program that does not use the
clients it is given fails, and never reaches a cluster of the developer's."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn

from minikube_py.cluster.errors import ClusterError

FILE: Final = str(Path(__file__).with_suffix(".json"))
"""A kubeconfig without clusters. Clients that refuse it print the name of its context."""
USUAL: Final = "~/.kube/config"
LOCATED: Final = ("kubernetes.config", "kubernetes_asyncio.config")
"""They read the environment when imported, possibly long ago."""
WITH_DEFAULT: Final = ("kubernetes.client.configuration", "kubernetes_asyncio.client.configuration")
IN_A_POD: Final = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
LOCATION: Final = "KUBE_CONFIG_DEFAULT_LOCATION"


def located() -> list[Any]:
    """The modules with a default location of the kubeconfig, of those imported."""
    modules = [sys.modules.get(each) for name in LOCATED for each in (name, f"{name}.kube_config")]
    return [each for each in modules if hasattr(each, LOCATION)]


@contextmanager
def no_cluster() -> Iterator[None]:
    """What code in the block changes of this is restored, too."""
    with ExitStack() as after:
        after.callback(_imported_meanwhile)
        for name, value in {"KUBECONFIG": FILE, **dict.fromkeys(IN_A_POD)}.items():
            after.callback(_variable, name, os.environ.get(name))
            _variable(name, value)
        for module in located():
            _attribute(after, module, LOCATION, FILE)
        for module in filter(None, map(sys.modules.get, WITH_DEFAULT)):
            _attribute(after, module.Configuration, "_default", _without_host(module.Configuration))
        if (kr8s := sys.modules.get("kr8s._api")) is not None:
            _attribute(after, kr8s.Api, "_instances", {})
        yield


def _without_host(configuration: Any) -> Any:
    """In place of the default configuration, which `load_kube_config()` makes. The models need one, too: only its host
    is refused."""

    def host(_: object) -> NoReturn:
        raise ClusterError(
            "while a test is explored, a client package has no default configuration: clients come from "
            "minikube.client, and a program's from its caller"
        )

    found = configuration()
    # Its own constructor reads the host.
    found.__class__ = type("NoCluster", (configuration,), {"host": property(host, lambda *_: None)})
    return found


def _imported_meanwhile() -> None:
    for module in located():
        if getattr(module, LOCATION) == FILE:
            setattr(module, LOCATION, os.environ.get("KUBECONFIG", USUAL))


def _attribute(after: ExitStack, owner: Any, name: str, value: object) -> None:
    if hasattr(owner, name):
        after.callback(setattr, owner, name, getattr(owner, name))
        setattr(owner, name, value)


def _variable(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
