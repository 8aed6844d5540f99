"""Admission: the steps between a decoded write and its txn, in upstream's order.

Some steps are pure and part of the kind (`Kind.admit`, `Kind.validate_admission`), so that worker processes run them
too; some are enforced in the txn (`NamespaceGate`, `Quotas`). Steps that call out, or are configured by objects, are
plugins of `Chain`. A write that no plugin handles skips the chain.

Source: kubernetes `pkg/kubeapiserver/options/plugins.go`, apiserver `pkg/admission`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import orjson

from minikube_py.api.errors import Json, StatusError, bad_request, forbidden
from minikube_py.api.kind import Kind, Subresource
from minikube_py.api.kinds.core import NAMESPACES
from minikube_py.api.meta import generated_anew
from minikube_py.apiserver.auth import ANONYMOUS
from minikube_py.apiserver.messages import Request
from minikube_py.apiserver.options import DeleteOptions
from minikube_py.apiserver.rules import User

if TYPE_CHECKING:
    from minikube_py.apiserver.audit import Audited
    from minikube_py.apiserver.watch_cache import ResourceCache

ORDER: Final = (
    "NamespaceLifecycle", "LimitRanger", "ServiceAccount", "NodeRestriction", "TaintNodesByCondition", "PodSecurity",
    "Priority", "DefaultTolerationSeconds", "DefaultStorageClass", "StorageObjectInUseProtection", "PodGroupProtection",
    "PersistentVolumeClaimResize", "RuntimeClass", "CertificateApproval", "CertificateSigning",
    "CertificateSubjectRestriction", "DefaultIngressClass", "PodTopologyLabels", "NodeDeclaredFeatureValidator",
    "PodResizeValidator", "MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook", "ResourceQuota",
)  # fmt: skip
"""The plugins, in the order of upstream's AllOrderedPlugins."""
SERVICE_ACCOUNT: Final = "ServiceAccount"
TAINT_NODES: Final = "TaintNodesByCondition"
OFF: Final = (SERVICE_ACCOUNT, TAINT_NODES)
"""Off unless enabled."""


class Operation(NamedTuple):
    """The request: `options` as sent, None for CONNECT; `said` is the body's kind (group, version, kind)."""

    kind: Kind
    sub: str
    verb: str
    namespace: str
    name: str
    user: User
    options: Json | None
    dry_run: bool
    said: tuple[str, str, str]


@dataclass(slots=True)
class Attributes:
    """A write at one step. Mutating plugins change `new` in place."""

    of: Operation
    name: str
    old: Json | None
    new: Json | None
    warn: Callable[[str], None]
    reinvoked: bool = False
    audit: Audited | None = None
    changed: bool = False
    """Whether earlier steps must see a change."""
    notes: dict[str, Invoked] = field(default_factory=dict)
    """State that plugins keep between the two passes, by plugin name."""

    def tell(self, key: str, value: str, level: int = 1) -> None:
        """For the audit log, if it shows at least `level`."""
        if self.audit is not None:
            self.audit.admission_note(key, value, level)

    def forbidden(self, why: str) -> StatusError:
        metadata = (self.new or {}).get("metadata") or {}
        return forbidden(self.of.kind, self.name or metadata.get("generateName") or "Unknown", why)


class Invoked:
    """Which webhooks or policies a mutating plugin called, and which to reinvoke. `again`: those that allow
    reinvocation."""

    def __init__(self) -> None:
        self.now: set[object] = set()
        self.again: set[object] = set()
        self._last: bytes | None = None

    @classmethod
    def begin(cls, plugin: str, attributes: Attributes) -> Invoked:
        found: Invoked = attributes.notes.setdefault(plugin, cls())
        if attributes.reinvoked and found._last != in_order(attributes.new):
            found.require()
        return found

    def require(self) -> None:
        """All called ones that allow it are reinvoked."""
        self.again |= self.now
        self.now = set()

    def end(self, attributes: Attributes) -> None:
        self._last = in_order(attributes.new)


def in_order(obj: Json | None) -> bytes:
    return orjson.dumps(obj, option=orjson.OPT_SORT_KEYS)


class Plugin:
    """`only`: the one kind and subresource it handles; None: any."""

    name = ""
    mutates = False
    only: tuple[Kind, str] | None = None
    source: ResourceCache | None = None
    """It is idle while this has no objects."""

    def idle(self, kind: Kind, namespace: str) -> bool:
        """Whether nothing is configured. Called for every write it might handle."""
        return False

    def notes_all(self, kind: Kind) -> bool:
        """Whether the audit log tells of it for each write of this kind."""
        return False

    def has_work(self, operation: Operation) -> bool:
        """Whether it might handle this write."""
        return True

    async def admit(self, attributes: Attributes) -> None:
        """Raises: StatusError."""

    async def validate(self, attributes: Attributes) -> None:
        """Raises: StatusError."""


class Passage:
    """One write passing through the plugins that handle it."""

    def __init__(
        self, operation: Operation, plugins: Sequence[Plugin], warnings: list[str], audit: Audited | None = None
    ) -> None:
        self._of, self._audit = operation, audit
        self._plugins = plugins
        self._mutating = [plugin for plugin in plugins if plugin.mutates]
        self._warnings = warnings
        self._keeps_options = False

    def keep_options(self) -> None:
        """`tell_options` changes nothing."""
        self._keeps_options = True

    def tell_options(self, options: DeleteOptions) -> None:
        """Of a deletion, as the plugins see them from now on."""
        if not self._keeps_options:
            self._of = self._of._replace(options=_delete_options(options))

    @property
    def mutates(self) -> bool:
        return bool(self._mutating)

    async def admit(self, old: Json | None, new: Json | None, again: Callable[[], None] | None = None) -> None:
        """Changes `new` in place. `again`: the reinvocation pass. Raises: StatusError."""
        attributes = self._attributes(old, new)
        namespace = ((new or {}).get("metadata") or {}).get("namespace")
        for plugin in self._mutating:
            await plugin.admit(attributes)
        if attributes.changed:
            attributes.reinvoked = True
            # Retry: the object was read and written again.
            await asyncio.sleep(0)
            if again is not None:
                again()
            for plugin in self._mutating:
                await plugin.admit(attributes)
        if new is not None and namespace and not new["metadata"].get("namespace"):
            # A plugin may leave it out, as senders may.
            new["metadata"]["namespace"] = namespace

    async def admit_new(self, obj: Json, generated: bool, again: Callable[[], None]) -> str:
        """As `admit`, for a create: plugins do not see server-set fields or a generated name yet. Returns its name.
        Raises: StatusError."""
        metadata = obj["metadata"]
        if not self._mutating:
            return metadata.get("name") or ""
        hidden = ("uid", "creationTimestamp", "name") if generated else ("uid", "creationTimestamp")
        given = {name: metadata.pop(name) for name in hidden if name in metadata}
        namespace, base = metadata.get("namespace"), metadata.get("generateName")
        await self.admit(None, obj, again)
        metadata = obj["metadata"]
        if not self._of.kind.namespaced:
            metadata.pop("namespace", None)
        elif metadata.get("namespace") != namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        if "name" in given and metadata.get("generateName", base) != base:
            given["name"] = generated_anew(given["name"], metadata["generateName"])
        named = metadata.get("name") or ""
        obj["metadata"] = {**metadata, **given, **({"name": named} if named else {})}
        return named or given.get("name") or ""

    async def validate(self, old: Json | None, new: Json | None) -> None:
        """Raises: StatusError."""
        if old is None and new is not None and not self._of.sub:
            new = self._of.kind.undefaulted(new)
        for plugin in self._plugins:
            await plugin.validate(self._attributes(old, new))

    def _attributes(self, old: Json | None, new: Json | None) -> Attributes:
        of = self._of
        name = of.name or ((new or {}).get("metadata") or {}).get("name") or ""
        if of.kind is NAMESPACES and not of.namespace:
            of = of._replace(namespace=name)
        return Attributes(of, name, old, new, self._warnings.append, audit=self._audit)

    async def allow(self, old: Json | None, new: Json | None) -> None:
        """Both, for an object that is not stored as is. Raises: StatusError."""
        await self.admit(old, new)
        await self.validate(old, new)


class Chain:
    def __init__(self, plugins: Sequence[Plugin]) -> None:
        ordered = sorted(plugins, key=lambda plugin: ORDER.index(plugin.name))
        self._plugins = [plugin for plugin in ordered if plugin.only is None]
        self._of = {
            only: [plugin for plugin in ordered if plugin.only in (None, only)]
            for only in {plugin.only: None for plugin in ordered}
            if only is not None
        }

    def idle(self, kind: Kind, namespace: str) -> bool:
        """Whether no plugin handles a write of objects of this kind."""
        return False not in [plugin.idle(kind, namespace) for plugin in self._of.get((kind, ""), self._plugins)]

    def enter(
        self,
        request: Request,
        verb: str,
        kind: Kind,
        namespace: str,
        name: str,
        sub: Subresource | None = None,
        options: DeleteOptions | None = None,
    ) -> Passage | None:
        """None: no plugin handles it. `options`: for a deletion."""
        part = sub.name if sub else ""
        asked = self._of.get((kind, part), self._plugins)
        configured = [each for each in asked if (source := each.source) is None or source.entries]
        busy = [each for each in configured if not each.idle(kind, namespace)]
        if request.audit is not None:
            busy = [each for each in asked if each in busy or each.notes_all(kind)]
        if not busy:
            return None
        said = _said(kind, sub)
        if kind is NAMESPACES:
            namespace = name
        told: Json | None = _delete_options(options) if options is not None else _write_options(request, verb)
        if verb == "CONNECT":
            told = None
        user = request.user or ANONYMOUS
        dry_run = bool((told or {}).get("dryRun"))
        operation = Operation(kind, part, verb, namespace, name, user, told, dry_run, said)
        plugins = [plugin for plugin in busy if plugin.has_work(operation)]
        return Passage(operation, plugins, request.warnings, request.audit) if plugins else None


def _said(kind: Kind, sub: Subresource | None) -> tuple[str, str, str]:
    if sub is None:
        return kind.group, kind.version, kind.kind
    of: Kind | Subresource = sub if sub.version else kind
    return of.group, of.version, sub.kind


def _write_options(request: Request, verb: str) -> Json:
    query: Mapping[str, str] = request.query
    updates = verb != "CREATE" and request.method in ("PUT", "PATCH")
    found: Json = {"kind": "UpdateOptions" if updates else "CreateOptions", "apiVersion": "meta.k8s.io/v1"}
    if "dryRun" in query:
        found["dryRun"] = query["dryRun"].split(",")
    for name in ("fieldManager", "fieldValidation"):
        if query.get(name):
            found[name] = query[name]
    return found


def _delete_options(options: DeleteOptions) -> Json:
    found: Json = {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"}
    if options.grace_s is not None:
        found["gracePeriodSeconds"] = options.grace_s
    named = {"uid": options.uid, "resourceVersion": options.revision_text}
    if any(named.values()):
        found["preconditions"] = {name: value for name, value in named.items() if value}
    if options.orphan is not None:
        found["orphanDependents"] = options.orphan
    if options.propagation:
        found["propagationPolicy"] = options.propagation
    if options.dry_run:
        found["dryRun"] = ["All"]
    return found
