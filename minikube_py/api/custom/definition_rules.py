"""Validation of CustomResourceDefinitions.

Upstream's internal form has fields common to all versions at the top, and errors name them there. Source:
apiextensions-apiserver `pkg/apis/apiextensions/validation/validation.go`, `pkg/apis/apiextensions/v1/conversion.go`.
"""

from __future__ import annotations

import base64
import re
from itertools import chain
from typing import Any, Final
from urllib.parse import urlsplit

from cryptography import x509

from minikube_py.api import meta
from minikube_py.api.custom.conversion import REVIEW_VERSIONS
from minikube_py.api.custom.formats import effective_format
from minikube_py.api.custom.kinds import is_true
from minikube_py.api.custom.paths import BadPath, steps_of
from minikube_py.api.custom.schema_rules import schema_errors, selectable_errors
from minikube_py.api.custom.structural import same_json
from minikube_py.api.custom.structural_rules import every, structural_errors, unbuildable
from minikube_py.api.errors import (
    FieldError,
    Json,
    aggregate,
    forbidden_value,
    go_quote,
    invalid_value,
    not_supported,
    required,
)
from minikube_py.api.kinds.admissionregistration import validate_client, validate_reviews

_PER_VERSION: Final = {
    "schema": "validation",
    "subresources": "subresources",
    "additionalPrinterColumns": "additionalPrinterColumns",
    "selectableFields": "selectableFields",
}
"""Per-version fields, and their names when common to all versions."""
_COLUMN_TYPES: Final = "boolean,date,integer,number,string"
_COLUMN_FORMATS: Final = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_PEM: Final = b"-----BEGIN CERTIFICATE-----"
APPROVAL: Final = "api-approved.kubernetes.io"
_APPROVAL_PATH: Final = f"metadata.annotations[{APPROVAL}]"


def validate_definition(definition: Json) -> list[FieldError]:
    spec = definition["spec"]
    names = spec.get("names") or {}
    wanted = f"{names.get('plural') or ''}.{spec.get('group') or ''}"

    def named(name: str) -> list[str]:
        wrong = [] if name == wanted else ['must be spec.names.plural+"."+spec.group']
        return [*meta.is_dns1123_subdomain(name), *wrong]

    errors = meta.validate_object_meta(definition["metadata"], False, named)  # type: ignore[arg-type]
    return errors + _spec_errors(spec) + _status_errors(definition) + _approval_errors(definition, None)


def validate_definition_update(new: Json, old: Json) -> list[FieldError]:
    spec, before = new["spec"], old["spec"]
    errors = meta.validate_object_meta_update(new["metadata"], old["metadata"]) + _spec_errors(spec, old)
    fixed: list[tuple[str, Any, Any]] = []
    if is_true(old, "Established"):
        fixed.append(("scope", spec.get("scope"), before.get("scope")))
        fixed.append(("names.kind", spec["names"].get("kind"), before["names"].get("kind")))
    fixed.append(("group", spec.get("group"), before.get("group")))
    fixed.append(("names.plural", spec["names"].get("plural"), before["names"].get("plural")))
    for name, value, stood in fixed:
        errors += meta.validate_immutable(value or "", stood or "", f"spec.{name}")
    return errors + _status_errors(new) + _approval_errors(new, old)


def validate_definition_status(new: Json, old: Json) -> list[FieldError]:
    errors = meta.validate_object_meta_update(new["metadata"], old["metadata"])
    return errors + _names_errors((new.get("status") or {}).get("acceptedNames") or {}, "status.acceptedNames")


# --- spec -----------------------------------------------------------------------------------------------------------


def common_parts(spec: Json) -> tuple[str, ...]:
    """The `_PER_VERSION` fields equal in all versions."""
    versions: list[Json] = spec.get("versions") or []
    return tuple(
        name for name in _PER_VERSION if all(same_json(v.get(name), versions[0].get(name)) for v in versions)
    )


def _spec_errors(spec: Json, old: Json | None = None) -> list[FieldError]:
    errors = _group_errors(spec.get("group") or "")
    scope = spec.get("scope") or ""
    if scope not in ("Cluster", "Namespaced"):
        allowed = ("Cluster", "Namespaced")
        errors.append(not_supported("spec.scope", scope, allowed) if scope else required("spec.scope"))
    versions: list[Json] = spec.get("versions") or []
    for index, version in enumerate(versions):
        if (version.get("schema") or {}).get("openAPIV3Schema") is None:
            errors.append(required(f"spec.versions[{index}].schema.openAPIV3Schema"))
    common = common_parts(spec) if versions else ()
    for index, version in enumerate(versions):
        errors += _version_errors(version, f"spec.versions[{index}]", common)
    errors += _versions_errors(versions, common)
    names = spec.get("names") or {}
    for name in ("plural", "singular", "kind", "listKind"):
        if not names.get(name):
            errors.append(required(f"spec.names.{name}"))
    errors += _names_errors(names, "spec.names")
    if versions:
        any_status = any((v.get("subresources") or {}).get("status") is not None for v in versions)
        errors += _parts_errors({name: versions[0].get(name) for name in common}, "spec", any_status, _PER_VERSION)
    if spec.get("preserveUnknownFields"):
        why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        errors.append(invalid_value("spec.preserveUnknownFields", True, why))
    return errors + _conversion_errors(spec.get("conversion") or {}, old)


def _group_errors(group: str) -> list[FieldError]:
    if not group:
        return [required("spec.group")]
    if messages := meta.is_dns1123_subdomain(group):
        return [invalid_value("spec.group", group, ",".join(messages))]
    return [] if "." in group else [invalid_value("spec.group", group, "should be a domain with at least one dot")]


def _version_errors(version: Json, path: str, common: tuple[str, ...]) -> list[FieldError]:
    errors = []
    name = version.get("name") or ""
    if messages := meta.is_dns1035_label(name):
        errors.append(invalid_value(f"{path}.name", name, ",".join(messages)))
    warning = version.get("deprecationWarning")
    wrong = _warning_problems(bool(version.get("deprecated")), warning)
    errors += [invalid_value(f"{path}.deprecationWarning", warning, message) for message in wrong]
    own = {part: version.get(part) for part in _PER_VERSION if part not in common}
    has_status = (version.get("subresources") or {}).get("status") is not None
    return errors + _parts_errors(own, path, has_status, dict.fromkeys(_PER_VERSION) | {n: n for n in _PER_VERSION})


def _warning_problems(deprecated: bool, warning: str | None) -> list[str]:
    if warning is None:
        return []
    if not deprecated:
        return ["can only be set for deprecated versions"]
    found = []
    if len(warning.encode()) > 256:
        found.append("must be <= 256 characters long")
    if not warning:
        found.append("must not be an empty string")
    for index, char in enumerate(warning):
        if not char.isprintable():
            where = len(warning[:index].encode())
            found.append(
                f"must only contain printable UTF-8 characters; non-printable character found at index {where}"
            )
            break
    return found


def _parts_errors(parts: Json, path: str, has_status: bool, named: Any) -> list[FieldError]:
    errors: list[FieldError] = []
    schema = (parts.get("schema") or {}).get("openAPIV3Schema")
    if schema is not None:
        errors += schema_errors(schema, f"{path}.{named['schema']}.openAPIV3Schema", has_status)
    errors += _subresource_errors(parts.get("subresources") or {}, f"{path}.{named['subresources']}")
    for index, column in enumerate(parts.get("additionalPrinterColumns") or ()):
        errors += _column_errors(column, f"{path}.additionalPrinterColumns[{index}]")
    if fields := parts.get("selectableFields"):
        errors += selectable_errors(fields, schema or {}, f"{path}.selectableFields")
    return errors


def _versions_errors(versions: list[Json], common: tuple[str, ...]) -> list[FieldError]:
    names = [version.get("name") or "" for version in versions]
    shown = [_internal(version, common) for version in versions]
    errors = []
    if len(set(names)) < len(names):
        errors.append(invalid_value("spec.versions", shown, "must contain unique version names"))
    if sum(bool(version.get("storage")) for version in versions) != 1:
        why = "must have exactly one version marked as storage version"
        errors.append(invalid_value("spec.versions", shown, why))
    if names and names[0] and (messages := meta.is_dns1035_label(names[0])):
        errors.append(invalid_value("spec.version", names[0], ",".join(messages)))
    return errors


def _internal(version: Json, common: tuple[str, ...]) -> Json:
    """As upstream prints its internal type; it has other member names for a per-version schema."""
    own = {part: None if part in common else version.get(part) for part in _PER_VERSION}
    return {
        "Name": version.get("name") or "", "Served": bool(version.get("served")),
        "Storage": bool(version.get("storage")), "Deprecated": bool(version.get("deprecated")),
        "DeprecationWarning": version.get("deprecationWarning"), "Schema": own["schema"],
        "Subresources": own["subresources"], "AdditionalPrinterColumns": own["additionalPrinterColumns"],
        "SelectableFields": own["selectableFields"],
    }  # fmt: skip


def _names_errors(names: Json, path: str) -> list[FieldError]:
    errors = []
    for name in ("plural", "singular", "kind", "listKind"):
        text = names.get(name) or ""
        mixed = name in ("kind", "listKind")
        if text and (messages := meta.is_dns1035_label(text.lower() if mixed else text)):
            why = "may have mixed case, but should otherwise match: " if mixed else ""
            errors.append(invalid_value(f"{path}.{name}", text, why + ",".join(messages)))
    for several in ("shortNames", "categories"):
        for index, text in enumerate(names.get(several) or ()):
            if messages := meta.is_dns1035_label(text):
                errors.append(invalid_value(f"{path}.{several}[{index}]", text, ",".join(messages)))
        if several == "shortNames" and names.get("kind") and names["kind"] == names.get("listKind"):
            why = "kind and listKind may not be the same"
            errors.append(invalid_value(f"{path}.listKind", names["listKind"], why))
    return errors


def _simple_path_errors(text: str, path: str) -> list[FieldError]:
    if not text.startswith("."):
        return [invalid_value(path, text, "must be a simple json path starting with .")]
    return []


def _subresource_errors(subresources: Json, path: str) -> list[FieldError]:
    scale = subresources.get("scale")
    if scale is None:
        return []
    errors: list[FieldError] = []
    for name, part in (("specReplicasPath", "spec"), ("statusReplicasPath", "status")):
        where, text = f"{path}.scale.{name}", scale.get(name) or ""
        if not text:
            errors.append(required(where))
        elif wrong := _simple_path_errors(text, where):
            errors += wrong
        elif not text.startswith(f".{part}."):
            errors.append(invalid_value(where, text, f"should be a json path under .{part}"))
    where, text = f"{path}.scale.labelSelectorPath", scale.get("labelSelectorPath") or ""
    if text:
        wrong = _simple_path_errors(text, where)
        errors += wrong
        if not wrong and not text.startswith((".spec.", ".status.")):
            errors.append(invalid_value(where, text, "should be a json path under either .spec or .status"))
    return errors


def _column_errors(column: Json, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    type_, format_, json_path = (column.get(name) or "" for name in ("type", "format", "jsonPath"))
    if not column.get("name"):
        errors.append(required(f"{path}.name"))
    why = f"must be one of {_COLUMN_TYPES}"
    if not type_:
        errors.append(required(f"{path}.type", why))
    elif type_ not in _COLUMN_TYPES.split(","):
        errors.append(invalid_value(f"{path}.type", type_, why))
    if format_ and format_ not in _COLUMN_FORMATS:
        errors.append(invalid_value(f"{path}.format", format_, f"must be one of {','.join(_COLUMN_FORMATS)}"))
    if not json_path:
        return [*errors, required(f"{path}.JSONPath")]
    wrong = _simple_path_errors(json_path, f"{path}.JSONPath")
    if not wrong:
        try:
            steps_of(json_path)
        except BadPath as error:
            wrong = [invalid_value(f"{path}.JSONPath", json_path, f"is not supported by this server: {error}")]
    return errors + wrong


def _conversion_errors(conversion: Json, old: Json | None) -> list[FieldError]:
    """`old`: the definition that is updated."""
    strategy, path = conversion.get("strategy") or "", "spec.conversion"
    webhook = conversion.get("webhook") or {}
    errors = [] if strategy else [required(f"{path}.strategy")]
    if strategy == "Webhook":
        return _webhook_errors(webhook, old, path)
    if strategy not in ("", "None"):
        errors.append(not_supported(f"{path}.strategy", strategy, ("None", "Webhook")))
    why = "should not be set when strategy is not set to Webhook"
    if webhook.get("clientConfig") is not None:
        errors.append(forbidden_value(f"{path}.webhookClientConfig", why))
    if webhook.get("conversionReviewVersions"):
        errors.append(forbidden_value(f"{path}.conversionReviewVersions", why))
    return errors


def _webhook_errors(webhook: Json, old: Json | None, path: str) -> list[FieldError]:
    client, at, before = webhook.get("clientConfig"), f"{path}.webhookClientConfig", _webhook_of(old)
    if client is None:
        errors = [required(at, "required when strategy is set to Webhook")]
    else:
        errors = validate_client(client, at)
        bundle, stood = client.get("caBundle") or "", (before.get("clientConfig") or {}).get("caBundle") or ""
        lenient = not is_true(old or {}, "Established") or _bundle_errors(stood, at)
        errors += _bundle_errors(bundle, f"{at}.caBundle") if not lenient else []
    versions, stood = webhook.get("conversionReviewVersions") or [], before.get("conversionReviewVersions") or []
    at = f"{path}.conversionReviewVersions"
    if not versions:
        return [*errors, required(at)]
    known = not stood or any(each in REVIEW_VERSIONS for each in stood)
    return errors + validate_reviews(versions, known, at)


def _webhook_of(definition: Json | None) -> Json:
    found: Json = (((definition or {}).get("spec") or {}).get("conversion") or {}).get("webhook") or {}
    return found


def bundle_is_valid(definition: Json) -> bool:
    """Whether the conversion webhook can be called: until then the definition is not established."""
    return not _bundle_errors((_webhook_of(definition).get("clientConfig") or {}).get("caBundle") or "", "")


def _bundle_errors(bundle: str, path: str) -> list[FieldError]:
    """Of certificates in PEM, in base64; none are the system's."""
    if not bundle:
        return []
    given = base64.b64decode(bundle)
    why = "unable to parse bytes as PEM block"
    if given.count(_PEM):
        try:
            x509.load_pem_x509_certificates(given)
            return []
        except ValueError:
            why = "no valid certificate authority data seen"
    return [invalid_value(path, given, f"unable to load root certificates: {why}")]


def structure(definition: Json) -> tuple[str, str, str] | None:
    """Status, reason and message of the condition that schemas are not structural; None: they are. Such a definition
    was stored past the API, or by an earlier release."""
    errors = []
    if definition["spec"].get("preserveUnknownFields"):
        errors.append(invalid_value("spec.preserveUnknownFields", True, "must be false"))
    for index, version in enumerate(definition["spec"].get("versions") or ()):
        if (schema := (version.get("schema") or {}).get("openAPIV3Schema")) is None:
            continue
        if reason := unbuildable(schema):
            why = f"failed to check validation schema for version {version.get('name')}: {reason}"
            return "Unknown", "StructuralError", why
        errors += structural_errors(schema, f"spec.versions[{index}].schema.openAPIV3Schema")
    return ("True", "Violations", aggregate(map(str, errors))) if errors else None


# --- status and approval --------------------------------------------------------------------------------------------


def _status_errors(definition: Json) -> list[FieldError]:
    status, path = definition.get("status") or {}, "status.storedVersions"
    errors = _names_errors(status.get("acceptedNames") or {}, "status.acceptedNames")
    stored: list[str] = status.get("storedVersions") or []
    if not stored:
        return [*errors, invalid_value(path, None, "must have at least one stored version")]
    versions = definition["spec"].get("versions") or ()
    left = set(stored)
    for version in versions:
        if version.get("storage") and version.get("name") not in left:
            errors.append(invalid_value(path, stored, f"must have the storage version {version.get('name')}"))
        left.discard(version.get("name") or "")
    known = {version.get("name") for version in versions}
    for index, name in enumerate(stored):
        if name not in known:
            why = (
                f"missing from spec.versions; {name} was previously a storage version, and must remain in "
                f"spec.versions until a storage migration ensures no data remains persisted in {name} and removes "
                f"{name} from status.storedVersions"
            )
            errors.append(invalid_value(f"{path}[{index}]", name, why))
    return errors


def approval(definition: Json) -> tuple[str, str]:
    """The state and reason of the API approval that community groups need; "" if not needed."""
    group = definition["spec"].get("group") or ""
    if not re.search(r"(?:^|\.)(?:k8s|kubernetes)\.io$", group):
        return "", ""
    text = (definition["metadata"].get("annotations") or {}).get(APPROVAL) or ""
    must, see = (
        f"protected groups must have approval annotation {go_quote(APPROVAL)}",
        "https://github.com/kubernetes/enhancements/pull/1111",
    )
    if not text:
        return "MissingAnnotation", f"{must}, see {see}"
    if text.startswith("unapproved"):
        return "UnapprovedAnnotation", f"not approved: {go_quote(text)}"
    if (parts := urlsplit(text)).netloc and parts.scheme:
        return "ApprovedAnnotation", f"approved in {text}"
    return "InvalidAnnotation", f'{must} with either a URL or a reason starting with "unapproved", see {see}'


def _approval_errors(new: Json, old: Json | None) -> list[FieldError]:
    state, why = approval(new)
    if old is not None and approval(old)[0] == state:
        return []
    if state == "MissingAnnotation":
        return [required(_APPROVAL_PATH, why)]
    if state == "InvalidAnnotation":
        return [invalid_value(_APPROVAL_PATH, new["metadata"]["annotations"][APPROVAL], why)]
    return []


# --- warnings -------------------------------------------------------------------------------------------------------


def unknown_formats(definition: Json) -> list[str]:
    """Formats in its schemas that are not validated."""
    found: list[str] = []
    schemas = [(v.get("schema") or {}).get("openAPIV3Schema") for v in definition["spec"].get("versions") or ()]
    if schemas and "schema" in common_parts(definition["spec"]):
        del schemas[1:]
    for schema in chain.from_iterable(map(every, schemas)):
        type_, format_ = schema.get("type") or "", schema.get("format") or ""
        if format_ and not effective_format(format_, [type_] if type_ else []):
            found.append(format_)
    return found
