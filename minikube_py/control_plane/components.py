"""Shared by the code that runs scheduler, controllers and kubelet."""

from __future__ import annotations

from typing import Protocol


class Component(Protocol):
    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def metrics(self) -> dict[str, float]: ...


def failure_of(component: Component) -> BaseException | None:
    """The error by which one of its parts ended itself: its `failure`, or the first of its `failures`."""
    failure: BaseException | None = getattr(component, "failure", None)
    return failure or next(iter(getattr(component, "failures", ())), None)
