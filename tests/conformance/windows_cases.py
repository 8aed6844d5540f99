"""Pods for nodes with Windows: drawn options of pods and containers."""

from __future__ import annotations

from typing import Any

from asking import Ask
from hypothesis import strategies as st

_USERS = (
    "", "u", "d\\u", "a\\b\\c", "\\u", "d\\", ". .", "u\x07", "u@x", ".d\\u", "a.b-c\\u", "-a\\u", "d:\\u", "x" * 104,
    "x" * 105, "é" * 53, f"{'d' * 15}\\u", f"{'d' * 16}\\u", f"{'d' * 255}\\u", f"{'d' * 256}\\u", "a..b\\u",
    "/a/../b", "d\\u\\",
)  # fmt: skip


@st.composite
def options(draw: st.DrawFn) -> dict[str, Any] | None:
    if not draw(st.integers(0, 2)):
        return None
    found: dict[str, Any] = {}
    if draw(st.booleans()):
        found["runAsUserName"] = draw(st.sampled_from(_USERS))
    if draw(st.booleans()):
        found["hostProcess"] = draw(st.booleans())
    if not draw(st.integers(0, 2)):
        found["gmsaCredentialSpecName"] = draw(st.sampled_from(("", "a.b", "*a", "A")))
    if not draw(st.integers(0, 2)):
        found["gmsaCredentialSpec"] = draw(st.sampled_from(("", "{}", "x" * 65536, "é" * 32769)))
    return found


@st.composite
def windows(draw: st.DrawFn, name: str) -> list[Ask]:
    """Creates that keep nothing."""

    def context() -> dict[str, Any]:
        found = draw(options())
        return {} if found is None else {"securityContext": {"windowsOptions": found}}

    asks = []
    for _ in range(3):
        containers = [{"name": f"c{number}", "image": "i", **context()} for number in range(draw(st.integers(1, 2)))]
        spec: dict[str, Any] = {"containers": containers, **context()}
        if draw(st.booleans()):
            spec["initContainers"] = [{"name": "init", "image": "i", **context()}]
        if draw(st.booleans()):
            named = [{"os": {"name": system}} for system in ("windows", "linux")]
            spec |= draw(st.sampled_from(({"hostNetwork": True}, *named)))
        body = {"metadata": {"name": name}, "spec": spec}
        asks.append(Ask("windows pods", "POST", "/api/v1/namespaces/default/pods?dryRun=All", body))
    return asks
