"""ComponentStatus, computed, not stored.

Source: kubernetes `pkg/registry/core/componentstatus`, `pkg/printers/internalversion`.
"""

from __future__ import annotations

from typing import Any, Final

from minikube_py.api.errors import Json
from minikube_py.api.kind import NAMESPACED, Kind
from minikube_py.api.printing import NAME, Age, Printer, column


def _print(status: Json, age: Age) -> list[Any]:
    told = next((each for each in status.get("conditions") or () if each.get("type") == "Healthy"), None)
    if told is None:
        return [status["metadata"]["name"], "Unknown", "", ""]
    shown = "Healthy" if told.get("status") == "True" else "Unhealthy"
    return [status["metadata"]["name"], shown, told.get("message") or "", told.get("error") or ""]


COMPONENTSTATUSES: Final = Kind(
    "", "v1", "ComponentStatus", "componentstatuses", "componentstatus", False,
    short_names=("cs",),
    verbs=("get", "list"),
    stored=False,
    selectable=NAMESPACED,
    deprecation="v1 ComponentStatus is deprecated in v1.19+",
    printer=Printer(
        (
            NAME,
            column("Status", "Whether the component is well."),
            column("Message", "What it answers."),
            column("Error", "What went wrong when it was asked."),
        ),
        _print,
    ),
)  # fmt: skip
