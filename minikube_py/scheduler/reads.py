"""What a custom plugin reads of a pod, recorded as it reads: its results hold for all pods that are equal in that.

The plugin gets a view of the pod. What it reads there becomes part of the signature under which results are cached, so
nothing is to be declared, and nothing can be forgotten: pods that differ elsewhere share results, and a first read of
anything more changes every signature.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import Any, Final

from minikube_py.scheduler.objects import PodInfo

KEYS_MAX: Final = 16
"""Beyond so many different labels, all labels count as read."""

Read = Callable[[PodInfo], object]


class Reads:
    """What one plugin has read of any pod so far, besides `spec`; only grows. `told`: in words."""

    __slots__ = ("_keys", "_reads", "told")

    def __init__(self) -> None:
        self.told: dict[str, None] = {}
        self._reads: tuple[Read, ...] = ()
        self._keys: set[object] = set()

    def sign(self, pod: PodInfo) -> object:
        """Equal for pods that are equal in all that was read; None if that cannot be compared."""
        signed = tuple([read(pod) for read in self._reads])
        try:
            return signed if {signed} else None
        except TypeError:
            return None

    def attribute(self, name: str) -> None:
        self._add(name, attrgetter(name))

    def label(self, key: object) -> None:
        if key in self._keys or "labels" in self.told:
            return
        if len(self._keys) >= KEYS_MAX:
            self.labels()
            return
        self._keys.add(key)
        self._add(f"label {key}", lambda pod: pod.labels.get(key))  # type: ignore[call-overload]

    def labels(self) -> None:
        # In their order too, which a plugin may see.
        self._add("labels", lambda pod: tuple(pod.labels.items()))

    def any_label(self) -> None:
        self._add("whether it has labels", lambda pod: bool(pod.labels))

    def _add(self, told: str, read: Read) -> None:
        if told not in self.told:
            self.told[told] = None
            self._reads += (read,)


class ReadPod(PodInfo):
    """A view of a pod, which records what is read. An unset slot leads to `__getattr__`."""

    __slots__ = ("_pod", "_reads")

    def __init__(self, pod: PodInfo, reads: Reads) -> None:
        self._pod = pod
        self._reads = reads
        # In every signature anyway.
        self.spec = pod.spec

    def __copy__(self) -> ReadPod:
        return ReadPod(self._pod, self._reads)

    def __deepcopy__(self, memo: object) -> ReadPod:
        return ReadPod(self._pod, self._reads)

    def __getattr__(self, name: str) -> Any:
        if name == "labels":
            labels = self.labels = ReadLabels(self._pod.labels, self._reads)
            return labels
        value = getattr(self._pod, name)
        self._reads.attribute(name)
        return value


class ReadLabels(Mapping[str, str]):
    """A view of a pod's labels; whatever is not about a single label reads them all."""

    __slots__ = ("_labels", "_reads")

    def __init__(self, labels: Mapping[str, str], reads: Reads) -> None:
        self._labels = labels
        self._reads = reads

    def __getitem__(self, key: str) -> str:
        self._reads.label(key)
        return self._labels[key]

    def get(self, key: str, default: Any = None) -> Any:
        self._reads.label(key)
        return self._labels.get(key, default)

    def copy(self) -> dict[str, str]:
        return dict(self)

    def __contains__(self, key: object) -> bool:
        self._reads.label(key)
        return key in self._labels

    def __bool__(self) -> bool:
        self._reads.any_label()
        return bool(self._labels)

    def __iter__(self) -> Iterator[str]:
        self._reads.labels()
        return iter(self._labels)

    def __len__(self) -> int:
        self._reads.labels()
        return len(self._labels)

    def __repr__(self) -> str:
        self._reads.labels()
        return repr(self._labels)
