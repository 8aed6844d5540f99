"""What scheduler, controllers and kubelet have in common for those who put them together."""

from __future__ import annotations

from typing import Protocol


class Component(Protocol):
    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def metrics(self) -> dict[str, float]: ...


def failure_of(component: Component) -> BaseException | None:
    """What ended a part of it by itself: its `failure`, or the first of its `failures`, whichever it has."""
    failure: BaseException | None = getattr(component, "failure", None)
    return failure or next(iter(getattr(component, "failures", ())), None)
