"""Which nodes have which images, and which images a pod uses."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

NodeImages = tuple[tuple[str, int], ...]
"""Names, each with the image's size in bytes."""
KEPT_MAX = 4096


class PodImages(NamedTuple):
    """`containers`: including init containers; `names`: one per container, plus those of volumes."""

    containers: int
    names: tuple[str, ...]


NO_IMAGES = PodImages(0, ())


def images_of_pod(spec: Mapping[str, Any]) -> PodImages:
    """Cached, so pods of one template share the result."""
    containers = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    volumes = [each["image"].get("reference") or "" for each in spec.get("volumes") or () if each.get("image")]
    return _named(len(containers), tuple([each.get("image") or "" for each in containers] + volumes))


@lru_cache(KEPT_MAX)
def _named(containers: int, images: tuple[str, ...]) -> PodImages:
    """A name without a tag gets `latest`. (Upstream: `normalizedImageName`.)"""
    return PodImages(containers, tuple(f"{n}:latest" if n.rfind(":") <= n.rfind("/") else n for n in images))


def images_of_node(status: Mapping[str, Any]) -> NodeImages:
    images = status.get("images") or ()
    return tuple((name, each.get("sizeBytes") or 0) for each in images for name in each.get("names") or ())


class _State:
    __slots__ = ("size_bytes", "slots")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.slots: dict[int, None] = {}


class Images:
    """By name, the nodes that have the image. The first node determines its size (upstream: `addNodeImageStates`)."""

    def __init__(self) -> None:
        self.known: dict[str, _State] = {}

    def change(self, slot: int, old: NodeImages, new: NodeImages) -> None:
        for name, _ in old:
            state = self.known.get(name)
            if state is not None:
                state.slots.pop(slot, None)
                if not state.slots:
                    del self.known[name]
        for name, size_bytes in new:
            state = self.known.get(name)
            if state is None:
                state = self.known[name] = _State(size_bytes)
            state.slots[slot] = None
