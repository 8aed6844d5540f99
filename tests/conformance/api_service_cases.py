"""APIServices, local ones and such as no server can accept: made, read, changed and deleted, at the edges of each field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from asking import Ask

ROOT = "/apis/apiregistration.k8s.io/v1/apiservices"
_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
_MERGE = "application/merge-patch+json"
_SPEC: dict[str, Any] = {"group": "x.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 7}
_SERVICE = {"namespace": "n", "name": "s"}
_SPECS: tuple[dict[str, Any], ...] = (
    *({"groupPriorityMinimum": each} for each in (0, -1, 1, 20_000, 20_001, 2**31 - 1, 2**31, "1", None)),
    *({"versionPriority": each} for each in (0, -1, 1, 1_000, 1_001, None)),
    *({"version": each} for each in ("", "V1", "1", "v1.2", "v1-", "v" * 63, "v" * 64)),
    *({"group": each} for each in ("", "X", "a..b", "-", "a" * 253, "a" * 254)),
    *({"caBundle": each} for each in ("", "YQ==", "YWJj", "?")),
    *({"insecureSkipTLSVerify": each} for each in (True, False, "true")),
    *({"service": {**_SERVICE, **each}} for each in (
        {"namespace": ""}, {"name": ""}, {"port": 0}, {"port": -1}, {"port": 65_536}, {"namespace": "", "name": "", "port": 70_000},
    )),
    {"service": {"name": ""}, "caBundle": "YQ==", "insecureSkipTLSVerify": True},
    {"other": 1}, {"service": {**_SERVICE, "name": "", "path": "/x"}},
)  # fmt: skip
_STATUSES = ("True", "False", "Unknown", "", "yes")


def _made(spec: dict[str, Any], name: str | None = None, **more: Any) -> dict[str, Any]:
    whole = {**_SPEC, **spec}
    named = name if name is not None else f"{whole['version']}.{whole['group']}"
    return {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": named}, "spec": whole, **more}


def _condition(status: str) -> dict[str, str]:
    return {"type": "Available", "status": status, "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}


def cases() -> Iterator[Ask]:
    """What upstream's controller says of a status that a user wrote comes at a time of its own, and is not asked for."""
    strict = "?fieldValidation=Strict"
    one = f"{ROOT}/v1.x.example.com"
    for spec in _SPECS:
        yield Ask("refused or tried", "POST", f"{ROOT}{strict}&dryRun=All", _made(spec))
    for name in ("", "a", "v1", "v1.X.example.com", ".", "..", "a/b"):
        yield Ask("named otherwise", "POST", ROOT, _made({}, name))
    yield Ask("no spec", "POST", ROOT, {"metadata": {"name": "v1."}})
    yield Ask("made", "POST", ROOT + strict, _made({}, status={"conditions": [_condition("False")]}))
    yield Ask("again", "POST", ROOT, _made({}))
    yield Ask("read", "GET", one)
    yield Ask("in a table", "GET", one, accept=_TABLE)
    for change in (*_SPECS, {"versionPriority": 8}):
        yield Ask("changed", "PATCH", one + strict, {"spec": change}, _MERGE)
    yield Ask("labelled", "PATCH", one, {"metadata": {"labels": {"a": "b"}}}, _MERGE)
    yield Ask("put without a version", "PUT", one, _made({"versionPriority": 9}))
    for status in _STATUSES:
        changed = {"status": {"conditions": [_condition(status)]}, "spec": {"versionPriority": 3}, "metadata": {"labels": {"a": "c"}}}
        yield Ask("status", "PATCH", f"{one}/status", changed, _MERGE)
    yield Ask("deleted", "DELETE", one)
    yield Ask("gone", "GET", one)
    yield Ask("of the groups that are always there", "GET", ROOT)
    yield Ask("the same in a table", "GET", ROOT, accept=_TABLE)
