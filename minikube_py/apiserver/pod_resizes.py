"""NodeDeclaredFeatureValidator and PodResizeValidator: whether the pod's node supports a resize.

Source: kubernetes `plugin/pkg/admission/{nodedeclaredfeatures,podresize}`.
"""

from __future__ import annotations

from minikube_py.api.errors import Json, StatusError, go_quote
from minikube_py.api.kinds.core import NODES, PODS
from minikube_py.api.pod_resizing import beyond_node, features_needed
from minikube_py.apiserver.admission import Attributes, Plugin
from minikube_py.apiserver.watch_cache import WatchCache


class PodResizes(Plugin):
    """For both plugins: no other pod update needs a feature."""

    name = "PodResizeValidator"
    only = (PODS, "resize")

    def __init__(self, cache: WatchCache) -> None:
        self._nodes = cache.of(NODES)

    async def validate(self, attributes: Attributes) -> None:
        """Raises: StatusError 403."""
        new, old = attributes.new, attributes.old
        if new is None or old is None or not (name := new["spec"].get("nodeName")):
            return
        if new["metadata"].get("generation") == old["metadata"].get("generation"):
            return
        entry = self._nodes.entries.get(NODES.key("", name))
        if entry is None:
            raise attributes.forbidden(f"node {go_quote(name)} not found")
        node: Json = entry.decode()
        status = node.get("status") or {}
        declared = status.get("declaredFeatures") or ()
        if missing := [each for each in features_needed(new, old) if each not in declared]:
            lacking = f"features {', '.join(missing)} which are not available on node {go_quote(name)}"
            raise attributes.forbidden(f"pod update requires {lacking}")
        system = (node["metadata"].get("labels") or {}).get("kubernetes.io/os", "linux")
        if system != "linux":
            why = f"pod resize is only supported on linux nodes, node {go_quote(name)} is {go_quote(system)}"
            raise _with_cause(attributes.forbidden(why), "UnsupportedPlatform")
        if why := beyond_node(new, status.get("allocatable")):
            raise _with_cause(attributes.forbidden(why), "NodeCapacity")


def _with_cause(error: StatusError, reason: str) -> StatusError:
    error.details = {**(error.details or {}), "causes": [{"reason": reason}]}
    return error
