"""The group `admissionregistration.k8s.io`: webhooks and policies of admission.

Source: `pkg/apis/admissionregistration/{v1,validation}`, `pkg/registry/admissionregistration`, apiserver
`pkg/util/webhook/validation.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from minikube_py.api.admission_expressions import validate_conditions
from minikube_py.api.defaulting import part
from minikube_py.api.errors import FieldError, Json, duplicate, go_quote, invalid_value, not_supported, required
from minikube_py.api.kind import NAMESPACED, Kind, status_of
from minikube_py.api.meta import (
    first_generation,
    is_dns1035_label,
    is_dns1123_subdomain,
    is_port_number,
    next_generation,
)
from minikube_py.api.printing import AGE, NAME, Age, Column, Printer, column
from minikube_py.api.validation.admission_policies import (
    MATCHES,
    POLICIES,
    validate_binding,
    validate_mutating_policy,
    validate_policy,
    validate_policy_status,
)
from minikube_py.api.validation.affinity import validate_label_selector
from minikube_py.api.validation.metadata import keep_metadata, validate_object_meta
from minikube_py.cel.urls import BadURL, GoURL, go_url

GROUP: Final = "admissionregistration.k8s.io"
_HARMLESS: Final = ("None", "NoneOnDryRun")
_EFFECTS: Final = (*_HARMLESS, "Some", "Unknown")
_REVIEWS: Final = ("v1", "v1beta1")
OPERATIONS: Final = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_SCOPES: Final = ("*", "Cluster", "Namespaced")
_STATIC: Final = ".static.k8s.io"
_FORM: Final = "; desired format: https://host[/path]"


# --- rules, which policies have too -----------------------------------------------------------------------------------


def default_rules(rules: Sequence[Json]) -> None:
    for rule in rules:
        if rule.get("scope") is None:
            rule["scope"] = "*"


def validate_rule(rule: Json, path: str, operations: Sequence[str] = OPERATIONS) -> list[FieldError]:
    given = rule.get("operations") or []
    errors = [] if given else [required(f"{path}.operations")]
    errors += _alone(given, f"{path}.operations", "operations")
    for i, operation in enumerate(given):
        if operation not in operations:
            errors.append(not_supported(f"{path}.operations[{i}]", operation, operations))
    groups, versions = rule.get("apiGroups") or [], rule.get("apiVersions") or []
    if not groups:
        errors.append(required(f"{path}.apiGroups"))
    errors += _alone(groups, f"{path}.apiGroups", "API groups")
    if not versions:
        errors.append(required(f"{path}.apiVersions"))
    errors += _alone(versions, f"{path}.apiVersions", "API versions")
    errors += [required(f"{path}.apiVersions[{i}]") for i, version in enumerate(versions) if not version]
    errors += _validate_resources(rule.get("resources") or [], f"{path}.resources")
    scope = rule.get("scope")
    return errors + ([not_supported(f"{path}.scope", scope, _SCOPES)] if scope not in (None, *_SCOPES) else [])


def _alone(items: Sequence[str], path: str, what: str) -> list[FieldError]:
    if len(items) > 1 and "*" in items:
        return [invalid_value(path, items, f"if '*' is present, must not specify other {what}")]
    return []


def _validate_resources(resources: Sequence[str], path: str) -> list[FieldError]:
    errors = [] if resources else [required(path)]
    all_below, all_above = set(), set()
    # As upstream has it: the last one without a subresource decides.
    plain = False
    for i, each in enumerate(resources):
        if not each:
            errors.append(required(f"{path}[{i}]"))
            continue
        resource, slash, sub = each.partition("/")
        if not slash:
            plain = each != "*"
            continue
        if resource in all_below:
            errors.append(invalid_value(f"{path}[{i}]", each, f"if '{resource}/*' is present, must not specify {each}"))
        if sub in all_above:
            errors.append(invalid_value(f"{path}[{i}]", each, f"if '*/{sub}' is present, must not specify {each}"))
        if sub == "*":
            all_below.add(resource)
        if resource == "*":
            all_above.add(sub)
    if len(resources) > 1 and "*/*" in resources:
        errors.append(invalid_value(path, resources, "if '*/*' is present, must not specify other resources"))
    if "*" in resources and plain:
        detail = "if '*' is present, must not specify other resources without subresources"
        errors.append(invalid_value(path, resources, detail))
    return errors


# --- webhooks ---------------------------------------------------------------------------------------------------------


def _default(mutating: bool) -> Callable[[Json], None]:
    known = {"failurePolicy": "Fail", "matchPolicy": "Equivalent", "timeoutSeconds": 10}
    if mutating:
        known["reinvocationPolicy"] = "Never"

    def default(configuration: Json) -> None:
        for hook in configuration.get("webhooks") or ():
            for name, value in known.items():
                if hook.get(name) is None:
                    hook[name] = value
            for name in ("namespaceSelector", "objectSelector"):
                part(hook, name)
            default_rules(hook.get("rules") or ())
            service = part(hook, "clientConfig").get("service")
            if service is not None and service.get("port") is None:
                service["port"] = 443

    return default


def _validate_url(text: str, path: str) -> list[FieldError]:
    try:
        url: GoURL = go_url(text)
    except BadURL as error:
        return [required(path, f"url must be a valid URL: parse {go_quote(text)}: {error}{_FORM}")]
    errors = []
    if url.scheme != "https":
        errors.append(invalid_value(path, url.scheme, f"'https' is the only allowed URL scheme{_FORM}"))
    if not url.host:
        errors.append(invalid_value(path, url.host, f"host must be specified{_FORM}"))
    if url.user is not None:
        errors.append(invalid_value(path, url.user, "user information is not permitted in the URL"))
    if url.fragment:
        errors.append(invalid_value(path, url.fragment, "fragments are not permitted in the URL"))
    if url.query:
        errors.append(invalid_value(path, url.query, "query parameters are not permitted in the URL"))
    return errors


def _validate_service(service: Json, path: str) -> list[FieldError]:
    # Upstream confuses the two.
    told = {"namespace": "name", "name": "namespace"}
    errors = [required(f"{path}.{field}") for name, field in told.items() if not service.get(name)]
    port = service.get("port") or 0
    if messages := is_port_number(port):
        errors.append(invalid_value(f"{path}.port", port, f"port is not valid: {', '.join(messages)}"))
    below = service.get("path")
    if below in (None, "", "/"):
        return errors
    at = f"{path}.path"
    if below == "//":
        return [*errors, invalid_value(at, below, "segment[0] may not be empty")]
    if not below.startswith("/"):
        errors.append(invalid_value(at, below, "must start with a '/'"))
    for i, step in enumerate(below[1:].removesuffix("/").split("/")):
        if not step:
            errors.append(invalid_value(at, below, f"segment[{i}] may not be empty"))
            continue
        errors += [invalid_value(at, below, f"segment[{i}]: {message}") for message in is_dns1123_subdomain(step)]
    return errors


def validate_client(client: Json, path: str) -> list[FieldError]:
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        return [required(path, "exactly one of url or service is required")]
    return _validate_url(url, f"{path}.url") if url is not None else _validate_service(service or {}, f"{path}.service")


def _validate_name(name: str, path: str) -> list[FieldError]:
    if not name:
        return [required(path)]
    if messages := is_dns1123_subdomain(name):
        return [invalid_value(path, name, ",".join(messages))]
    if name.count(".") < 2:
        return [invalid_value(path, name, "should be a domain with at least three segments separated by dots")]
    return []


def _validate_versions(versions: Sequence[str], known: bool, path: str) -> list[FieldError]:
    if not versions:
        return [required(path, f"must specify one of {', '.join(_REVIEWS)}")]
    return validate_reviews(versions, known, path)


def validate_reviews(versions: Sequence[str], known: bool, path: str) -> list[FieldError]:
    """`known`: one of them must be known here."""
    errors: list[FieldError] = []
    for i, version in enumerate(versions):
        if version in versions[:i]:
            errors.append(invalid_value(f"{path}[{i}]", version, "duplicate version"))
        else:
            errors += [invalid_value(f"{path}[{i}]", version, message) for message in is_dns1035_label(version)]
    if known and not set(versions) & set(_REVIEWS):
        errors.append(invalid_value(path, versions, f"must include at least one of {', '.join(_REVIEWS)}"))
    return errors


def _chosen(hook: Json, name: str, allowed: Sequence[str], path: str) -> list[FieldError]:
    value = hook.get(name)
    return [not_supported(f"{path}.{name}", value, allowed)] if value not in (None, *allowed) else []


def _selector_errors(hook: Json, path: str, any_value: bool) -> list[FieldError]:
    errors = []
    for name in ("namespaceSelector", "objectSelector"):
        found = validate_label_selector(hook.get(name), f"{path}.{name}")
        errors += [each for each in found if not (any_value and ".values[" in each.field)]
    return errors


def _validate_hook(hook: Json, mutating: bool, kept: _Kept, path: str) -> list[FieldError]:
    errors = _validate_name(hook.get("name") or "", f"{path}.name")
    for i, rule in enumerate(hook.get("rules") or ()):
        errors += validate_rule(rule, f"{path}.rules[{i}]")
    errors += _chosen(hook, "failurePolicy", POLICIES, path) + _chosen(hook, "matchPolicy", MATCHES, path)
    effects = _EFFECTS if kept.effects else _HARMLESS
    if hook.get("sideEffects") is None:
        errors.append(required(f"{path}.sideEffects", f"must specify one of {', '.join(effects)}"))
    errors += _chosen(hook, "sideEffects", effects, path)
    timeout_s = hook.get("timeoutSeconds")
    if timeout_s is not None and not 1 <= timeout_s <= 30:
        detail = "the timeout value must be between 1 and 30 seconds"
        errors.append(invalid_value(f"{path}.timeoutSeconds", timeout_s, detail))
    errors += _selector_errors(hook, path, kept.values)
    if mutating:
        errors += _chosen(hook, "reinvocationPolicy", ("IfNeeded", "Never"), path)
    errors += validate_client(hook.get("clientConfig") or {}, f"{path}.clientConfig")
    if not kept.conditions:
        errors += validate_conditions(hook.get("matchConditions") or (), f"{path}.matchConditions")
    versions = hook.get("admissionReviewVersions") or []
    return errors + _validate_versions(versions, not kept.versions, f"{path}.admissionReviewVersions")


class _Kept:
    """What an update may keep because the old object has it: unknown side effects, unknown versions, names used twice,
    unchanged conditions, invalid label values in selectors."""

    def __init__(self, new: Json | None = None, old: Json | None = None) -> None:
        hooks = (old or {}).get("webhooks") or []
        names = [hook.get("name") for hook in hooks]
        given = [hook.get("admissionReviewVersions") or [] for hook in hooks]
        self.effects = any(hook.get("sideEffects") not in _HARMLESS for hook in hooks)
        self.versions = any(versions and not set(versions) & set(_REVIEWS) for versions in given)
        self.names = len(set(names)) < len(names)
        self.conditions = old is not None and _conditions(new or {}) == _conditions(old)
        self.values = any(_selector_errors(hook, "", False) for hook in hooks)


def _conditions(configuration: Json) -> list[Any]:
    return [hook.get("matchConditions") for hook in configuration.get("webhooks") or ()]


def _validate(configuration: Json, mutating: bool, kept: _Kept) -> list[FieldError]:
    errors = validate_object_meta(configuration["metadata"], False, is_dns1123_subdomain)
    names = set()
    for i, hook in enumerate(configuration.get("webhooks") or ()):
        errors += _validate_hook(hook, mutating, kept, f"webhooks[{i}]")
        name = hook.get("name") or ""
        if not kept.names and name and name in names:
            errors.append(duplicate(f"webhooks[{i}].name", name))
        names.add(name)
    return errors


def _update(new: Json, old: Json) -> None:
    if new.get("webhooks") != old.get("webhooks"):
        next_generation(new, old)


def static_warnings(new: Json, old: Json | None) -> list[str]:
    if not (new["metadata"].get("name") or "").endswith(_STATIC):
        return []
    reserved = "are reserved for static manifest-based configurations and cannot be managed via the API"
    return [f'metadata.name: names ending with "{_STATIC}" {reserved}']


def _print(configuration: Json, age: Age) -> list[Any]:
    metadata = configuration["metadata"]
    return [metadata["name"], len(configuration.get("webhooks") or ()), age(metadata.get("creationTimestamp"))]


def _configuration(kind: str, mutating: bool) -> Kind:
    return Kind(
        GROUP, "v1", kind, f"{kind.lower()}s", kind.lower(), False,
        categories=("api-extensions",),
        selectable=NAMESPACED,
        allow_unconditional_update=False,
        default=_default(mutating),
        prepare_create=first_generation,
        prepare_update=_update,
        validate=lambda new: _validate(new, mutating, _Kept()),
        validate_update={"": lambda new, old: _validate(new, mutating, _Kept(new, old))},
        warn=static_warnings,
        printer=Printer((NAME, column("Webhooks", "How many it holds.", 0, "integer"), AGE), _print),
    )  # fmt: skip


MUTATING: Final = _configuration("MutatingWebhookConfiguration", True)
VALIDATING: Final = _configuration("ValidatingWebhookConfiguration", False)


# --- policies ---------------------------------------------------------------------------------------------------------


def _default_policy(policy: Json) -> None:
    spec = part(policy, "spec")
    if spec.get("failurePolicy") is None:
        spec["failurePolicy"] = "Fail"
    _default_resources(spec.get("matchConstraints"))


def _default_validating(policy: Json) -> None:
    _default_policy(policy)
    part(policy, "status")


def _default_binding(binding: Json) -> None:
    _default_resources(part(binding, "spec").get("matchResources"))


def _default_resources(resources: Json | None) -> None:
    if resources is None:
        return
    if resources.get("matchPolicy") is None:
        resources["matchPolicy"] = "Equivalent"
    for name in ("namespaceSelector", "objectSelector"):
        part(resources, name)
    for name in ("resourceRules", "excludeResourceRules"):
        default_rules(resources.get(name) or ())


def _create_policy(policy: Json) -> None:
    policy["status"] = {}
    first_generation(policy)


def _print_policy(policy: Json, age: Age) -> list[Any]:
    metadata, spec = policy["metadata"], policy.get("spec") or {}
    kind, rules = spec.get("paramKind"), spec.get("validations") or spec.get("mutations") or ()
    shown = f"{kind.get('apiVersion') or ''}/{kind.get('kind') or ''}" if kind else "<unset>"
    return [metadata["name"], len(rules), shown, age(metadata.get("creationTimestamp"))]


def _print_binding(binding: Json, age: Age) -> list[Any]:
    metadata, spec = binding["metadata"], binding.get("spec") or {}
    ref, shown = spec.get("paramRef") or {}, "<unset>"
    if ref.get("name"):
        shown = f"{ref.get('namespace') or '*'}/{ref['name']}"
    elif ref.get("selector") is not None:
        shown = _go_selector(ref["selector"])
    return [metadata["name"], spec.get("policyName") or "", shown, age(metadata.get("creationTimestamp"))]


def _go_selector(selector: Json) -> str:
    labels = "".join(f"{key}: {value}," for key, value in sorted((selector.get("matchLabels") or {}).items()))
    wanted = "".join(
        f"LabelSelectorRequirement{{Key:{each.get('key') or ''},Operator:{each.get('operator') or ''},"
        f"Values:[{' '.join(each.get('values') or ())}],}},"
        for each in selector.get("matchExpressions") or ()
    )
    expressions = f"[]LabelSelectorRequirement{{{wanted}}}"
    return f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:{expressions},}}"


_Validate = Callable[..., list[FieldError]]


def _kind(
    name: str, plural: str, columns: tuple[Column, Column], print_: Callable[[Json, Age], list[Any]],
    validate: _Validate, **more: Any,
) -> Kind:  # fmt: skip
    return Kind(
        GROUP, "v1", name, plural, name.lower(), False,
        categories=("api-extensions",),
        selectable=NAMESPACED,
        allow_unconditional_update=False,
        generation=True,
        validate=lambda new: validate(new, None),
        validate_update={"": validate, **more.pop("validate_update", {})},
        warn=static_warnings,
        printer=Printer((NAME, *columns, AGE), print_),
        **more,
    )  # fmt: skip


def _policy_kind(name: str, rules: str, validate: _Validate, **more: Any) -> Kind:
    of_params = column("ParamKind", "Of which kind its parameters are.")
    columns = column(rules, "How many rules it has.", 0, "integer"), of_params
    plural = f"{name.lower().removesuffix('y')}ies"
    return _kind(name, plural, columns, _print_policy, lambda new, old: validate(new, old, validate_rule), **more)


def _binding_kind(name: str, actions: bool, **more: Any) -> Kind:
    columns = (
        column("PolicyName", "The policy that it puts to use."),
        column("ParamRef", "What the policy gets as its parameters."),
    )
    return _kind(
        name, f"{name.lower()}s", columns, _print_binding,
        lambda new, old: validate_binding(new, actions, validate_rule),
        default=_default_binding, prepare_create=first_generation, **more,
    )  # fmt: skip


POLICY: Final = _policy_kind(
    "ValidatingAdmissionPolicy", "Validations", validate_policy,
    subresources=(status_of("ValidatingAdmissionPolicy"),),
    also_reset={"status": (("metadata",),)}, prepare_status=keep_metadata,
    default=_default_validating, prepare_create=_create_policy, validate_update={"status": validate_policy_status},
)  # fmt: skip
BINDING: Final = _binding_kind("ValidatingAdmissionPolicyBinding", True)
MUTATING_POLICY: Final = _policy_kind(
    "MutatingAdmissionPolicy", "Mutations", validate_mutating_policy,
    default=_default_policy, prepare_create=first_generation, storage_version=f"{GROUP}/v1beta1",
)  # fmt: skip
MUTATING_BINDING: Final = _binding_kind(
    "MutatingAdmissionPolicyBinding", False, storage_version=f"{GROUP}/v1beta1"
)
POLICY_KINDS: Final = (POLICY, BINDING, MUTATING_POLICY, MUTATING_BINDING)
"""Kinds exempt from webhooks and policies."""
ADMISSION_KINDS: Final = (MUTATING, VALIDATING, *POLICY_KINDS)
"""Kinds exempt from webhooks."""

KINDS: Final[tuple[Kind, ...]] = ADMISSION_KINDS
