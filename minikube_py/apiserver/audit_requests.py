"""What an audit policy asks of a request: its attributes, its senders' addresses, and how it tried to authenticate.

Source: apiserver `pkg/endpoints/request/requestinfo.go`, `pkg/endpoints/filters/authn_audit.go`; apimachinery
`pkg/util/net/http.go`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from minikube_py.api.errors import StatusError, bad_request
from minikube_py.api.meta import is_path_segment
from minikube_py.api.values import BadValue, duration_ns
from minikube_py.apiserver.access import selected_name
from minikube_py.apiserver.audit_policy import Attributes
from minikube_py.apiserver.messages import decode_path, parse_query
from minikube_py.apiserver.options import parse_bool, parse_int

if TYPE_CHECKING:
    from minikube_py.apiserver.http1 import Head

_VERBS: Final = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_NAMESPACE_SUBRESOURCES: Final = ("status", "finalize")
_LASTING: Final = frozenset(("attach", "exec", "proxy", "log", "portforward"))
_PERHAPS_LASTING: Final = re.compile(r"%|/(?:watch|attach|exec|proxy|log|portforward|debug)(?:/|$)")
"""In the paths of all long-running requests but watches by option; reading the attributes of each would take longer."""
INVALID_TIMEOUT: Final = "invalid timeout specified in the request URL"
_INTEGERS: Final = ("limit", "timeoutSeconds")


def attributes_of(path: str, method: str, query: Mapping[str, str]) -> Attributes:
    """By the path's form alone, whether or not anything is served there."""
    decoded = decode_path(path)
    parts = [*decoded.strip("/").split("/")]
    plain = Attributes(method.lower(), decoded)
    if len(parts) < 3 or parts[0] not in ("api", "apis") or (parts[0] == "apis" and len(parts) < 4):
        return plain
    group, version, rest = ("", parts[1], parts[2:]) if parts[0] == "api" else (parts[1], parts[2], parts[3:])
    verb = _VERBS.get(method, "")
    if rest[0] in ("proxy", "watch"):
        if len(rest) < 2:
            return plain
        verb, rest = rest[0], rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in _NAMESPACE_SUBRESOURCES:
            rest = rest[2:]
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 and verb != "proxy" else ""
    if not name and verb == "get":
        verb = "watch" if "watch" in query and parse_bool(query, "watch") else "list"
        name = _selected(query)
    if not name and verb == "delete":
        verb = "deletecollection"
    return Attributes(verb, decoded, True, group, version, rest[0], subresource, namespace, name)


def _selected(query: Mapping[str, str]) -> str:
    """The name that a list's field selector requires, unless its options are malformed."""
    selector = query.get("fieldSelector")
    if not selector:
        return ""
    try:
        for each in _INTEGERS:
            if each in query:
                parse_int(query[each])
    except StatusError:
        return ""
    name = selected_name(selector)
    return "" if is_path_segment(name) else name


def is_long_running(asked: Attributes) -> bool:
    if asked.verb in ("watch", "proxy"):
        return True
    return asked.subresource in _LASTING if asked.is_resource else asked.path.startswith("/debug/pprof/")


def lasts(path: str, method: str, query: Mapping[str, str]) -> bool:
    """Whether a request that is no watch by its options is long-running."""
    return bool(_PERHAPS_LASTING.search(path)) and is_long_running(attributes_of(path, method, query))


def timeout_s(path: str, method: str, query: Mapping[str, str]) -> float:
    """How long a request may take by its option `timeout`; 0: as long as any. Long-running requests ignore it.
    Raises: StatusError 400.

    Source: apiserver `pkg/endpoints/filters/request_deadline.go`."""
    text = query.get("timeout", "")
    if not text or is_long_running(attributes_of(path, method, query)):
        return 0.0
    try:
        return duration_ns(text) / 1e9
    except BadValue as error:
        raise bad_request(f"{INVALID_TIMEOUT} - {error}") from None


def source_addresses(head: Head, peer: str) -> list[str]:
    """From proxies' headers, then the connection's own."""
    get = head.headers.get
    found = [*filter(None, map(_address, (get("x-forwarded-for") or "").split(",")))]
    real = _address(get("x-real-ip") or "")
    if real and real not in found:
        found.append(real)
    own = _address(peer)
    if own and (not found or found[-1] != own):
        found.append(own)
    return found


def _address(text: str) -> str:
    """As Go prints an address; "" if it is none."""
    try:
        address = ipaddress.ip_address(text.strip())
    except ValueError:
        return ""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


def tried_methods(head: Head) -> str:
    authorization = (head.headers.get("authorization") or "").strip()
    scheme, _, rest = authorization.partition(" ")
    tried = ["basic"] if scheme.lower() == "basic" and rest else []
    tried += ["bearer"] if scheme.lower() == "bearer" and rest else []
    try:
        tried += ["access_token"] if parse_query(head.query).get("access_token", "").strip() else []
    except StatusError:
        pass
    told = f"attempted: {', '.join(tried)}" if tried else "no credentials provided"
    return f"Authentication failed, {told}"
