"""An extender's configuration in a KubeSchedulerConfiguration. Source: pkg/scheduler/extender.go."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from minikube_py.api.values import duration_ns
from minikube_py.client.outside import context_of, read_file
from minikube_py.env import Tls
from minikube_py.scheduler.configuration.merging import ConfigError


@dataclass(frozen=True, slots=True)
class ExtenderConfig:
    """`managed`: resources of which a pod must request one; empty: every pod matches. `timeout_s`: negative for
    none."""

    url_prefix: str
    filter_verb: str = ""
    preempt_verb: str = ""
    prioritize_verb: str = ""
    bind_verb: str = ""
    weight: int = 0
    tls: Tls | None = None
    timeout_s: float = 5.0
    node_cache_capable: bool = False
    managed: frozenset[str] = frozenset()
    ignorable: bool = False


def read_extenders(extenders: Sequence[Mapping[str, Any]]) -> tuple[ExtenderConfig, ...]:
    """In call order: ignorable ones last. Raises: ConfigError."""
    try:
        found = [_read(each) for each in extenders]
    except ValueError as error:
        raise ConfigError(f"couldn't build extenders: {error}") from None
    return tuple(sorted(found, key=lambda each: each.ignorable))


def _read(given: Mapping[str, Any]) -> ExtenderConfig:
    resources = given.get("managedResources") or ()
    return ExtenderConfig(
        url_prefix=given.get("urlPrefix") or "",
        filter_verb=given.get("filterVerb") or "",
        preempt_verb=given.get("preemptVerb") or "",
        prioritize_verb=given.get("prioritizeVerb") or "",
        bind_verb=given.get("bindVerb") or "",
        weight=given.get("weight") or 0,
        tls=_tls(given.get("tlsConfig"), bool(given.get("enableHTTPS"))),
        timeout_s=duration_ns(given["httpTimeout"]) / 1e9,
        node_cache_capable=bool(given.get("nodeCacheCapable")),
        managed=frozenset(each["name"] for each in resources),
        ignorable=bool(given.get("ignorable")),
    )


def _tls(given: Mapping[str, Any] | None, https: bool) -> Tls | None:
    """None for the system's trust store. Raises: ValueError."""
    given = given or {}
    has_authority = bool(given.get("caFile") or given.get("caData"))
    insecure = bool(given.get("insecure")) or (https and not has_authority)
    has_certificate = bool(given.get("certData") or given.get("certFile"))
    has_key = bool(given.get("keyData") or given.get("keyFile"))
    if not (has_authority or insecure or given.get("serverName") or (has_certificate and has_key)):
        return None
    if has_authority and insecure:
        raise ValueError("specifying a root certificates file with the insecure flag is not allowed")
    tls = Tls(insecure, given.get("serverName") or "", _pem(given, "ca"), _pem(given, "cert"), _pem(given, "key"))
    context_of(tls)
    return tls


def _pem(given: Mapping[str, Any], name: str) -> bytes:
    data, file = given.get(f"{name}Data"), given.get(f"{name}File")
    if data:
        return data if isinstance(data, bytes) else b64decode(data)
    return read_file(file) if file else b""
