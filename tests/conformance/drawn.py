"""Requests as anyone may send them, drawn from the grammar of the API and the edges of every type.

All go to a world that `SETUP` makes, and none changes it: writes are dry runs. So any may be asked after any
other, and two servers that got the same setup stand alike throughout. `asks` is a hypothesis strategy; an Ask's name is
the class that it was drawn from.
"""

from __future__ import annotations

import base64
import copy
import json
from typing import Any
from urllib.parse import quote, urlencode

import drawn_objects
from asking import JSON, Ask
from edges import EDGE_INTS, EDGE_TEXTS, as_json, json_values, one_of_these, quantities, texts
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from worlds import (
    BY_SCHEMA,
    CLUSTER_WIDE,
    CORE,
    DRAWN,
    IN,
    LEASES,
    NAMESPACE,
    ONLY,
    OTHERS,
    PARTS,
    REPORTED,
    STATUS,
    WORLD,
    merged,
    named,
    named_in_world,
    place,
    world_name,
)  # fmt: skip

MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
JSON_PATCH, YAML = "application/json-patch+json", "application/yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"

_PATCHED = tuple(plural for plural in DRAWN if plural not in ("namespaces",))


SETUP = [
    Ask("setup", "POST", f"{CORE}/namespaces", {"metadata": {"name": NAMESPACE}}),
    *(
        # Without blanks: upstream keeps some parts as they were sent.
        Ask("setup", "POST", WORLD[plural][0], as_json(named(plural, world_name(plural, name))))
        for plural in WORLD
        for name in ("one", "two")
    ),
    Ask("setup", "POST", f"{IN}/pods/two/binding", {"metadata": {"name": "two"}, "target": {"kind": "Node", "name": f"{NAMESPACE}-one"}}),
    *(
        Ask("setup", "POST", WORLD[plural][0], as_json(named_in_world(plural, name)))
        for plural, others in OTHERS.items()
        for name in others
    ),
    *(
        Ask("setup", "PATCH", f"{place(plural, name)}/status", {"status": status}, MERGE)
        for plural, reported in REPORTED.items()
        for name, status in reported.items()
    ),
    Ask("setup", "POST", f"{IN}/configmaps", {"metadata": {"name": "odd", "finalizers": ["x.io/f"]}, "data": {"a": "<&>\u2028\x01"}}),
    # Longer than what is sent without compression to those who accept it.
    Ask("setup", "POST", f"{IN}/configmaps", {"metadata": {"name": "large"}, "data": {"a": "x<" * 70_000}}),
]  # fmt: skip

# --- bodies -----------------------------------------------------------------------------------------------------------

RAW_SCALARS = (
    "1e400", "-1e400", "1e-400", "-0", "-0.0", "1.0", "1e3", "1E+3", "01", "+1", "1.", ".5", "0x10", "NaN", "Infinity",
    "9223372036854775807", "9223372036854775808", "-9223372036854775809", "18446744073709551616", "1" * 400, "1.5",
    "true", "TRUE", "nul", "''", '"\\ud800"', '"\\udc00\\ud800"', '"\\u0000"', '"\\x"', '"\t"', '"\\u00e9"', '{"a":1,"a":2}',
    '{"a":{},}', "[1,]", "[1 2]", "/**/1", '{"":""}', "[[[[]]]]",
)  # fmt: skip
"""JSON texts, well formed or not, that no value of a program stands for."""
_MARK = "@@raw@@"
_values = st.one_of(
    one_of_these([None, True, False, 0, 1, -1, "", {}, [], "x", 1.5, [None], {"a": None}]),
    one_of_these(EDGE_INTS), one_of_these(EDGE_TEXTS), texts, quantities, json_values,
)  # fmt: skip


def _paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [at] if at else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found += _paths(item, (*at, key))
    return found


def _put(obj: Any, path: tuple[Any, ...], value: Any) -> None:
    for key in path[:-1]:
        obj = obj[key]
    obj[path[-1]] = value


@st.composite
def bodies(draw: st.DrawFn, obj: dict[str, Any]) -> bytes:
    """`obj` with up to three members changed, added or dropped, and as JSON that may hold anything."""
    raw = None
    for _ in range(draw(st.integers(0, 3))):
        paths = _paths(obj)
        path = paths[draw(st.integers(0, len(paths) - 1))]
        what = draw(st.sampled_from(("change", "change", "raw", "unknown", "null", "drop")))
        if what == "raw":
            raw = draw(st.sampled_from(RAW_SCALARS))
            _put(obj, path, _MARK)
        elif what == "unknown":
            obj[draw(st.sampled_from(("foo", "Spec", "metaData", "", "é")))] = draw(_values)
        elif what == "drop" and isinstance(path[-1], str):
            _put(obj, path, None)
        else:
            _put(obj, path, None if what == "null" else draw(_values))
    text = as_json(obj)
    return text.replace(f'"{_MARK}"'.encode(), raw.encode()) if raw is not None else text


_whole = st.one_of(
    one_of_these([b"", b" ", b"null", b"[]", b'""', b"0", b"{}", b"{", b'{"kind":1}', b"\xff", b"\xef\xbb\xbf{}", b"a: b", b"--- ", b"k8s\0"]),
    json_values.map(as_json),
)  # fmt: skip
_types = st.sampled_from(
    (JSON,) * 12
    + ("application/json; charset=utf-8", YAML, "application/yaml;q=1", "text/plain", "application/xml", "*/*", "json",
       "application/vnd.kubernetes.protobuf", "APPLICATION/JSON", "application/json;", "")
)  # fmt: skip
_accepts = st.sampled_from(
    (JSON,) * 10
    + (TABLE, PARTIAL, PARTIAL_LIST, YAML, "*/*", "", "application/*", "text/html", "application/xml", f"{TABLE},{JSON}",
       "application/json;q=0.5", "application/json;as=Table;v=v2;g=meta.k8s.io", "application/json;as=Foo;v=v1;g=meta.k8s.io",
       "application/json;stream=watch", "application/json;as=Table;v=v1beta1;g=meta.k8s.io", "application/cbor,application/json",
       "application/vnd.kubernetes.protobuf,application/json", "text/html,application/json;q=0.9,*/*;q=0.8", "json", ";")
)  # fmt: skip
_AGENTS = (("User-Agent", "curl/8.5.0"), ("User-Agent", "Mozilla/5.0 (X11)"), ("User-Agent", "kubectl/v1.36.2"))
_CODINGS = ("gzip", "identity", "br", "deflate, gzip", "gzip;q=1", "*", "GZIP", " gzip ,br", "")
_packing = st.sampled_from(("gzip", *_CODINGS)).map(lambda coding: (("Accept-Encoding", coding),))
_agents = st.one_of(st.just(()), st.just(()), st.just(()), st.sampled_from(_AGENTS).map(lambda each: (each,)), _packing)


def _query(draw: st.DrawFn, options: dict[str, SearchStrategy[str]], always: str = "") -> str:
    """Some of the options, now and then twice, in any order."""
    drawn = draw(st.lists(st.sampled_from(sorted(options)), max_size=3))
    pairs = [(name, draw(options[name])) for name in drawn]
    text = "&".join(filter(None, (always, urlencode(pairs, errors="replace"))))
    return f"?{text}" if text else ""


_words = st.one_of(texts, one_of_these(EDGE_INTS).map(str))
WRITE_OPTIONS: dict[str, SearchStrategy[str]] = {
    "fieldValidation": st.sampled_from(("Strict", "Warn", "Ignore", "", "strict", "Sure")),
    "fieldManager": st.one_of(st.sampled_from(("me", "", "a" * 128, "a" * 129)), texts),
    "pretty": st.sampled_from(("1", "true", "0", "no", "")),
    "dryRun": st.sampled_from(("All", "Some", "", "all")),
    "force": st.sampled_from(("true", "false", "")),
    "unknown": _words,
}


def _told(draw: st.DrawFn, plural: str, name: str) -> dict[str, Any]:
    """The kind's body; half of the time with one or two of its optional parts."""
    obj = named(plural, name)
    if plural in PARTS and draw(st.booleans()):
        for part in draw(st.lists(st.sampled_from(PARTS[plural]), min_size=1, max_size=2)):
            obj = merged(obj, part)
    return obj


def _with_status(draw: st.DrawFn, plural: str, obj: dict[str, Any]) -> dict[str, Any]:
    status = copy.deepcopy(STATUS.get(plural, {}))
    for name in draw(st.lists(st.sampled_from(sorted(status)), max_size=3)) if status else ():
        if isinstance(status[name], int):
            status[name] = draw(st.sampled_from((0, 1, 2, 3, -1, None)))
    return {**obj, "status": status} if status else obj


@st.composite
def creates(draw: st.DrawFn) -> Ask:
    plural = draw(st.sampled_from(DRAWN))
    where, _ = WORLD[plural]
    name = draw(st.one_of(st.sampled_from(("new", "new", "new", "one", "two", "")), texts))
    obj = _told(draw, plural, name)
    body = draw(st.one_of(bodies(obj), bodies(obj), st.just(as_json(obj)), _whole))
    target = where + _query(draw, WRITE_OPTIONS, "dryRun=All")
    return Ask("create", "POST", target, body, draw(_types), draw(_accepts), headers=draw(_agents))


@st.composite
def updates(draw: st.DrawFn) -> Ask:
    plural = draw(st.sampled_from(_PATCHED))
    name = world_name(plural, draw(st.sampled_from(("one", "two", "absent"))))
    sub = draw(st.sampled_from(("", "", "", "/status", "/finalize", "/scale")))
    obj = _told(draw, plural, name)
    if sub == "/status":
        obj = _with_status(draw, plural, obj)
    if draw(st.booleans()):
        version = st.sampled_from(("0", "1", "", "abc", "-1", "+1", "01", "99999999", "9223372036854775808", "1" * 30))
        obj["metadata"]["resourceVersion"] = draw(version)
    body = draw(st.one_of(bodies(obj), bodies(obj), st.just(as_json(obj)), _whole))
    target = f"{WORLD[plural][0]}/{name}{sub}" + _query(draw, WRITE_OPTIONS, "dryRun=All")
    return Ask("update", "PUT", target, body, draw(_types), draw(_accepts), headers=draw(_agents))


# --- patches ----------------------------------------------------------------------------------------------------------


def _pointer(path: tuple[Any, ...]) -> str:
    return "".join(f"/{str(key).replace('~', '~0').replace('/', '~1')}" for key in path)


@st.composite
def _operations(draw: st.DrawFn, obj: dict[str, Any]) -> Any:
    paths = [_pointer(path) for path in _paths(obj)]
    places = st.one_of(one_of_these(paths), one_of_these(["", "/", "/nope/x", "/spec/-", "/metadata/labels/a~1b", "a", "/spec/containers/01", "~"]))
    found = []
    for _ in range(draw(st.integers(0, 3))):
        op = draw(st.sampled_from(("add", "replace", "remove", "test", "copy", "move", "frob", "")))
        each: dict[str, Any] = {"op": op, "path": draw(places)}
        if op in ("copy", "move") or draw(st.integers(0, 9)) == 0:
            each["from"] = draw(places)
        if op in ("add", "replace", "test"):
            each["value"] = draw(_values)
        found.append(each)
    return found if draw(st.integers(0, 9)) else draw(_values)


@st.composite
def _merges(draw: st.DrawFn, obj: dict[str, Any], strategic: bool) -> Any:
    paths = [path for path in _paths(obj) if all(isinstance(key, str) for key in path)]
    path = paths[draw(st.integers(0, len(paths) - 1))]
    value = draw(_values)
    if strategic and draw(st.booleans()):
        directive = st.sampled_from(("delete", "replace", "merge", "odd", 1, None))
        value = draw(st.sampled_from((
            [{"name": "c", "$patch": draw(directive)}], {"$patch": draw(directive)}, {"$retainKeys": ["a"]},
            {"$deleteFromPrimitiveList/finalizers": ["a"]}, [{"image": "y"}], [{"name": "c", "image": "y"}, {"name": "d"}],
            {"$setElementOrder/containers": [{"name": "z"}]}, {"$unknown": 1},
        )))  # fmt: skip
    for key in reversed(path):
        value = {key: value}
    return value


@st.composite
def patches(draw: st.DrawFn) -> Ask:
    plural = draw(st.sampled_from(_PATCHED))
    name = draw(st.sampled_from(("one", "two", "two", "absent")))
    obj = named(plural, name)
    kind = draw(st.sampled_from((MERGE, STRATEGIC, JSON_PATCH, MERGE, STRATEGIC, JSON_PATCH, JSON, "", "text/plain", f"{MERGE};q=1")))
    if kind == JSON_PATCH:
        value = draw(_operations(obj))
    elif plural in PARTS and draw(st.booleans()):
        value = draw(st.sampled_from(PARTS[plural]))
    else:
        value = draw(_merges(obj, kind == STRATEGIC))
    body = draw(st.one_of(st.just(as_json(value)), st.just(as_json(value)), st.just(as_json(value)), _whole))
    sub = draw(st.sampled_from(("", "", "", "/status", "/scale")))
    target = f"{WORLD[plural][0]}/{world_name(plural, name)}{sub}" + _query(draw, WRITE_OPTIONS, "dryRun=All")
    return Ask(f"patch {kind.partition('/')[2].partition('-')[0]}", "PATCH", target, body, kind, draw(_accepts), headers=draw(_agents))


# --- reads ------------------------------------------------------------------------------------------------------------

_TOKENS = ("app", "tier", "one", "x.io/y", "=", "==", "!=", " in ", " notin ", "(", ")", ",", "!", " ", ">", "<", "1", "-", "a" * 64, "é")
_labels = st.one_of(
    st.sampled_from(("app=one", "app in (one,two)", "!app", "app!=one", "tier", "app notin (one)", "a=b=c", "app in ()", "x>1", "")),
    st.lists(st.sampled_from(_TOKENS), max_size=6).map("".join), texts,
)  # fmt: skip
_FIELD_TOKENS = ("metadata.name", "metadata.namespace", "status.phase", "spec.nodeName", "type", "reason", "=", "==", "!=", ",", "one", "\\", "\\,", "\\=", "<", " ", "")
_fields = st.one_of(
    st.sampled_from(("metadata.name=one", f"metadata.namespace={NAMESPACE}", "metadata.name!=one", "spec.nodeName=", "status.phase!=Running", "data.a=1", "metadata.name", "=", "")),
    st.lists(st.sampled_from(_FIELD_TOKENS), max_size=5).map("".join), texts,
)  # fmt: skip
_versions = st.sampled_from(("", "0", "1", "-1", "abc", "+5", " 5", "1e3", "05", "9223372036854775807", "9223372036854775808", "1" * 30, "1.0"))
_numbers = st.one_of(st.sampled_from(("0", "1", "2", "500", "-1", "abc", "1.5", "", "+1", " 1", "0x1", "1e2")), one_of_these(EDGE_INTS).map(str))
_booleans = st.sampled_from(("true", "false", "1", "0", "", "yes", "TRUE", "f"))


def _continued(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


_continues = st.one_of(
    st.sampled_from((
        "abc", "!", "e30", _continued({"v": "meta.k8s.io/v1", "rv": -2, "start": ""}), _continued({"v": "meta.k8s.io/v1", "rv": 0, "start": "x\0"}),
        _continued({"v": "meta.k8s.io/v1", "rv": -1, "start": "../x\0"}), _continued({"v": "v0", "rv": 1, "start": "a\0"}), _continued([]),
        _continued({"v": "meta.k8s.io/v1", "rv": "1", "start": 1}),
    )),
    texts,
)  # fmt: skip
LIST_OPTIONS: dict[str, SearchStrategy[str]] = {
    "labelSelector": _labels,
    "fieldSelector": _fields,
    "limit": _numbers,
    "continue": _continues,
    "resourceVersion": _versions,
    "resourceVersionMatch": st.sampled_from(("Exact", "NotOlderThan", "", "exact", "Sure")),
    "timeoutSeconds": _numbers,
    "allowWatchBookmarks": _booleans,
    "sendInitialEvents": _booleans,
    "includeObject": st.sampled_from(("Object", "None", "Metadata", "", "Some")),
    "pretty": st.sampled_from(("1", "true", "0", "x")),
    "unknown": _words,
}
_collections = st.sampled_from([where for where, _ in WORLD.values()] + [f"{CORE}/pods", f"{CORE}/configmaps"])


@st.composite
def lists(draw: st.DrawFn) -> Ask:
    where = draw(_collections)
    if where in (*(WORLD[plural][0] for plural in CLUSTER_WIDE), f"{CORE}/pods", f"{CORE}/configmaps"):
        # What both servers keep for themselves is not the same.
        target = where + _query(draw, LIST_OPTIONS, "labelSelector=" + quote(draw(st.sampled_from((f"world={NAMESPACE}", f"world={NAMESPACE},app=one")))))
    else:
        target = where + _query(draw, LIST_OPTIONS)
    return Ask("list", "GET", target, accept=draw(_accepts), headers=draw(_agents))


@st.composite
def watches(draw: st.DrawFn) -> Ask:
    """Those that upstream would serve end by themselves, but only after a second: few of them are drawn."""
    where = draw(st.sampled_from((f"{IN}/configmaps", f"{IN}/pods", LEASES)))
    always = f"watch={draw(_booleans)}"
    if draw(st.integers(0, 19)):
        always += "&" + draw(st.sampled_from((
            "resourceVersionMatch=Exact", "sendInitialEvents=true", "resourceVersion=abc", "labelSelector=a%20in%20(", "limit=x",
            "fieldSelector=a", "resourceVersionMatch=NotOlderThan", "continue=abc", "timeoutSeconds=x",
            "sendInitialEvents=true&resourceVersionMatch=Exact", "resourceVersion=-1", "resourceVersion=1&resourceVersionMatch=Sure",
        )))  # fmt: skip
    if not draw(st.integers(0, 2)):
        # The older form, whose options are checked as those of a list.
        where = where.replace("/v1/", "/v1/watch/", 1) + draw(st.sampled_from(("", "/one", "/absent")))
    return Ask("watch", "GET", where + _query(draw, LIST_OPTIONS, f"{always}&timeoutSeconds=1"), accept=draw(_accepts))


@st.composite
def gets(draw: st.DrawFn) -> Ask:
    plural = draw(st.sampled_from(DRAWN))
    name = draw(st.one_of(st.sampled_from(("one", "two", "odd", "absent")), texts))
    sub = draw(st.sampled_from(("", "", "", "/status", "/scale", "/nope", "/log", "/binding", "/")))
    options = {**LIST_OPTIONS, "watch": _booleans}
    target = f"{WORLD[plural][0]}/{quote(world_name(plural, name), safe='', errors='replace')}{sub}" + _query(draw, options)
    return Ask("get", "GET", target, accept=draw(_accepts), headers=draw(_agents))


# --- deletes, paths, headers, reviews -----------------------------------------------------------------------------------


@st.composite
def deletes(draw: st.DrawFn) -> Ask:
    plural = draw(st.sampled_from(DRAWN))
    name = world_name(plural, draw(st.sampled_from(("one", "two", "odd", "absent"))))
    options: dict[str, Any] = {"dryRun": ["All"]}
    for key in draw(st.lists(st.sampled_from(("gracePeriodSeconds", "propagationPolicy", "orphanDependents", "preconditions", "kind", "foo", "ignoreStoreReadErrorWithClusterBreakingPotential")), max_size=3)):
        options[key] = draw(st.one_of(
            _values, st.sampled_from((0, -1, 30, "Orphan", "Background", "Foreground", "Sideways", True, {"uid": "x"}, {"resourceVersion": "1"}, {"uid": None}, "DeleteOptions")),
        ))  # fmt: skip
    body = draw(st.one_of(st.none(), bodies(options), st.just(as_json(options)), _whole))
    query = _query(draw, {
        "gracePeriodSeconds": _numbers, "propagationPolicy": st.sampled_from(("Orphan", "Background", "x", "")), "orphanDependents": _booleans,
        "dryRun": WRITE_OPTIONS["dryRun"], "unknown": _words,
    }, "dryRun=All")  # fmt: skip
    if body is not None and b'"dryRun":["All"]' not in body.replace(b" ", b""):
        # The body wins over the query; only what is refused may go without it.
        body = b'{"dryRun":["All"],"x":' + body + b"}"
    return Ask("delete", "DELETE", f"{WORLD[plural][0]}/{name}{query}", body, draw(_types), draw(_accepts), headers=draw(_agents))


_METHODS = ("GET", "GET", "GET", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "FROB", "get")
_SEGMENTS = (
    "api", "apis", "v1", "v2", "namespaces", NAMESPACE, "pods", "one", "configmaps", "status", "watch", "nodes", "leases", "coordination.k8s.io",
    "apps", "nope", "", ".", "..", "%2F", "%20", "%", "%zz", "%00", "healthz", "livez", "readyz", "version", "openapi", "v3", "log", "scale", "é",
    "proxy", "eviction", "binding", "finalize", "swagger.json", "logs", "ping", "etcd", "bindings", "events", "POD", "Pods",
)  # fmt: skip
_PLACES = (
    "/", "/api", "/api/", "/apis", "/api/v1", "/apis/", "/apis/coordination.k8s.io", "/apis/coordination.k8s.io/v1", "/apis/nope", "/apis/nope/v1",
    "/apis/nope/v1/things", "/apis/coordination.k8s.io/v2/leases", "/api/v2/pods", "/healthz", "/healthz/ping", "/healthz/nope", "/livez/etcd",
    "/readyz/log", "/readyz?exclude=nope", "/version", "/version/", "/openapi", "/openapi/v2/", "/metrics/", "//api/v1/pods", "/api//v1/pods", IN,
    f"{IN}/pods", f"{IN}/pods/one", f"{IN}/pods/one/status", f"{IN}/pods/one/nope", f"{IN}/pods/one/log", f"{IN}/pods/one/binding",
    f"{IN}/pods/one/eviction", f"{IN}/pods/one/status/x", f"{CORE}/watch/namespaces/{NAMESPACE}/nope", f"{CORE}/pods/one", f"{CORE}/nodes/{NAMESPACE}-one",
    f"{CORE}/namespaces/{NAMESPACE}/finalize", f"{CORE}/namespaces/{NAMESPACE}/status", f"{CORE}/namespaces/{NAMESPACE}/nodes", f"{CORE}/gadgets",
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "/apis/authentication.k8s.io/v1/selfsubjectreviews/x", "/favicon.ico",
)  # fmt: skip


@st.composite
def paths(draw: st.DrawFn) -> Ask:
    random = st.lists(st.sampled_from(_SEGMENTS), max_size=6).map(lambda parts: "/" + "/".join(quote(each, safe="%") for each in parts))
    target = draw(st.one_of(st.sampled_from(_PLACES), st.sampled_from(_PLACES), random))
    method = draw(st.sampled_from(_METHODS))
    if method not in ("GET", "HEAD"):
        target += ("&" if "?" in target else "?") + "dryRun=All"
    body = draw(st.sampled_from((None, b"", b"{}"))) if method not in ("GET", "HEAD", "DELETE", "TRACE") else None
    token = draw(st.sampled_from((None, None, None, None, "", "wrong")))
    return Ask("path", method, target, body, "", draw(_accepts), token, draw(_agents))


_HEADERS: dict[str, SearchStrategy[str]] = {
    "Impersonate-User": st.sampled_from(("nobody", "system:anonymous", "system:serviceaccount:a:b", "admin", "", "a b", "<x>")),
    "Impersonate-Group": st.sampled_from(("system:masters", "system:unauthenticated", "g", "system:nodes")),
    "Impersonate-Uid": st.sampled_from(("7", "")),
    "Impersonate-Extra-Scopes": st.sampled_from(("a", "b", "")),
    "Impersonate-Extra-x%2fy": st.just("1"),
    "If-Match": st.just('"x"'), "If-None-Match": st.just("*"), "Range": st.just("bytes=0-3"), "Accept-Encoding": st.sampled_from(_CODINGS),
    "X-Stream-Protocol-Version": st.just("v4.channel.k8s.io"), "X-Http-Method-Override": st.just("DELETE"), "X-Forwarded-For": st.just("1.2.3.4"),
    "X-Remote-User": st.just("root"), "Origin": st.just("http://evil.example"), "Content-Type": st.sampled_from(("text/plain", "x")),
    "Authorization": st.sampled_from(("Basic eDp5", "Bearer", "Bearer ", "Bearer x y", "Negotiate x", "")), "Audit-Id": st.sampled_from(("mine", "", "a" * 300, '\xe9"\t z')),
    "Accept": _accepts, "Accept-Charset": st.just("latin-1"), "Expect": st.just("x"), "Cookie": st.just("a=b"), "Connection": st.just("close"),
    "User-Agent": st.sampled_from(("curl/8", "Wget/1", "Mozilla/5.0", "Mozilla/4.0", "CURL")), "Kubectl-Command": st.just("kubectl get"),
}  # fmt: skip


@st.composite
def headers(draw: st.DrawFn) -> Ask:
    places = (f"{IN}/pods/one", f"{IN}/configmaps", f"{IN}/configmaps/large", f"{IN}/configmaps?limit=2", "/version", "/api", f"{IN}/pods/absent", f"{CORE}/nodes?labelSelector=world%3D{NAMESPACE}", "/healthz", "/nope", f"{IN}/pods?watch=1&timeoutSeconds=x")
    drawn = draw(st.lists(st.sampled_from(sorted(_HEADERS)), min_size=1, max_size=3))
    if draw(st.booleans()):
        return Ask("headers", "GET", draw(st.sampled_from(places)), headers=tuple((name, draw(_HEADERS[name])) for name in drawn))
    review = {"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}
    given = tuple((name, draw(_HEADERS[name])) for name in drawn if name not in ("Content-Type", "Expect"))
    return Ask("headers", "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review, headers=given)


@st.composite
def reviews(draw: st.DrawFn) -> Ask:
    group = "authorization.k8s.io"
    plural, kind = draw(st.sampled_from((("selfsubjectaccessreviews", "SelfSubjectAccessReview"), ("selfsubjectrulesreviews", "SelfSubjectRulesReview"))))
    spec = draw(st.sampled_from((
        {"resourceAttributes": {"verb": "list", "resource": "pods", "namespace": "x"}}, {"nonResourceAttributes": {"verb": "get", "path": "/metrics"}},
        {"namespace": "x"}, {}, {"resourceAttributes": {}}, {"resourceAttributes": {"verb": "*"}, "nonResourceAttributes": {"path": "/"}},
    )))  # fmt: skip
    body = draw(bodies({"kind": kind, "apiVersion": f"{group}/v1", "spec": copy.deepcopy(spec)}))
    as_who = draw(st.sampled_from(((), (("Impersonate-User", "nobody"),), (("Impersonate-User", "x"), ("Impersonate-Group", "system:masters")))))
    return Ask("review", "POST", f"/apis/{group}/v1/{plural}" + _query(draw, WRITE_OPTIONS), body, draw(_types), headers=as_who)


_OF_KINDS = (creates(), updates(), patches(), gets(), deletes())
_BY_SCHEMA = (drawn_objects.writes(named_in_world, place),) * 2 if BY_SCHEMA & set(DRAWN) else ()
asks: SearchStrategy[Ask] = st.one_of(*_OF_KINDS, *_BY_SCHEMA, *(() if ONLY else (lists(), paths(), headers(), reviews(), watches())))
