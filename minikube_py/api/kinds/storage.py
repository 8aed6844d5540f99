"""The group `storage.k8s.io`: storage classes, drivers and attachments.

Source: `pkg/apis/storage/{validation,v1/defaults.go}`, `pkg/registry/storage`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from minikube_py.api.defaults_pod import default_persistent_source, default_resource_list
from minikube_py.api.equality import same_message
from minikube_py.api.errors import (
    FieldError,
    Json,
    duplicate,
    forbidden_value,
    invalid_value,
    not_supported,
    required,
    too_long,
)  # fmt: skip
from minikube_py.api.kind import NAMESPACED, Cluster, Kind, Validate, status_of
from minikube_py.api.meta import (
    is_dns1123_subdomain,
    is_qualified_name,
    parse_timestamp,
    validate_immutable,
)  # fmt: skip
from minikube_py.api.pod_warnings import DEPRECATED_LABELS
from minikube_py.api.printing import AGE, NAME, NONE, Age, Printer, column
from minikube_py.api.rules import at, defaults, named_by, non_negative, non_negative_quantity, one_of, rules
from minikube_py.api.schema import LABEL_SELECTOR, ordered
from minikube_py.api.validation.affinity import validate_label_selector
from minikube_py.api.validation.metadata import keep_metadata, validate_object_meta, validate_object_meta_update
from minikube_py.api.validation.persistent_volumes import validate_volume_spec
from minikube_py.api.validation.pod_diff import internal
from minikube_py.api.validation.taints import validate_label_name

GROUP: Final = "storage.k8s.io"
PARAMETERS_MAX: Final = 512
PARAMETERS_BYTES_MAX: Final = 256 * 1024
DRIVER_NAME_MAX: Final = 63
NODE_ID_MAX: Final = 256
ERROR_BYTES_MAX: Final = 1024
TOKEN_S_MIN: Final = 600
TOKEN_S_MAX: Final = 1 << 32
UPDATE_PERIOD_S_MIN: Final = 10
_IMMUTABLE: Final = "field is immutable"


def _meta(namespaced: bool) -> Validate:
    return lambda obj: validate_object_meta(obj["metadata"], namespaced, is_dns1123_subdomain)


def _meta_update(new: Json, old: Json) -> list[FieldError]:
    return validate_object_meta_update(new["metadata"], old["metadata"])


# --- storage classes ------------------------------------------------------------------------------------------------


def validate_provisioner(name: str | None, path: str) -> list[FieldError]:
    if not name:
        return [required(path)]
    return [invalid_value(path, name.lower(), message) for message in is_qualified_name(name.lower())]


def validate_parameters(parameters: Mapping[str, str] | None, path: str) -> list[FieldError]:
    given = parameters or {}
    if len(given) > PARAMETERS_MAX:
        return [too_long(path, PARAMETERS_MAX)]
    errors = [invalid_value(path, key, "field can not be empty.") for key in given if not key]
    if _size_bytes(given) > PARAMETERS_BYTES_MAX:
        errors.append(too_long(path, PARAMETERS_BYTES_MAX))
    return errors


def _size_bytes(texts: Mapping[str, str]) -> int:
    return sum(len(key.encode()) + len(value.encode()) for key, value in texts.items())


def _validate_topology_term(term: Json, path: str) -> tuple[dict[str, frozenset[str]], list[FieldError]]:
    """The values asked for by label, and what is wrong."""
    asked: dict[str, frozenset[str]] = {}
    errors: list[FieldError] = []
    for i, expression in enumerate(term.get("matchLabelExpressions") or ()):
        where, key = f"{path}.matchLabelExpressions[{i}]", expression.get("key") or ""
        values: Sequence[str] = expression.get("values") or ()
        if not values:
            errors.append(required(f"{where}.values"))
        known: set[str] = set()
        for j, value in enumerate(values):
            if value in known:
                errors.append(duplicate(f"{where}.values[{j}]", value))
            known.add(value)
        errors += validate_label_name(key, f"{where}.key")
        if key in asked:
            errors.append(duplicate(f"{where}.key", key))
        asked[key] = frozenset(known)
    return asked, errors


def _validate_topologies(terms: Sequence[Json] | None, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    # Upstream compares each term with one empty term per term, then with earlier ones.
    earlier: list[dict[str, frozenset[str]]] = [{} for _ in terms or ()]
    for i, term in enumerate(terms or ()):
        asked, wrong = _validate_topology_term(term, f"{path}[{i}]")
        errors += wrong
        errors += [duplicate(f"{path}[{i}].matchLabelExpressions", "")] * earlier.count(asked)
        earlier.append(asked)
    return errors


_validate_class = rules(
    _meta(False),
    at("provisioner", validate_provisioner),
    at("parameters", validate_parameters),
    at("reclaimPolicy", one_of("", "Delete", "Retain")),
    at("volumeBindingMode", one_of("Immediate", "WaitForFirstConsumer")),
    at("allowedTopologies", _validate_topologies),
)


def _validate_class_update(new: Json, old: Json) -> list[FieldError]:
    errors = _validate_class(new) + _meta_update(new, old)
    for name in ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"):
        value = new.get(name)
        shown = dict(sorted(value.items())) if isinstance(value, dict) else value
        errors += validate_immutable(shown, old.get(name), name)
    return errors


def _class_warnings(storage_class: Json, old: Json | None) -> list[str]:
    return [
        f"allowedTopologies[{i}].matchLabelExpressions[{j}].key: {DEPRECATED_LABELS[expression['key']]}"
        for i, term in enumerate(storage_class.get("allowedTopologies") or ())
        for j, expression in enumerate(term.get("matchLabelExpressions") or ())
        if expression.get("key") in DEPRECATED_LABELS
    ]


_DEFAULT_CLASS: Final = (
    "storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class",
)  # fmt: skip


def is_default_class(storage_class: Json) -> bool:
    """The default class."""
    annotations = storage_class["metadata"].get("annotations") or {}
    return any(annotations.get(name) == "true" for name in _DEFAULT_CLASS)


def default_storage_class(cluster: Cluster) -> Json | None:
    """The newest of those that are marked as default; of several, the first by name."""
    found = cluster.defaults(STORAGECLASSES)
    return max(found, key=lambda each: parse_timestamp(each["metadata"]["creationTimestamp"]), default=None)


def _print_class(storage_class: Json, age: Age) -> list[Any]:
    metadata = storage_class["metadata"]
    return [
        metadata["name"] + (" (default)" if is_default_class(storage_class) else ""),
        storage_class.get("provisioner") or "",
        storage_class.get("reclaimPolicy") or "Delete",
        storage_class.get("volumeBindingMode") or "Immediate",
        bool(storage_class.get("allowVolumeExpansion")),
        age(metadata.get("creationTimestamp")),
    ]


STORAGECLASSES: Final = Kind(
    GROUP, "v1", "StorageClass", "storageclasses", "storageclass", False,
    short_names=("sc",),
    delete_answer="object",
    selectable=NAMESPACED,
    is_default=is_default_class,
    default=defaults({"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}),
    validate=_validate_class,
    validate_update={"": _validate_class_update},
    warn=_class_warnings,
    printer=Printer(
        (
            NAME,
            column("Provisioner", "Who makes its volumes."),
            column("ReclaimPolicy", "What happens to a volume when its claim is gone."),
            column("VolumeBindingMode", "When claims are bound to volumes."),
            column("AllowVolumeExpansion", "Whether its volumes may grow."),
            AGE,
        ),
        _print_class,
    ),
)  # fmt: skip

# --- drivers --------------------------------------------------------------------------------------------------------


def _validate_driver_name(name: str | None, path: str) -> list[FieldError]:
    if not name:
        return [required(path)]
    errors = [too_long(path, DRIVER_NAME_MAX)] if len(name) > DRIVER_NAME_MAX else []
    return errors + [invalid_value(path, name, message) for message in is_dns1123_subdomain(name.lower())]


def _validate_update_period(period_s: int | None, path: str) -> list[FieldError]:
    detail = f"must be greater than or equal to {UPDATE_PERIOD_S_MIN} seconds"
    return [invalid_value(path, period_s, detail)] if period_s is not None and period_s < UPDATE_PERIOD_S_MIN else []


def _validate_tokens(tokens: Sequence[Json] | None, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    audiences: set[str] = set()
    for i, token in enumerate(tokens or ()):
        audience, expiration_s = token.get("audience") or "", token.get("expirationSeconds")
        if audience in audiences:
            errors.append(duplicate(f"{path}[{i}].audience", audience))
            continue
        audiences.add(audience)
        where = f"{path}[{i}].expirationSeconds"
        if expiration_s is not None and expiration_s < TOKEN_S_MIN:
            errors.append(invalid_value(where, expiration_s, "may not specify a duration less than 10 minutes"))
        if expiration_s is not None and expiration_s > TOKEN_S_MAX:
            errors.append(invalid_value(where, expiration_s, "may not specify a duration larger than 2^32 seconds"))
    return errors


def _validate_modes(modes: Sequence[str] | None, path: str) -> list[FieldError]:
    allowed = ("Persistent", "Ephemeral")
    return [not_supported(path, mode, allowed) for mode in modes or () if mode not in allowed]


def _validate_token_secrets(driver: Json) -> list[FieldError]:
    spec = driver.get("spec") or {}
    given = spec.get("serviceAccountTokenInSecrets")
    if given is None or spec.get("tokenRequests"):
        return []
    detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified"
    return [invalid_value("spec.serviceAccountTokenInSecrets", given, detail)]


_driver_spec = rules(
    at("spec.fsGroupPolicy", one_of("File", "None", "ReadWriteOnceWithFSType")),
    at("spec.tokenRequests", _validate_tokens),
    at("spec.volumeLifecycleModes", _validate_modes),
    at("spec.nodeAllocatableUpdatePeriodSeconds", _validate_update_period),
    _validate_token_secrets,
)  # fmt: skip


def _default_driver(driver: Json) -> None:
    _DRIVER_DEFAULTS(driver)
    if not driver["spec"].get("volumeLifecycleModes"):
        driver["spec"]["volumeLifecycleModes"] = ["Persistent"]


_DRIVER_DEFAULTS: Final = defaults(
    {
        "spec": {
            "attachRequired": True,
            "podInfoOnMount": False,
            "storageCapacity": False,
            "fsGroupPolicy": "ReadWriteOnceWithFSType",
            "requiresRepublish": False,
            "seLinuxMount": False,
        }
    }
)


def _validate_driver_update(new: Json, old: Json) -> list[FieldError]:
    errors = _meta_update(new, old) + _driver_spec(new)
    for name, path in (("attachRequired", "attachedRequired"), ("volumeLifecycleModes", "volumeLifecycleModes")):
        errors += validate_immutable(new["spec"].get(name), old["spec"].get(name), f"spec.{path}")
    return errors


def _driver_warnings(driver: Json, old: Json | None) -> list[str]:
    spec = driver["spec"]
    if not spec.get("tokenRequests") or spec.get("serviceAccountTokenInSecrets") is not None:
        return []
    if old is not None and spec["tokenRequests"] == old["spec"].get("tokenRequests"):
        return []
    return [
        "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible "
        "logging of tokens in volume attributes"
    ]


def _print_driver(driver: Json, age: Age) -> list[Any]:
    metadata, spec = driver["metadata"], driver.get("spec") or {}
    tokens = spec.get("tokenRequests")
    return [
        metadata["name"],
        spec.get("attachRequired", True),
        bool(spec.get("podInfoOnMount")),
        bool(spec.get("storageCapacity")),
        "<unset>" if tokens is None else ",".join(token.get("audience") or "" for token in tokens),
        bool(spec.get("requiresRepublish")),
        ",".join(spec.get("volumeLifecycleModes") or ()) or NONE,
        age(metadata.get("creationTimestamp")),
    ]


CSIDRIVERS: Final = Kind(
    GROUP, "v1", "CSIDriver", "csidrivers", "csidriver", False,
    delete_answer="object",
    selectable=NAMESPACED,
    generation=True,
    allow_unconditional_update=False,
    default=_default_driver,
    validate=rules(_meta(False), _driver_spec),
    validate_update={"": _validate_driver_update},
    # VolumeLimitScaling is off.
    gated=(("spec", "preventPodSchedulingIfMissing"),),
    warn=_driver_warnings,
    printer=Printer(
        (
            NAME,
            column("AttachRequired", "Whether volumes are attached before they are mounted.", 0, "boolean"),
            column("PodInfoOnMount", "Whether the driver gets the facts of the pod.", 0, "boolean"),
            column("StorageCapacity", "Whether the scheduler looks at CSIStorageCapacity.", 0, "boolean"),
            column("TokenRequests", "Audiences of the tokens that the driver gets."),
            column("RequiresRepublish", "Whether volumes are published again and again.", 0, "boolean"),
            column("Modes", "Which volumes the driver makes."),
            AGE,
        ),
        _print_driver,
    ),
)  # fmt: skip


def _validate_node_id(node_id: str | None, path: str) -> list[FieldError]:
    if not node_id:
        return [required(path)]
    detail = f"must be {NODE_ID_MAX} characters or less"
    return [invalid_value(path, node_id, detail)] if len(node_id.encode()) > NODE_ID_MAX else []


def _validate_node_drivers(drivers: Sequence[Json] | None, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    names: set[str] = set()
    for i, driver in enumerate(drivers or ()):
        where, name = f"{path}[{i}]", driver.get("name") or ""
        errors += _validate_driver_name(name, f"{where}.name")
        errors += _validate_node_id(driver.get("nodeID"), f"{where}.nodeID")
        errors += non_negative((driver.get("allocatable") or {}).get("count"), f"{where}.allocatable.count")
        if name in names:
            errors.append(duplicate(f"{where}.name", name))
        names.add(name)
        keys: set[str] = set()
        for key in driver.get("topologyKeys") or ():
            if not key:
                errors.append(required(where))
            if key in keys:
                errors.append(duplicate(where, key))
            keys.add(key)
            errors += [invalid_value(where, key, message) for message in is_qualified_name(key)]
    return errors


_validate_node = rules(_meta(False), at("spec.drivers", _validate_node_drivers))


def _validate_node_update(new: Json, old: Json) -> list[FieldError]:
    errors = _validate_node(new)
    for before in old["spec"].get("drivers") or ():
        for driver in new["spec"].get("drivers") or ():
            kept = [{key: value for key, value in each.items() if key != "allocatable"} for each in (driver, before)]
            if driver.get("name") == before.get("name") and not same_message("storage/v1.CSINodeDriver", *kept):
                errors.append(invalid_value("spec.drivers", _go_driver(kept[0]), _IMMUTABLE))
    return errors


def _go_driver(driver: Json) -> Json:
    """As upstream prints its internal type."""
    return {
        "Name": driver.get("name") or "",
        "NodeID": driver.get("nodeID") or "",
        "TopologyKeys": driver.get("topologyKeys"),
        "Allocatable": None,
    }


CSINODES: Final = Kind(
    GROUP, "v1", "CSINode", "csinodes", "csinode", False,
    delete_answer="object",
    selectable=NAMESPACED,
    allow_unconditional_update=False,
    validate=_validate_node,
    validate_update={"": _validate_node_update},
    printer=Printer(
        (NAME, column("Drivers", "Number of drivers on the node.", 0, "integer"), AGE),
        lambda node, age: [
            node["metadata"]["name"],
            len((node.get("spec") or {}).get("drivers") or ()),
            age(node["metadata"].get("creationTimestamp")),
        ],
    ),
)  # fmt: skip

# --- capacities -----------------------------------------------------------------------------------------------------


_validate_capacity = rules(
    _meta(True),
    at("nodeTopology", validate_label_selector),
    at("storageClassName", named_by(is_dns1123_subdomain)),
    at("capacity", non_negative_quantity),
)


def _topology(capacity: Json) -> tuple[Json, list[Json]] | None:
    """An empty selector differs from none."""
    selector = capacity.get("nodeTopology")
    return None if selector is None else (selector.get("matchLabels") or {}, selector.get("matchExpressions") or [])


def _validate_capacity_update(new: Json, old: Json) -> list[FieldError]:
    errors = _validate_capacity(new) + _meta_update(new, old)
    if _topology(new) != _topology(old):
        errors.append(invalid_value("nodeTopology", ordered(new.get("nodeTopology"), LABEL_SELECTOR), _IMMUTABLE))
    if new.get("storageClassName") != old.get("storageClassName"):
        errors.append(invalid_value("storageClassName", new.get("storageClassName") or "", _IMMUTABLE))
    return errors


def _capacity_warnings(capacity: Json, old: Json | None) -> list[str]:
    selector, path, known = capacity.get("nodeTopology") or {}, "nodeTopology", DEPRECATED_LABELS
    found = [
        f"{path}.matchExpressions[{i}].key: {each['key']} is {known[each['key']]}"
        for i, each in enumerate(selector.get("matchExpressions") or ())
        if each.get("key") in known
    ]
    labels = [key for key in selector.get("matchLabels") or () if key in known]
    return found + [f"{path}.matchLabels.{key}: {known[key]}" for key in labels]


CSISTORAGECAPACITIES: Final = Kind(
    GROUP, "v1", "CSIStorageCapacity", "csistoragecapacities", "csistoragecapacity", True,
    selectable=NAMESPACED,
    allow_unconditional_update=False,
    default=defaults({"storageClassName": ""}),
    validate=_validate_capacity,
    validate_update={"": _validate_capacity_update},
    warn=_capacity_warnings,
)  # fmt: skip

# --- attachments ----------------------------------------------------------------------------------------------------


def _validate_source(attachment: Json) -> list[FieldError]:
    source, path = (attachment.get("spec") or {}).get("source") or {}, "spec.source"
    inline, name = source.get("inlineVolumeSpec"), source.get("persistentVolumeName")
    choose = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
    if inline is None and name is None:
        return [required(path, choose)]
    if inline is not None and name is not None:
        return [forbidden_value(path, choose)]
    if inline is not None:
        return validate_volume_spec(inline, "", f"{path}.inlineVolumeSpec", inline=True)
    return [] if name else [required(f"{path}.persistentVolumeName", "must specify non empty persistentVolumeName")]


def _validate_metadata(metadata: Mapping[str, str] | None, path: str) -> list[FieldError]:
    return [too_long(path, PARAMETERS_BYTES_MAX)] if _size_bytes(metadata or {}) > PARAMETERS_BYTES_MAX else []


def _validate_error(error: Json | None, path: str) -> list[FieldError]:
    given = error or {}
    errors: list[FieldError] = []
    if len((given.get("message") or "").encode()) > ERROR_BYTES_MAX:
        errors.append(too_long(f"{path}.message", PARAMETERS_BYTES_MAX))
    if (code := given.get("errorCode")) is not None and code < 0:
        errors.append(invalid_value(f"{path}.errorCode", code, "must be between 0 and 2147483647, inclusive"))
    return errors


def _validate_volume_name(name: str | None, path: str) -> list[FieldError]:
    return [] if name is None else list(named_by(is_dns1123_subdomain)(name, path))


_validate_attachment = rules(
    _meta(False),
    at("spec.attacher", _validate_driver_name),
    _validate_source,
    at("spec.nodeName", named_by(is_dns1123_subdomain)),
    at("status.attachmentMetadata", _validate_metadata),
    at("status.attachError", _validate_error),
    at("status.detachError", _validate_error),
    at("spec.source.persistentVolumeName", _validate_volume_name),
)


def _validate_attachment_update(new: Json, old: Json) -> list[FieldError]:
    errors, spec = _validate_attachment(new), new["spec"]
    if spec != old["spec"]:
        source = spec["source"]
        inline, name = source.get("inlineVolumeSpec"), source.get("persistentVolumeName")
        # As upstream prints its internal type.
        volume = None if inline is None else internal(inline, "PersistentVolumeSpec")
        shown = {
            "Attacher": spec["attacher"],
            "Source": {"PersistentVolumeName": name, "InlineVolumeSpec": volume},
            "NodeName": spec["nodeName"],
        }
        errors.append(invalid_value("spec", shown, _IMMUTABLE))
    return errors


def _clear_status(attachment: Json) -> None:
    attachment["status"] = {"attached": False}


def _print_attachment(attachment: Json, age: Age) -> list[Any]:
    metadata, spec = attachment["metadata"], attachment.get("spec") or {}
    return [
        metadata["name"],
        spec.get("attacher") or "",
        (spec.get("source") or {}).get("persistentVolumeName") or "",
        spec.get("nodeName") or "",
        bool((attachment.get("status") or {}).get("attached")),
        age(metadata.get("creationTimestamp")),
    ]


def _default_attachment(attachment: Json) -> None:
    _ATTACHMENT_DEFAULTS(attachment)
    inline = attachment["spec"]["source"].get("inlineVolumeSpec")
    if inline is not None:
        if inline.get("capacity"):
            default_resource_list(inline["capacity"])
        default_persistent_source(inline)


_ATTACHMENT_DEFAULTS: Final = defaults(
    {"spec": {"attacher": "", "source": {}, "nodeName": ""}, "status": {"attached": False}}
)


VOLUMEATTACHMENTS: Final = Kind(
    GROUP, "v1", "VolumeAttachment", "volumeattachments", "volumeattachment", False,
    subresources=(status_of("VolumeAttachment"),),
    also_reset={"status": (("metadata",),)},
    delete_answer="object",
    selectable=NAMESPACED,
    allow_unconditional_update=False,
    default=_default_attachment,
    prepare_create=_clear_status,
    prepare_status=keep_metadata,
    validate=_validate_attachment,
    validate_update={"": _validate_attachment_update, "status": _validate_attachment_update},
    printer=Printer(
        (
            NAME,
            column("Attacher", "The driver that attaches the volume.")._replace(format="name"),
            column("PV", "The volume."),
            column("Node", "The node it is attached to."),
            column("Attached", "Whether it is attached.", 0, "boolean"),
            AGE,
        ),
        _print_attachment,
    ),
)  # fmt: skip

KINDS: Final[tuple[Kind, ...]] = (CSIDRIVERS, CSINODES, CSISTORAGECAPACITIES, STORAGECLASSES, VOLUMEATTACHMENTS)
