"""`Kind`: everything about one kind at one version, as a value.

Generic code reads its facts and calls its hooks; it never branches on the kind. Facts are those of upstream's discovery
documents and of its `pkg/registry` strategies. The kinds are in `api.kinds`, one file for each group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from minikube_py.api.apply.assigned import Assigned
from minikube_py.api.errors import FieldError, Json
from minikube_py.api.feature_gates import NO_GATES, FeatureGates
from minikube_py.api.printing import DEFAULT_PRINTER, Printer
from minikube_py.fields.spec import FieldSet

if TYPE_CHECKING:
    from minikube_py.api.custom.conversion import ConversionWebhook

DeleteAnswer = Literal["object", "status"]
ALL_VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
STATUS_VERBS: Final = ("get", "patch", "update")

PARTS: Final = ("status", "approval", "finalize", "ephemeralcontainers", "resize")
"""Subresources that write parts of the object."""

Change = Callable[[Json], None]
"""Changes a new object in place."""
Carry = Callable[[Json, Json], None]
"""Changes the new object (first) in place, depending on the old one."""


NoteSender = Callable[[Json, str, str, Sequence[str], Sequence[tuple[str, Sequence[str]]]], None]


class Cluster(Protocol):
    """Objects for admission, slightly stale, as in upstream's informers. `gates`: those turned on."""

    gates: FeatureGates
    passes_on: bool
    """Whether requests are passed on to the servers of APIServices."""

    def get(self, kind: Kind, namespace: str, name: str) -> Json | None: ...

    def all(self, kind: Kind, namespace: str = "") -> Iterable[Json]:
        """In the order of their names; of one namespace if given."""
        ...

    def defaults(self, kind: Kind) -> Iterable[Json]:
        """Those of `all` that `kind.is_default` marks as defaults."""
        ...

    def topology_of(self, node: str) -> Mapping[str, str]:
        """The labels of a node, those of topology among them; empty if it is not known."""
        ...

    def wall_s(self) -> float:
        """The time of the write, by the server's clock."""
        ...


class EmptyCluster:
    """An empty cluster."""

    gates = NO_GATES
    passes_on = False

    def get(self, kind: Kind, namespace: str, name: str) -> Json | None:
        return None

    def all(self, kind: Kind, namespace: str = "") -> Iterable[Json]:
        return ()

    def defaults(self, kind: Kind) -> Iterable[Json]:
        return ()

    def topology_of(self, node: str) -> Mapping[str, str]:
        return {}

    def wall_s(self) -> float:
        return 0.0


Admit = Callable[[Json, Json | None, Cluster], None]
"""Changes the new object (first) in place, or refuses it, by the old one (None: a create) and by other objects.

Raises: StatusError 403."""
Validate = Callable[[Json], list[FieldError]]
ValidateUpdate = Callable[[Json, Json], list[FieldError]]
Warn = Callable[[Json, Json | None], list[str]]


def nothing(obj: Json) -> None:
    """A hook that changes nothing."""


def carries_nothing(new: Json, old: Json) -> None:
    """An update hook that keeps nothing beyond the common rules."""


def admits_all(new: Json, old: Json | None, cluster: Cluster) -> None:
    """The hook of a kind without admission plugins."""


def stamps_nothing(new: Json, old: Json, now: str) -> None:
    """The hook of a kind without server times in its status."""


def deletes_as_it_is(obj: Json, now: str) -> None:
    """The hook of a kind that records nothing on deletion."""


def as_it_is(obj: Json) -> Json:
    return obj


def never_default(obj: Json) -> bool:
    return False


def says_nothing(obj: Json) -> list[str]:
    return []


def warns_of_nothing(new: Json, old: Json | None) -> list[str]:
    return []


class Codec(Protocol):
    """Decodes bodies of a kind without a message in `api.schema`."""

    def decode(self, body: bytes, content_type: str | None, field_validation: str) -> tuple[Json, list[str]]:
        """As `api.decode.decode`."""
        ...

    def value(self, document: Any, strict: bool) -> tuple[Json, list[str]]:
        """The object after a patch, and the strict errors. `document` may be changed. Raises: DecodeError."""
        ...


@dataclass(frozen=True, slots=True)
class Subresource:
    """`group` and `version` are set only where the kind is another group's (`pods/eviction`: policy/v1). `connects`: it
    leads to a container, and `kind` names the options in its query. `tabled`: it can be a Table, as where upstream's
    storage is a TableConvertor."""

    name: str
    kind: str
    verbs: tuple[str, ...]
    group: str = ""
    version: str = ""
    connects: bool = False
    tabled: bool = True


@dataclass(frozen=True, slots=True)
class Selectable:
    """A field label: the text at `path`, `default` where that is missing or empty. Booleans and numbers are printed.

    `otherwise` is a second path to try. A number in a path is an index into a list."""

    path: tuple[str | int, ...]
    default: str = ""
    otherwise: tuple[str | int, ...] = ()
    loose: bool = False
    """Whether objects may have other types on the path, such as ones stored under another schema."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """Converts a served version to the `stored` one, in place, with defaults applied. The kind's `read` converts
    back."""

    stored: Kind
    to_stored: Change


@dataclass(frozen=True, slots=True)
class Form:
    """The objects of one version, for the owners of their fields: the message they are read as, and the changes to and
    from the stored version, in place and without defaults."""

    message: str
    to_stored: Change = nothing
    from_stored: Change = nothing


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Paths of the `scale` subresource. `selector(obj)` gives the selector of its pods as text."""

    selector: Callable[[Json], str]
    spec_replicas: tuple[str, ...] = ("spec", "replicas")
    status_replicas: tuple[str, ...] = ("status", "replicas")
    may_lack_replicas: bool = True


@dataclass(frozen=True, eq=False)
class Kind:
    """One kind at one version. `plural` names it in paths, `kind` in objects.

    Facts. `stored` is false for kinds that are only answered (reviews, bindings). `delete_answer` says what a DELETE
    that is done at once answers with; pending grace or finalizers always answer the object. `generation` says whether
    `metadata.generation` is kept. `deprecation` is the warning that every request for the kind is answered with.
    `field_set`: the fields that selectors may compare beyond equality (`free.cpu>=4`). `ttl_s`: objects expire so long
    after their last write; 0: never. `orphans_by_default`: a DELETE that does not say otherwise leaves dependents, and
    is answered with `orphaning_warning`.
    `sees`: the kinds (group, version, plural) that its admission looks at, all of them; the server keeps these decoded.
    `is_default`: whether an object of this kind is meant by others that name none.

    Hooks, in the order of a write: `default` (also applied to what is read from bodies), `admit` (mutating admission),
    `prepare_create` or `prepare_update` or, through `status`, `prepare_status` (what senders may not set, and what the
    server does), `admit_status` and `stamp_status` (which gets the time of the write, too), `validate` or
    `validate_update` (by subresource, "" the main path), `canonicalize` (when the name is known),
    `validate_admission`, `warn`.
    `storage_version`: the one that discovery says it is stored as, where not its own; None: it says none.
    `converts`: it is stored as another version, whose hooks from `prepare_*` on are those that count.
    `codec`: how its bodies are read, where not as a message of `api.schema`. `read`: what is made of the bytes of the
    store whenever they are read; None: nothing. `write`: what is stored of an encoded object, where `read` is not
    enough to undo another version's part; None: all. `definition`: what the kind can be built of again, elsewhere.
    `checks_metadata`: `validate` has looked at all metadata. `deletion_grace_s(obj, asked_s)` gives the seconds
    between the request for deletion and the end; None: objects end at once. `prepare_delete(obj, now)` writes into an
    object what its deletion begins with.
    """

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[Subresource, ...] = ()
    selectable: Mapping[str, Selectable] = field(default_factory=dict)
    field_aliases: Mapping[str, str] = field(default_factory=dict)
    field_set: FieldSet | None = None
    stored: bool = True
    delete_answer: DeleteAnswer = "status"
    generation: bool = False
    allow_create_on_update: bool = False
    names_itself: bool = False
    """Objects without a name get one."""
    allow_unconditional_update: bool = True
    deprecation: str = ""
    ttl_s: int = 0
    renews: str = ""
    """The field of `spec`, a MicroTime, usually the only change of an update; no hook reads it."""
    beats: str = ""
    """The field of all conditions, a Time, usually the only change of a patch of the status; no hook reads it."""
    orphans_by_default: bool = False
    orphaning_warning: str = ""
    has_dependents: bool = True
    """Whether a deletion may set a propagation policy."""
    scale: ScalePaths | None = None
    scales: Mapping[str, ScalePaths | None] = field(default_factory=dict)
    """The same of all its versions, by apiVersion, where there are several."""
    sees: tuple[tuple[str, str, str], ...] = ()
    is_default: Callable[[Json], bool] = never_default
    default: Change = nothing
    admit: Admit = admits_all
    admit_here: tuple[bytes, Admit] | None = None
    """The part of `admit` that looks at what worker processes do not know; applied to what they made, where its JSON
    has these bytes."""
    validate_admission: Admit = admits_all
    admit_status: Admit = admits_all
    admit_part: Mapping[str, tuple[Admit, Admit]] = field(default_factory=dict)
    """By subresource, as `admit` and `validate_admission`."""
    prepare_create: Change = nothing
    prepare_update: Carry = carries_nothing
    prepare_status: Carry = carries_nothing
    prepare_approval: Carry = carries_nothing
    prepare_part: Mapping[str, Carry] = field(default_factory=dict)
    """By subresource, for those that are neither status, approval nor finalize."""
    stamp_status: Callable[[Json, Json, str], None] = stamps_nothing
    validate: Validate | None = None
    checks_metadata: bool = True
    validate_update: Mapping[str, ValidateUpdate] = field(default_factory=dict)
    canonicalize: Change = nothing
    undefaulted: Callable[[Json], Json] = as_it_is
    """What validating admission sees of a new object: without what it gets when it is read back from the store."""
    warn: Warn = warns_of_nothing
    warn_given: Callable[[Json], list[str]] = says_nothing
    """Validates a new object as sent."""
    warn_status: Warn = warns_of_nothing
    """For writes of `status`."""
    deletion_grace_s: Callable[[Json, int | None], int] | None = None
    note_sender: NoteSender | None = None
    """Records the sender in a new object: name, uid, groups and extra."""
    prepare_delete: Callable[[Json, str], None] = deletes_as_it_is
    gated: tuple[tuple[str, ...], ...] = ()
    """The fields with disabled gates (`api.gates`)."""
    assigned: Assigned = ()
    """Fields that the server sets after ownership is computed, so they have no owner."""
    also_reset: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    """By subresource, further fields that its writes do not change or own."""
    printer: Printer = DEFAULT_PRINTER
    list_name: str = ""
    """The kind of its lists, if it is not its own plus `List`."""
    names_items: bool = False
    """The items of its lists have kind and apiVersion, and discovery names its kind in full, as upstream does for kinds
    that are no Go types."""
    storage_version: str | None = ""
    converts: Conversion | None = None
    conversion_webhook: ConversionWebhook | None = None
    """The conversion webhook, and the stored version."""
    codec: Codec | None = None
    read: Callable[[bytes], bytes] | None = None
    write: Callable[[bytes], bytes] | None = None
    definition: bytes = b""
    structure: Json | None = None
    """The OpenAPI schema of a kind without a message in `api.schema`."""
    structures: Mapping[str, Json] = field(default_factory=dict)
    """The same of all its versions, by apiVersion."""
    forms: Mapping[str, Form] = field(default_factory=dict)
    """Of a kind with messages: all its versions, by apiVersion, where there are several."""

    @cached_property
    def list_kind(self) -> str:
        return self.list_name or f"{self.kind}List"

    @cached_property
    def api_version(self) -> str:
        """As in objects: `v1`, `coordination.k8s.io/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def stored_as(self) -> str | None:
        stored = self.converts.stored if self.converts is not None else self
        return stored.api_version if self.storage_version == "" else self.storage_version

    @cached_property
    def prefix(self) -> bytes:
        """Where its objects are stored: `/registry/pods/`."""
        if self.converts is not None:
            return self.converts.stored.prefix
        middle = f"{self.group}/{self.plural}" if self.group else self.plural
        return f"/registry/{middle}/".encode()

    def key(self, namespace: str, name: str) -> bytes:
        """The store's key of one object; `namespace` is ignored for cluster-scoped kinds."""
        return self.prefix + (f"{namespace}/{name}" if self.namespaced else name).encode()

    def collection_prefix(self, namespace: str = "") -> bytes:
        """The store's prefix of all objects, or of those of one namespace."""
        return self.prefix + f"{namespace}/".encode() if namespace and self.namespaced else self.prefix

    @cached_property
    def _subresources(self) -> Mapping[str, Subresource]:
        return {sub.name: sub for sub in self.subresources}

    def subresource(self, name: str) -> Subresource | None:
        return self._subresources.get(name)

    def resets(self, subresource: str) -> tuple[tuple[str, ...], ...]:
        """The paths that a write of the subresource ("": the object) does not change."""
        halves = {"": "status" if self.has_status else "", "status": "spec", "approval": "spec", "finalize": "status"}
        half = halves.get(subresource, "")
        return (*(((half,),) if half else ()), *self.also_reset.get(subresource, ()))

    @cached_property
    def has_status(self) -> bool:
        return "status" in self._subresources

    def __repr__(self) -> str:
        return f"<Kind {self.plural} {self.api_version}>"


NAMED: Final = {"metadata.name": Selectable(("metadata", "name"))}
NAMESPACED: Final = {**NAMED, "metadata.namespace": Selectable(("metadata", "namespace"))}
"""The name alone, and with it the namespace, which cluster-scoped kinds without labels of their own have, too."""


def status_of(kind: str, tabled: bool = True) -> Subresource:
    return Subresource("status", kind, STATUS_VERBS, tabled=tabled)


def connection(name: str, kind: str) -> Subresource:
    return Subresource(name, kind, ("create", "get"), connects=True)


def proxy_of(kind: str) -> Subresource:
    verbs = ("create", "delete", "get", "patch", "update")
    return Subresource("proxy", f"{kind}ProxyOptions", verbs, connects=True)


def review(
    group: str, kind: str, default: Change = nothing, validate: Validate | None = None, namespaced: bool = False
) -> Kind:
    """A review: answered in the object itself, not stored."""
    plural = f"{kind.lower()}s"
    return Kind(
        group, "v1", kind, plural, kind.lower(), namespaced,
        verbs=("create",), stored=False, default=default, validate=validate,
    )  # fmt: skip
