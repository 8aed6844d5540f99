"""Declared indexes over HTTP: make, list, look at, drop, and ask how a question would be answered.

| Path | |
|---|---|
| `GET /minikube-py/v1/indexes` | all of them, and the state of each at the member asked |
| `POST /minikube-py/v1/indexes` | declares one; 409 where the name stands for another |
| `GET, DELETE /minikube-py/v1/indexes/<name>` | one of them; 404 where there is none |
| `GET /minikube-py/v1/explain?resource=nodes&where=free.cpu>=4&limit=10` | how it is answered, and at what cost |

For administrators alone, as all paths are that no rule names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar
from urllib.parse import unquote

import orjson

from minikube_py.api.document import read_object
from minikube_py.api.errors import StatusError, bad_request, method_not_allowed, path_not_found
from minikube_py.api.field_kinds import kind_at
from minikube_py.api.kind import Kind
from minikube_py.api.selectors import FieldSelector, parse_field_selector
from minikube_py.apiserver.messages import Request, Response
from minikube_py.apiserver.object_store import translated
from minikube_py.apiserver.options import parse_int
from minikube_py.errors import InvalidRequest
from minikube_py.fields import quantity
from minikube_py.fields.paths import Path, parse_path
from minikube_py.fields.spec import FieldSpec
from minikube_py.fields.spec import Kind as FieldKind
from minikube_py.fields.text import Source, field_text, read_declaration, sum_text
from minikube_py.index import catalogue
from minikube_py.index.declared import MEMORY_LIMIT_BYTES, IndexSpec, check_against, check_spec, to_json
from minikube_py.index.reports import Choice, Explanation, IndexReport
from minikube_py.mvcc.types import RangeRequest, prefix_end

if TYPE_CHECKING:
    from minikube_py.apiserver.core import ApiServer

T = TypeVar("T")
Json = dict[str, Any]
ROOT: Final = "/minikube-py"
INDEXES: Final = f"{ROOT}/v1/indexes"
EXPLAIN: Final = f"{ROOT}/v1/explain"
API_VERSION: Final = "minikube-py/v1"
STRUCTURE: Final = "max-tree"
"""An index's default structure."""
BODY_BYTES_MAX: Final = 256 << 10
_ORDERS: Final[Mapping[str, Literal["KEY", "ANY"]]] = {"KEY": "KEY", "ANY": "ANY"}
_KNOWN: Final = ("name", "on", "fields", "sums", "structure", "options", "memoryLimit")


async def answer(path: str, request: Request, server: ApiServer) -> Response:
    """`path` begins with ROOT. Raises: StatusError 400, 404, 405, 409, 503, 504."""
    if path == EXPLAIN:
        return await _explain(_only(request, "GET"), server)
    if path == INDEXES:
        if _only(request, "GET", "POST").method == "POST":
            return await _create(request, server)
        items = [_item(server, report) for report in await _reports(server)]
        return _json(200, {"kind": "IndexList", "apiVersion": API_VERSION, "items": items})
    name = unquote(path.removeprefix(f"{INDEXES}/"))
    if f"{INDEXES}/" not in path or "/" in name:
        raise path_not_found()
    if _only(request, "GET", "DELETE").method == "DELETE":
        return await _drop(name, server)
    return _json(200, await _one(name, server))


def _only(request: Request, *methods: str) -> Request:
    if request.method not in methods:
        raise method_not_allowed()
    return request


def _json(status: int, body: Json) -> Response:
    return Response(status, orjson.dumps(body))


# --- what there is --------------------------------------------------------------------------------------------------


async def _reports(server: ApiServer) -> list[IndexReport]:
    reports = await translated(server.storage.indexes())
    server.declared.told(reports)
    return reports


async def _one(name: str, server: ApiServer) -> Json:
    for report in await _reports(server):
        if report.spec.name == name:
            return _item(server, report)
    raise _no_index(name, server)


def _item(server: ApiServer, report: IndexReport) -> Json:
    """The declaration as stored; `typed`: its fields and sums as users write them, and their kinds."""
    spec = report.spec
    sources = {plural: Source(each.prefix, _any_kind) for plural, each in server.declared.resources.items()}
    declared = {each.name: each for each in spec.declares}
    fields = [field_text(declared[name]) if name in declared else name for name in spec.fields]
    kinds = _kinds(server, spec)
    return {
        "kind": "Index",
        "apiVersion": API_VERSION,
        **to_json(spec),
        "typed": {"fields": fields, "kinds": kinds, "sums": [sum_text(each, sources) for each in spec.sums]},
        "status": {
            "state": report.state,
            "reason": report.reason,
            "progress": report.progress,
            "rows": report.rows,
            "sizeBytes": report.size_bytes,
            "bytesPerRevision": report.bytes_per_revision,
            "queries": report.queries,
            "hits": report.hits,
        },
    }


def _kinds(server: ApiServer, spec: IndexSpec) -> dict[str, FieldKind]:
    resource = server.declared.resources.get(spec.on)
    declared = server.declared.of(resource).field_set if resource is not None else None
    found = {name: declared.find(name) for name in spec.fields} if declared is not None else {}
    return {name: each.kind for name, each in found.items() if each is not None}


def _any_kind(path: Path) -> FieldKind:
    return "string"


def _no_index(name: str, server: ApiServer) -> StatusError:
    there = ", ".join(sorted(server.declared.specs)) or "none"
    return StatusError(404, "NotFound", f"there is no index {name!r}; the indexes are: {there}")


# --- make and drop --------------------------------------------------------------------------------------------------


async def _create(request: Request, server: ApiServer) -> Response:
    """201 with the index; 200 if an identical one exists."""
    await server.lister.wait_fresh()
    spec = _refused(lambda: _read(request.body, server))
    there = server.declared.specs.get(spec.name)
    if there == spec:
        return _json(200, await _one(spec.name, server))
    if there is not None:
        what = f"index {spec.name} exists, on {there.on} over {', '.join(there.fields)} in {there.structure}"
        raise StatusError(409, "AlreadyExists", f"{what}; drop it first, or choose another name")
    if server.declared.resources[spec.on].field_set is None:
        await translated(server.storage.declare(server.declared.base(server.declared.resources[spec.on])))
    try:
        revision = await translated(server.storage.declare_index(spec))
    except StatusError:
        # Another request may have won the race.
        await server.lister.wait_fresh()
        if server.declared.specs.get(spec.name, spec) != spec:
            raise StatusError(409, "AlreadyExists", f"index {spec.name} was made by another just now") from None
        raise
    # The client may use the index's fields on this server at once.
    await server.lister.wait_for(revision)
    return _json(201, await _one(spec.name, server))


async def _drop(name: str, server: ApiServer) -> Response:
    await server.lister.wait_fresh()
    if name not in server.declared.specs:
        raise _no_index(name, server)
    await server.lister.wait_for(await translated(server.storage.drop_index(name)))
    details = {"name": name, "kind": "indexes"}
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    return _json(200, status)


def _refused(read: Callable[[], T]) -> T:
    try:
        return read()
    except InvalidRequest as error:
        raise bad_request(str(error)) from None


def _read(body: bytes, server: ApiServer) -> IndexSpec:
    """Raises: InvalidRequest."""
    given = _body(body)
    plural = given.get("on")
    resource = server.declared.resources.get(plural) if isinstance(plural, str) else None
    if resource is None:
        there = ", ".join(sorted(server.declared.resources))
        raise InvalidRequest(f"on: {plural!r} is not a stored resource; the resources are {there}")
    sums = _texts(given, "sums")
    if sums and resource.namespaced:
        may = ", ".join(sorted(name for name, each in server.declared.resources.items() if not each.namespaced))
        raise InvalidRequest(
            f"sums: {resource.plural} are namespaced, and a name alone does not identify one; only {may}"
        )
    declared = read_declaration(
        server.declared.base(resource),
        _texts(given, "fields"),
        sums,
        {name: Source(each.prefix, _kinds_of(each)) for name, each in server.declared.resources.items()},
        _kinds_of(resource),
        server.declared.of(resource).field_set,
    )
    for added in declared.declares:
        _check_label(resource, added)
    spec = IndexSpec(
        _text(given, "name"),
        resource.plural,
        declared.fields,
        _text(given, "structure", STRUCTURE),
        _options(given),
        _memory(given),
        declared.declares,
        declared.sums,
    )
    check_spec(spec)
    others = [each for each in server.declared.specs.values() if each.on == spec.on and each.name != spec.name]
    check_against(spec, server.declared.base(resource), others)
    _check_structure(spec)
    return spec


def _check_label(resource: Kind, spec: FieldSpec) -> None:
    """Upstream's selectable fields keep their meaning: another field of that name would be unreachable with `=`."""
    label = resource.selectable.get(spec.name)
    if label is not None and (spec.extractor != "path@1" or parse_path(spec.args["path"]) != label.path):
        raise InvalidRequest(f"field {spec.name}: {resource.plural} are selected by another field of that name")


def _check_structure(spec: IndexSpec) -> None:
    try:
        catalogue.build(spec.structure, len(spec.fields), spec.options)
    except InvalidRequest:
        raise
    except Exception as error:
        # A user-defined structure may fail in any way.
        why = f"{type(error).__name__}: {error}"
        raise InvalidRequest(f"structure {spec.structure} cannot be built: {why}") from error


def _kinds_of(resource: Kind) -> Callable[[Path], FieldKind]:
    return lambda path: kind_at(resource, path)


def _body(body: bytes) -> Json:
    if len(body) > BODY_BYTES_MAX:
        raise InvalidRequest(f"the declaration of an index has at most {BODY_BYTES_MAX} bytes, this one {len(body)}")
    try:
        given = read_object(body, "the declaration of an index")
    except ValueError as error:
        raise InvalidRequest(str(error)) from None
    unknown = sorted(given.keys() - set(_KNOWN))
    if unknown:
        raise InvalidRequest(f"the declaration of an index has no {unknown[0]!r}; it has {', '.join(_KNOWN)}")
    return given


def _text(given: Json, name: str, default: str | None = None) -> str:
    value = given.get(name, default)
    if not isinstance(value, str) or not value:
        raise InvalidRequest(f"{name}: a text is needed")
    return value


def _texts(given: Json, name: str) -> list[str]:
    value = given.get(name, [])
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise InvalidRequest(f"{name}: a list of texts is needed")
    return value


def _options(given: Json) -> Mapping[str, int | str]:
    value = given.get("options", {})
    if not isinstance(value, dict):
        raise InvalidRequest("options: an object of names and values is needed")
    for name, each in value.items():
        if type(each) not in (int, str):
            raise InvalidRequest(f"options: {name} must be a whole number or a text, not {orjson.dumps(each).decode()}")
    return value


def _memory(given: Json) -> int:
    value = given.get("memoryLimit", MEMORY_LIMIT_BYTES)
    try:
        return quantity.whole_units(value) if isinstance(value, str) else _whole(value)
    except quantity.QuantityError as error:
        raise InvalidRequest(f"memoryLimit: {value!r} is not an amount of bytes, such as 64Mi: {error}") from None


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequest(f"memoryLimit: {value!r} is not an amount of bytes, such as 64Mi")
    return value


# --- explain --------------------------------------------------------------------------------------------------------


async def _explain(request: Request, server: ApiServer) -> Response:
    query = request.query
    plural = query.get("resource", "")
    resource = server.declared.resources.get(plural)
    if resource is None:
        there = ", ".join(sorted(server.declared.resources))
        raise bad_request(f"resource: {plural!r} is not a stored resource; the resources are {there}")
    await server.lister.wait_fresh()
    limit = parse_int(query["limit"]) if "limit" in query else 0
    if limit < 0:
        raise bad_request(f"limit: {limit} is below 0; 0 is for all")
    text = query.get("where", "")
    selector = parse_field_selector(resource, text, server.declared.of(resource))
    if not selector.indexed:
        raise bad_request(f"where: {text!r} compares no declared field of {plural}; {_what_there_is(server, resource)}")
    order = _ORDERS.get(query.get("order", "KEY"))
    if order is None:
        wrong = query["order"]
        raise bad_request(f"order: {wrong!r} is neither KEY, the first by name, nor ANY, whichever is found")
    prefix = resource.collection_prefix(query.get("namespace", ""))
    asked = RangeRequest(prefix, prefix_end(prefix), limit, where=selector.indexed, order=order)
    explanation = await translated(server.storage.explain(asked))
    return _json(200, _explained(resource, selector, asked, explanation))


def _what_there_is(server: ApiServer, resource: Kind) -> str:
    declared = server.declared.of(resource).field_set
    names = [spec.name for spec in declared.fields] if declared is not None else []
    return f"there are {', '.join(names)}" if names else "none is: minikube-py index create declares some"


def _explained(resource: Kind, selector: FieldSelector, asked: RangeRequest, explanation: Explanation) -> Json:
    declared = selector.declared
    of_others = declared is not None and any(declared.depends_on_others(c.field) for c in selector.where.comparisons)
    return {
        "kind": "Explanation",
        "apiVersion": API_VERSION,
        "resource": resource.plural,
        "where": str(selector.indexed),
        "comparisons": [{"field": c.field, "op": c.op, "values": list(c.values)} for c in selector.indexed.comparisons],
        "limit": asked.limit,
        "order": asked.order,
        "revision": explanation.revision,
        "rows": explanation.rows,
        "share": explanation.share,
        "listsAsk": "store" if of_others or selector.has_index else "watch cache",
        "chosen": _choice(explanation.chosen),
        "others": [_choice(each) for each in explanation.others],
        **({"scannedBelow": explanation.scanned_below} if explanation.scanned_below else {}),
    }


def _choice(choice: Choice) -> Json:
    words = {name: name.split("_") for name in choice._fields}
    return {
        first + "".join(word.capitalize() for word in rest): getattr(choice, name)
        for name, (first, *rest) in words.items()
    }
