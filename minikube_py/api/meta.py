"""Metadata of all objects: names, labels, annotations, owners, timestamps, uids, and their validation.

Rules and wordings are those of apimachinery (`util/validation`, `api/validation/objectmeta.go`). The `is_*` functions
return the complaints about a value, none if it is valid, and cache results, as the same few label keys and image names
recur in pods.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

from minikube_py.api.errors import (
    FieldError,
    Json,
    Verbatim,
    forbidden_value,
    go_json,
    go_quote,
    invalid_value,
    required,
    too_long,
)
from minikube_py.api.memo import remembered
from minikube_py.env import Rng
from minikube_py.fields.digits import whole_number

Messages = tuple[str, ...]
NameRule = Callable[[str], Messages]

ANNOTATIONS_LIMIT_BYTES: Final = 256 * 1024
FIELD_MANAGER_LIMIT: Final = 128
SUBRESOURCE_NAME_LIMIT: Final = 256
_REMEMBERED: Final = 8192



# --- validation of values --------------------------------------------------------------------------------------------

_LABEL_FMT: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN_FMT: Final = _LABEL_FMT + r"(\." + _LABEL_FMT + ")*"
_LABEL_1035_FMT: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
_KEY_FMT: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE_FMT: Final = f"({_KEY_FMT})?"
_CONFIG_KEY_FMT: Final = "[-._a-zA-Z0-9]+"
_ENV_FMT: Final = "[-._a-zA-Z][-._a-zA-Z0-9]*"
_C_IDENTIFIER_FMT: Final = "[A-Za-z_][A-Za-z0-9_]*"
_HEADER_FMT: Final = "[-A-Za-z0-9]+"

_LABEL: Final = re.compile(_LABEL_FMT)
_SUBDOMAIN: Final = re.compile(_SUBDOMAIN_FMT)
_LABEL_1035: Final = re.compile(_LABEL_1035_FMT)
_KEY: Final = re.compile(_KEY_FMT)
_VALUE: Final = re.compile(_VALUE_FMT)
_NAME: Final = r"[A-Za-z0-9][-A-Za-z0-9_.]{0,62}(?<![-_.])"
_DNS: Final = r"[a-z0-9][-a-z0-9]*(?<!-)"
_KEYS: Final = re.compile(rf"(?:(?:{_NAME}|{_DNS}(?:\.{_DNS})*/{_NAME})(?:\n(?!\Z)|\Z))+")
_VALUES: Final = re.compile(rf"(?:(?:{_NAME})?\n)*(?:{_NAME})?")
_CONFIG_KEY: Final = re.compile(_CONFIG_KEY_FMT)
_ENV: Final = re.compile(_ENV_FMT)
_C_IDENTIFIER: Final = re.compile(_C_IDENTIFIER_FMT)
_HEADER: Final = re.compile(_HEADER_FMT)
_PORT_NAME: Final = re.compile("[-a-z0-9]+")

_ALNUM_ENDS: Final = "must start and end with an alphanumeric character"
_LABEL_TEXT: Final = (
    f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and {_ALNUM_ENDS}"
)
_SUBDOMAIN_TEXT: Final = (
    f"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and {_ALNUM_ENDS}"
)
_LABEL_1035_TEXT: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character"
)
_KEY_TEXT: Final = f"must consist of alphanumeric characters, '-', '_' or '.', and {_ALNUM_ENDS}"
_VALUE_TEXT: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    f"and {_ALNUM_ENDS}"
)
_ENV_TEXT: Final = "a valid environment variable name must consist only of printable ASCII characters other than '='"
EMPTY: Final = "must be non-empty"


def regex_message(text: str, pattern: str, *examples: str) -> str:
    if not examples:
        return f"{text} (regex used for validation is '{pattern}')"
    listed = " or ".join(f"'{example}', " for example in examples)
    return f"{text} (e.g. {listed}regex used for validation is '{pattern}')"


def max_length(limit: int) -> str:
    return f"must be no more than {limit} characters"


def max_bytes(limit: int) -> str:
    return f"must be no more than {limit} bytes"


def between(low: int, high: int) -> str:
    return f"must be between {low} and {high}, inclusive"


@remembered(_REMEMBERED)
def is_dns1123_label(value: str) -> Messages:
    messages: Messages = (max_length(63),) if len(value.encode()) > 63 else ()
    if not _LABEL.fullmatch(value):
        if _SUBDOMAIN.fullmatch(value):
            return (*messages, "must not contain dots")
        messages = (*messages, regex_message(_LABEL_TEXT, _LABEL_FMT, "my-name", "123-abc"))
    return messages


@remembered(_REMEMBERED)
def is_dns1123_subdomain(value: str) -> Messages:
    messages: Messages = (max_length(253),) if len(value.encode()) > 253 else ()
    if not _SUBDOMAIN.fullmatch(value):
        messages = (*messages, regex_message(_SUBDOMAIN_TEXT, _SUBDOMAIN_FMT, "example.com"))
    return messages


def is_wildcard_subdomain(value: str) -> Messages:
    """`*.` and a subdomain."""
    messages: Messages = (max_length(253),) if len(value.encode()) > 253 else ()
    if not value.startswith("*.") or not _SUBDOMAIN.fullmatch(value[2:]):
        text = (
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist "
            "of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character"
        )
        messages = (*messages, regex_message(text, r"\*\." + _SUBDOMAIN_FMT, "*.example.com"))
    return messages


@remembered(_REMEMBERED)
def is_dns1035_label(value: str) -> Messages:
    messages: Messages = (max_length(63),) if len(value.encode()) > 63 else ()
    if not _LABEL_1035.fullmatch(value):
        messages = (*messages, regex_message(_LABEL_1035_TEXT, _LABEL_1035_FMT, "my-name", "abc-123"))
    return messages


@remembered(_REMEMBERED)
def is_qualified_name(value: str) -> Messages:
    """The rule for keys of labels and annotations, resource names, finalizers: `name` or `dns.prefix/name`."""
    parts = value.split("/")
    if len(parts) > 2:
        text = regex_message(_KEY_TEXT, _KEY_FMT, "MyName", "my.name", "123-abc")
        return (f"a valid label key {text} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",)
    messages: list[str] = []
    if len(parts) == 2:
        if not parts[0]:
            messages.append(f"prefix part {EMPTY}")
        else:
            # Upstream states the prefix's length in bytes here, and in characters elsewhere.
            messages += [f"prefix part {m.replace('characters', 'bytes') if m == max_length(253) else m}"
                         for m in is_dns1123_subdomain(parts[0])]  # fmt: skip
    name = parts[-1]
    if not name:
        messages.append(f"name part {EMPTY}")
    elif len(name.encode()) > 63:
        messages.append(f"name part {max_bytes(63)}")
    if not _KEY.fullmatch(name):
        messages.append(f"name part {regex_message(_KEY_TEXT, _KEY_FMT, 'MyName', 'my.name', '123-abc')}")
    return tuple(messages)


def are_label_keys(keys: Collection[str]) -> bool:
    """Whether all are valid, and not longer than usual: thousands are looked at in one step of C."""
    return _lines(keys, _KEYS) and len(max(keys, key=len, default="")) <= 253


def are_label_values(values: Collection[str]) -> bool:
    """Whether all are valid."""
    return _lines(values, _VALUES)


def _lines(texts: Collection[str], pattern: re.Pattern[str]) -> bool:
    joined = "\n".join(texts)
    return not texts or (joined.count("\n") == len(texts) - 1 and pattern.fullmatch(joined) is not None)


@remembered(_REMEMBERED)
def is_label_value(value: str) -> Messages:
    messages: Messages = (max_bytes(63),) if len(value.encode()) > 63 else ()
    if not _VALUE.fullmatch(value):
        messages = (*messages, regex_message(_VALUE_TEXT, _VALUE_FMT, "MyValue", "my_value", "12345"))
    return messages


def _no_parent_folder(value: str) -> Messages:
    if value in (".", ".."):
        return (f"must not be '{value}'",)
    return ("must not start with '..'",) if value.startswith("..") else ()


def is_config_key(value: str) -> Messages:
    messages: Messages = (max_length(253),) if len(value.encode()) > 253 else ()
    if not _CONFIG_KEY.fullmatch(value):
        text = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
        messages = (*messages, regex_message(text, _CONFIG_KEY_FMT, "key.name", "KEY_NAME", "key-name"))
    return messages + _no_parent_folder(value)


@remembered(_REMEMBERED)
def is_env_name(value: str) -> Messages:
    if not value:
        return (f"environment variable name {EMPTY}",)
    return () if value.isascii() and value.isprintable() and "=" not in value else (_ENV_TEXT,)


def is_c_identifier(value: str) -> Messages:
    if _C_IDENTIFIER.fullmatch(value):
        return ()
    text = (
        "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric "
        "characters or '_'"
    )
    return (regex_message(text, _C_IDENTIFIER_FMT, "my_name", "MY_NAME", "MyName"),)


def is_header_name(value: str) -> Messages:
    if _HEADER.fullmatch(value):
        return ()
    text = "a valid HTTP header must consist of alphanumeric characters or '-'"
    return (regex_message(text, _HEADER_FMT, "X-Header-Name"),)


@remembered(_REMEMBERED)
def is_port_name(value: str) -> Messages:
    messages: list[str] = []
    if len(value.encode()) > 15:
        messages.append(max_length(15))
    if not _PORT_NAME.fullmatch(value):
        messages.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not any("a" <= char <= "z" for char in value):
        messages.append("must contain at least one letter (a-z)")
    if "--" in value:
        messages.append("must not contain consecutive hyphens")
    if value and (value[0] == "-" or value[-1] == "-"):
        messages.append("must not begin or end with a hyphen")
    return tuple(messages)


def is_port_number(port: int) -> Messages:
    return () if 1 <= port <= 65535 else (between(1, 65535),)


def is_path_segment(value: str) -> Messages:
    if value in (".", ".."):
        return (f"may not be '{value}'",)
    return tuple(f"may not contain '{char}'" for char in "/%" if char in value)


_PERCENT: Final = "[0-9]+%"


def is_percent(value: str) -> Messages:
    if re.fullmatch(_PERCENT, value):
        return ()
    wanted = "a valid percent string must be a numeric string followed by an ending '%'"
    return (regex_message(wanted, _PERCENT, "1%", "93%"),)


def mask_trailing_dash(name: str) -> str:
    """A name to which something is still appended may end in a dash."""
    return name[:-2] + "a" if len(name) > 1 and name.endswith("-") else name


# --- names, uids, times ---------------------------------------------------------------------------------------------

_GENERATED_CHARS: Final = "bcdfghjklmnpqrstvwxz2456789"
_GENERATED_LENGTH: Final = 5
_GENERATED_BASE_LIMIT: Final = 63 - _GENERATED_LENGTH


def generate_name(base: str, rng: Rng) -> str:
    """`base`, cut to 58 characters, and five random ones without vowels."""
    return base[:_GENERATED_BASE_LIMIT] + "".join(rng.choices(_GENERATED_CHARS, k=_GENERATED_LENGTH))


def generated_anew(name: str, base: str) -> str:
    """The name as if generated from another base."""
    return base[:_GENERATED_BASE_LIMIT] + name[-_GENERATED_LENGTH:]


def new_uid(rng: Rng) -> str:
    """A version 4 UUID (RFC 9562)."""
    text = f"{rng.getrandbits(128) & ~(0xF << 76) & ~(0x3 << 62) | (4 << 76) | (2 << 62):032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


EARLIEST_S: Final = 0
LATEST_S: Final = 253_402_300_799
"""The end of the year 9999, the last that RFC 3339 can name: later times are clamped to it, and times before 1970,
which only overflowing sums give, to its beginning."""


@lru_cache(64)
def _rfc3339(second: int) -> str:
    return datetime.fromtimestamp(max(EARLIEST_S, min(second, LATEST_S)), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def timestamp(wall_s: float) -> str:
    """A `Time` as objects hold it: whole seconds, UTC."""
    return _rfc3339(int(wall_s))


def micro_timestamp(wall_s: float) -> str:
    """A `MicroTime` as leases and events hold it."""
    second, rest = divmod(round(wall_s * 1_000_000), 1_000_000)
    return f"{_rfc3339(second)[:-1]}.{rest:06d}Z"


@remembered(4096)
def parse_timestamp(text: str) -> float:
    """Seconds since the epoch of an RFC 3339 text. Raises: ValueError."""
    parsed = datetime.fromisoformat(text)
    if parsed.tzinfo is None:
        raise ValueError(f"no time zone in {text!r}")
    return parsed.timestamp()


# --- quick accessors ------------------------------------------------------------------------------------------------


class Owner(NamedTuple):
    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool
    block_owner_deletion: bool


_VERSION: Final = re.compile("v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?")


def version_rank(name: str) -> tuple[Any, ...]:
    """Sort key for version priority: v2 before v1, before v1beta2, before all other names."""
    match = _VERSION.fullmatch(name)
    if match is None:
        return (1, name)
    level = {None: 0, "beta": 1, "alpha": 2}[match[2]]
    return (0, level, -whole_number(match[1]), -whole_number(match[3] or "0"))


def name_of(obj: Mapping[str, Any]) -> str:
    return str(obj["metadata"].get("name") or "")


def namespace_of(obj: Mapping[str, Any]) -> str:
    return str(obj["metadata"].get("namespace") or "")


def labels_of(obj: Mapping[str, Any]) -> Mapping[str, str]:
    labels: Mapping[str, str] | None = obj["metadata"].get("labels")
    return labels or {}


def annotations_of(obj: Mapping[str, Any]) -> Mapping[str, str]:
    annotations: Mapping[str, str] | None = obj["metadata"].get("annotations")
    return annotations or {}


def owners_of(obj: Mapping[str, Any]) -> list[Owner]:
    return [
        Owner(
            ref.get("apiVersion", ""),
            ref.get("kind", ""),
            ref.get("name", ""),
            ref.get("uid", ""),
            bool(ref.get("controller")),
            bool(ref.get("blockOwnerDeletion")),
        )
        for ref in obj["metadata"].get("ownerReferences") or ()
    ]


def controller_of(obj: Mapping[str, Any]) -> Owner | None:
    """The owner whose `controller` is true, or None."""
    return next((owner for owner in owners_of(obj) if owner.controller), None)


# --- validation of metadata -----------------------------------------------------------------------------------------


def validate_labels(labels: Mapping[str, str], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for key, value in labels.items():
        if messages := is_qualified_name(key):
            errors += [invalid_value(path, key, message) for message in messages]
        if messages := is_label_value(value):
            errors += [invalid_value(path, value, message) for message in messages]
    return errors


def validate_annotations(annotations: Mapping[str, str], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    size_bytes = 0
    for key, value in annotations.items():
        size_bytes += len(key.encode()) + len(value.encode())
        if messages := is_qualified_name(key.lower()):
            errors += [invalid_value(path, key, message) for message in messages]
    if size_bytes > ANNOTATIONS_LIMIT_BYTES:
        errors.append(too_long(path, ANNOTATIONS_LIMIT_BYTES))
    return errors


_OWNER_KEYS: Final = ("apiVersion", "kind", "name", "uid")


def _owner_json(ref: Json) -> Json:
    out = {key: ref.get(key, "") for key in _OWNER_KEYS}
    return out | {key: ref[key] for key in ("controller", "blockOwnerDeletion") if ref.get(key) is not None}


def validate_owner_references(references: Sequence[Json], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    shown: Verbatim | None = None
    first_controller = ""
    for ref in references:
        api_version, kind = ref.get("apiVersion") or "", ref.get("kind") or ""
        group, _, version = api_version.rpartition("/")
        if not version or api_version.count("/") > 1:
            errors.append(invalid_value(f"{path}.apiVersion", api_version, "version must not be empty"))
        for key, value in (("kind", kind), ("name", ref.get("name") or ""), ("uid", ref.get("uid") or "")):
            if not value:
                errors.append(invalid_value(f"{path}.{key}", value, "must not be empty"))
        if (group, version, kind) == ("", "v1", "Event"):
            value = Verbatim(go_json(_owner_json(ref)))
            errors.append(invalid_value(path, value, "/v1, Kind=Event is disallowed from being an owner"))
        if ref.get("controller"):
            current = f"{kind}/{ref.get('name') or ''}"
            if first_controller:
                detail = (
                    'Only one reference can have Controller set to true. Found "true" in references for '
                    f"{first_controller} and {current}"
                )
                shown = shown or Verbatim(go_json([_owner_json(r) for r in references]))
                errors.append(invalid_value(path, shown, detail))
            else:
                first_controller = current
    return errors


def validate_finalizers(finalizers: Sequence[str], path: str) -> list[FieldError]:
    errors = [invalid_value(path, f, message) for f in finalizers for message in is_qualified_name(f)]
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        detail = "finalizer orphan and foregroundDeletion cannot be both set"
        errors.append(invalid_value(path, list(finalizers), detail))
    return errors


def validate_field_manager(manager: str, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if len(manager.encode()) > FIELD_MANAGER_LIMIT:
        errors.append(too_long(path, FIELD_MANAGER_LIMIT))
    if not manager.isprintable():
        position = 0
        for char in manager:
            if not char.isprintable():
                detail = f"invalid character U+{ord(char):04X} (at position {position})"
                errors.append(invalid_value(path, manager, detail))
            position += len(char.encode())
    return errors


def _validate_managed_fields(entries: Sequence[Json], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for i, entry in enumerate(entries):
        at = f"{path}[{i}]"
        operation, fields_type = entry.get("operation", ""), entry.get("fieldsType", "")
        if operation not in ("Apply", "Update"):
            errors.append(invalid_value(f"{at}.operation", operation, "must be `Apply` or `Update`"))
        if fields_type and fields_type != "FieldsV1":
            errors.append(invalid_value(f"{at}.fieldsType", fields_type, "must be `FieldsV1`"))
        errors += validate_field_manager(entry.get("manager", ""), f"{at}.manager")
        if len(entry.get("subresource", "")) > SUBRESOURCE_NAME_LIMIT:
            errors.append(too_long(f"{at}.subresource", SUBRESOURCE_NAME_LIMIT))
    return errors


def validate_object_meta(
    meta: Json, namespaced: bool, name_rule: NameRule, path: str = "metadata"
) -> list[FieldError]:
    """Metadata of an object whose name is already generated."""
    errors: list[FieldError] = []
    get = meta.get
    if prefix := get("generateName"):
        masked = prefix if name_rule is is_path_segment else mask_trailing_dash(prefix)
        errors += [invalid_value(f"{path}.generateName", prefix, message) for message in name_rule(masked)]
    name = get("name")
    if not name:
        errors.append(required(f"{path}.name", "name or generateName is required"))
    elif messages := name_rule(name):
        errors += [invalid_value(f"{path}.name", name, message) for message in messages]
    namespace = get("namespace")
    if namespaced:
        if not namespace:
            errors.append(required(f"{path}.namespace"))
        elif messages := is_dns1123_label(namespace):
            errors += [invalid_value(f"{path}.namespace", namespace, message) for message in messages]
    elif namespace:
        errors.append(forbidden_value(f"{path}.namespace", "not allowed on this type"))
    if (generation := get("generation")) and generation < 0:
        errors.append(invalid_value(f"{path}.generation", generation, "must be greater than or equal to 0"))
    if labels := get("labels"):
        errors += validate_labels(labels, f"{path}.labels")
    if annotations := get("annotations"):
        errors += validate_annotations(annotations, f"{path}.annotations")
    if references := get("ownerReferences"):
        errors += validate_owner_references(references, f"{path}.ownerReferences")
    if finalizers := get("finalizers"):
        errors += validate_finalizers(finalizers, f"{path}.finalizers")
    if managed := get("managedFields"):
        errors += _validate_managed_fields(managed, f"{path}.managedFields")
    return errors


FIELD_IS_IMMUTABLE: Final = "field is immutable"


def validate_immutable(new: Any, old: Any, path: str) -> list[FieldError]:
    """Empty and missing are the same."""
    return [] if (new or None) == (old or None) else [invalid_value(path, new, FIELD_IS_IMMUTABLE)]


def validate_object_meta_update(new: Json, old: Json, path: str = "metadata") -> list[FieldError]:
    errors: list[FieldError] = []
    if old.get("deletionTimestamp"):
        extra = sorted(set(new.get("finalizers") or ()) - set(old.get("finalizers") or ()))
        if extra:
            listed = "[]string{" + ", ".join(map(go_quote, extra)) + "}"
            detail = (
                "no new finalizers can be added if the object is being deleted, "
                f"found new finalizers {listed}"
            )
            errors.append(forbidden_value(f"{path}.finalizers", detail))
    if not new.get("resourceVersion"):
        errors.append(invalid_value(f"{path}.resourceVersion", "", "must be specified for an update"))
    generation = new.get("generation") or 0
    if generation < (old.get("generation") or 0):
        errors.append(invalid_value(f"{path}.generation", generation, "must not be decremented"))
    for key, empty in (("name", ""), ("namespace", ""), ("uid", ""), ("creationTimestamp", None),
                       ("deletionTimestamp", None), ("deletionGracePeriodSeconds", None)):  # fmt: skip
        value = new.get(key)
        if value != old.get(key) and (value or None) != (old.get(key) or None):
            errors.append(invalid_value(f"{path}.{key}", empty if value is None else value, FIELD_IS_IMMUTABLE))
    errors += validate_labels(new.get("labels") or {}, f"{path}.labels")
    errors += validate_annotations(new.get("annotations") or {}, f"{path}.annotations")
    errors += validate_owner_references(new.get("ownerReferences") or (), f"{path}.ownerReferences")
    errors += _validate_managed_fields(new.get("managedFields") or (), f"{path}.managedFields")
    return errors


def first_generation(obj: Json) -> None:
    obj["metadata"]["generation"] = 1


def begins_with(**status: Any) -> Callable[[Json], None]:
    """Prepares a new object: this is its status, whatever was sent, and its generation is the first."""

    def begin(obj: Json) -> None:
        obj["status"] = dict(status)
        first_generation(obj)

    return begin


def next_generation(new: Json, old: Json) -> None:
    new["metadata"]["generation"] = (old["metadata"].get("generation") or 0) + 1
