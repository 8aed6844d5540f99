"""Content negotiation and the bytes of objects in responses: plain JSON, Table, PartialObjectMetadata, YAML.

Objects are spliced from the store's bytes (docs/architecture.md, "In what form an object travels"), never parsed for
plain JSON. Source: apiserver `pkg/endpoints/handlers/negotiation`, KEP-2334 and the Table KEP.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final, Literal, NamedTuple

import orjson

from minikube_py.api import go_json, yaml_text
from minikube_py.api.document import PROTOBUF
from minikube_py.api.errors import StatusError, bad_request, invalid_value, no_representation, not_acceptable
from minikube_py.api.kind import Kind, Subresource
from minikube_py.api.memo import remembered
from minikube_py.api.tables import TablePrinter, table_head
from minikube_py.apiserver.messages import Request, Response
from minikube_py.apiserver.object_store import OPENING
from minikube_py.apiserver.watch_cache import Entry
from minikube_py.client.transport import JSON
from minikube_py.fields.booleans import BOOLEANS

YAML: Final = "application/yaml"
SERVED: Final = (JSON, YAML)

META_GROUP: Final = "meta.k8s.io"

DECODED_BYTES_MAX: Final = 16 << 10
"""For an object of which only metadata is requested."""
_METADATA: Final = OPENING - 1
_DECODER: Final = json.JSONDecoder()

FormKind = Literal["object", "table", "partial"]


class Form(NamedTuple):
    """`version` is that of meta.k8s.io for tables and partial objects. `single`: PartialObjectMetadata, not its
    list."""

    kind: FormKind = "object"
    version: str = "v1"
    single: bool = False
    media_type: str = JSON
    include_object: str = "Metadata"


PLAIN: Final = Form()
_TRANSFORMS: Final = frozenset(("as", "g", "v"))


class _Accepted(NamedTuple):
    media_type: str
    params: Mapping[str, str]


def split_accept(accept: str) -> list[_Accepted]:
    """Media ranges, most preferred first."""
    found: list[tuple[float, int, _Accepted]] = []
    for position, part in enumerate(accept.split(",")):
        media_type, *rest = (piece.strip() for piece in part.split(";"))
        params = {name.strip(): value.strip() for name, _, value in (piece.partition("=") for piece in rest)}
        try:
            quality = float(params.pop("q", "1"))
        except ValueError:
            quality = 0.0
        # As upstream's parser, which keeps what has the quality 0.
        found.append((-quality, position, _Accepted(media_type.lower(), params)))
    return [accepted for _, _, accepted in sorted(found)]


def _form_of(accepted: _Accepted) -> Form | None:
    media_type, params = accepted
    if media_type in ("*/*", "application/*"):
        media_type = JSON
    stream = params.get("stream", "")
    if media_type not in SERVED or (stream and (stream != "watch" or media_type == YAML)):
        # YAML has no form for streams.
        return None
    kind, group, version = params.get("as", ""), params.get("g", ""), params.get("v", "")
    if not _TRANSFORMS & params.keys():
        return Form(media_type=media_type)
    if group != META_GROUP or version not in ("v1", "v1beta1"):
        return None
    if kind == "Table":
        return Form("table", version, media_type=media_type)
    if kind in ("PartialObjectMetadata", "PartialObjectMetadataList"):
        return Form("partial", version, kind == "PartialObjectMetadata", media_type)
    return None


@remembered(512)
def negotiate(accept: str) -> Form:
    """The first form of an Accept header that is served. Raises: StatusError 406."""
    if accept in (JSON, "*/*", ""):
        return PLAIN
    return _first(accept, True, True)


def negotiate_of(accept: str, kind: Kind, sub: Subresource | None = None) -> Form:
    """As `negotiate`, of what may have no Table: subresources without one, and kinds that are only created. Custom
    resources are not behind go-restful. Raises: StatusError 406."""
    tabled = sub.tabled if sub is not None else "get" in kind.verbs
    return negotiate(accept) if tabled and not kind.definition else _first(accept, tabled, not kind.definition)


def _first(accept: str, tabled: bool, restful: bool) -> Form:
    if not accept:
        return PLAIN
    accepted = split_accept(accept)
    if restful and not any(media_type in (*SERVED, PROTOBUF, "*/*") for media_type, _ in accepted):
        # As go-restful, which does not support `application/*`.
        raise no_representation((*SERVED, f"{JSON};stream=watch"))
    for candidate in accepted:
        form = _form_of(candidate)
        if form is not None and (tabled or form.kind != "table"):
            return form
    raise not_acceptable(SERVED)


def with_options(form: Form, query: Mapping[str, str]) -> Form:
    """Adds the query's `includeObject`, for `check_options`."""
    if form.kind == "table" and (wanted := query.get("includeObject")):
        form = form._replace(include_object=wanted)
    return form


def check_options(form: Form) -> None:
    """Call once there is a result, as upstream does. Raises: StatusError 400."""
    if form.include_object not in ("None", "Metadata", "Object"):
        wrong = invalid_value("includeObject", form.include_object, "must be 'Metadata', 'Object', 'None', or empty")
        raise bad_request(f"Unable to convert to Table as requested: {wrong}")


_GO_RESTFUL: Final = re.compile(rb'"(406: Not Acceptable|415: Unsupported)')
_PEOPLES: Final = ("curl", "Wget", "Mozilla/5.0")


def is_pretty(query: Mapping[str, str], user_agent: str) -> bool:
    """Whether to indent JSON: by the query; else for curl-like tools and browsers.

    Source: apiserver `pkg/endpoints/handlers/negotiation/negotiate.go` (isPrettyPrint)."""
    if wanted := query.get("pretty"):
        return BOOLEANS.get(wanted, False)
    return user_agent.startswith(_PEOPLES)


def finished(response: Response, request: Request, kind: Kind | None) -> Response:
    """With the warnings of the request and of the `kind` that was found, and laid out for its connection, if any."""
    # go-restful answers 406 before a handler could warn.
    if kind is not None and kind.deprecation and not _GO_RESTFUL.search(response.body[:200]):
        response = response.warning(kind.deprecation)
    if request.warnings:
        response = response.warned(request.warnings)
    return response if request.pretty is None else presented(response, request.accept, request.pretty)


def framed(response: Response, request: Request) -> Response:
    """A watch or a log, over a WebSocket if the request asks for one."""
    if request.head is None or "upgrade" not in request.head.headers:
        return response
    from minikube_py.apiserver import sockets

    return sockets.over(response, request.head)


def presented(response: Response, accept: str, pretty: bool) -> Response:
    """The response for a connection: JSON with a newline or indented, errors in YAML if accepted."""
    if response.pieces is not None and pretty:
        response.pieces = _pretty_pieces(response.pieces)
    if response.content_type != JSON or response.exact or not response.body:
        return response
    if response.status >= 400 and accept not in (JSON, "*/*", "") and (form := refusal_form(accept)) != JSON:
        if form == YAML:
            response.content_type, response.body = YAML, yaml_text.write(orjson.loads(response.body))
        else:
            response.body = go_json.indented(response.body)
    elif pretty:
        response.body = go_json.indented(response.body)
    elif not response.body.endswith(b"\n"):
        response.body += b"\n"
    return response


def _pretty_pieces(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """A list in parts (`lists`), each indented separately. It has items, or it would not be in parts."""
    yield go_json.indented(next(pieces) + b"]}").removesuffix(b"]\n}")
    opening = b"\n"
    for piece in pieces:
        if piece.startswith(b"]"):
            break
        laid_out = go_json.indented(b"[%b]" % piece.removeprefix(b","), 2)
        # Without the brackets of the part and their lines.
        yield opening + laid_out[2:-4]
        opening = b",\n"
    yield b"\n  ]\n}"


@remembered(512)
def refusal_form(accept: str) -> str:
    """The media type of an error; "" if no accepted one fits: it is then indented JSON.

    Source: apiserver `pkg/endpoints/handlers/responsewriters/writers.go` (WriteObjectNegotiated)."""
    for candidate in split_accept(accept):
        if not _TRANSFORMS & candidate.params.keys() and (form := _form_of(candidate)) is not None:
            return form.media_type
    return ""


# --- one object -----------------------------------------------------------------------------------------------------


@lru_cache(256)
def _opening(resource: Kind) -> bytes:
    return f'{{"kind":"{resource.kind}","apiVersion":"{resource.api_version}","metadata":{{'.encode()


def object_bytes(resource: Kind, value: bytes, revision: int) -> bytes:
    """The object as clients see it. Omits revision 0 (dryRun)."""
    if not revision:
        return _opening(resource) + value[OPENING:]
    return b'%b"resourceVersion":"%d",%b' % (_opening(resource), revision, value[OPENING:])


def items_bytes(entries: Iterable[Entry]) -> list[bytes]:
    """Objects as items of a list: without kind and apiVersion."""
    return [b'{"metadata":{"resourceVersion":"%d",%b' % (each.revision, each.value[OPENING:]) for each in entries]


def partial_bytes(value: bytes, revision: int, version: str) -> bytes:
    """Its metadata alone."""
    if len(value) > DECODED_BYTES_MAX:
        # Decoding finds their end; the bytes are sent as they are.
        text = value.decode()
        metadata = text[_METADATA : _DECODER.raw_decode(text, _METADATA)[1]].encode()
    else:
        metadata = go_json.dumps(orjson.loads(value)["metadata"])
    known = b'"resourceVersion":"%d",' % revision if revision else b""
    head = b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/%b","metadata":{' % version.encode()
    return head + known + metadata[1:] + b"}"


def with_meta_version(head: bytes, form: Form) -> bytes:
    """A table's or list's head, or a row, for clients that still ask for v1beta1."""
    if form.version == "v1":
        return head
    return head.replace(b'"apiVersion":"meta.k8s.io/v1"', b'"apiVersion":"meta.k8s.io/v1beta1"', 1)


def single_bytes(
    resource: Kind, value: bytes, revision: int, form: Form, now_s: float, fields: FieldValues | None = None
) -> bytes:
    """One object in any form, as JSON; a Table has one row. Raises: StatusError 406 if a list form is requested."""
    if form is PLAIN or form == PLAIN:
        return object_bytes(resource, value, revision)
    if form.kind == "table":
        check_options(form)
        names = fields.names if fields else ()
        # Also omits revision 0.
        version = str(revision) if revision else ""
        head = table_head(resource, {"resourceVersion": version} if version else {}, names)
        printer = TablePrinter(resource, now_s, form.include_object, names)
        row = go_json.escaped(printer.row_bytes(value, version, fields.values[0] if fields else None))
        return with_meta_version(head, form) + with_meta_version(row, form) + b"]}"
    if form.kind == "partial":
        if not form.single:
            wanted = "you requested PartialObjectMetadataList, but the requested object is not a list"
            message = f"{wanted} (*{go_package(resource)}.{resource.kind})"
            raise StatusError(406, "NotAcceptable", message)
        return partial_bytes(value, revision, form.version)
    return object_bytes(resource, value, revision)


def check_list(resource: Kind, form: Form) -> None:
    """Raises: StatusError 406 if the form is for single objects."""
    if form.single:
        wanted = "you requested PartialObjectMetadata, but the requested object is a list"
        raise StatusError(406, "NotAcceptable", f"{wanted} (*{go_package(resource)}.{resource.list_kind})")


def go_package(resource: Kind) -> str:
    """The package of upstream's internal type."""
    return resource.group.partition(".")[0] or "core"


class FieldValues(NamedTuple):
    """Declared fields for a Table: `values[i]` are those of the i-th object, by name, as text."""

    names: tuple[str, ...]
    values: list[dict[str, str]]
