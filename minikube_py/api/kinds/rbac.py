"""The group `rbac.authorization.k8s.io`: roles, which hold rules, and bindings, which give a role to subjects.

Source: `pkg/apis/rbac/validation`, `pkg/registry/rbac`.
"""

from __future__ import annotations

from typing import Any, Final

from minikube_py.api.errors import FieldError, Json, invalid_value, not_supported, required
from minikube_py.api.kind import NAMESPACED, Kind
from minikube_py.api.meta import is_dns1123_subdomain, is_path_segment
from minikube_py.api.printing import AGE, NAME, Age, Printer, column
from minikube_py.api.validation.affinity import validate_label_selector
from minikube_py.api.validation.metadata import validate_object_meta, validate_object_meta_update

GROUP: Final = "rbac.authorization.k8s.io"
_ONLY_GROUP: Final = (GROUP,)
_SUBJECTS: Final = ("ServiceAccount", "User", "Group")


# --- roles ------------------------------------------------------------------------------------------------------------


def _validate_rule(rule: Json, namespaced: bool, path: str) -> list[FieldError]:
    errors = [] if rule.get("verbs") else [required(f"{path}.verbs", "verbs must contain at least one value")]
    if urls := rule.get("nonResourceURLs"):
        at = f"{path}.nonResourceURLs"
        if namespaced:
            errors.append(invalid_value(at, urls, "namespaced rules cannot apply to non-resource URLs"))
        if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
            detail = "rules cannot apply to both regular resources and non-resource URLs"
            errors.append(invalid_value(at, urls, detail))
        return errors
    if not rule.get("apiGroups"):
        errors.append(required(f"{path}.apiGroups", "resource rules must supply at least one api group"))
    if not rule.get("resources"):
        errors.append(required(f"{path}.resources", "resource rules must supply at least one resource"))
    return errors


def _validate_aggregation(role: Json) -> list[FieldError]:
    rule = role.get("aggregationRule")
    if rule is None:
        return []
    path = "aggregationRule.clusterRoleSelectors"
    if not rule.get("clusterRoleSelectors"):
        return [required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil")]
    errors: list[FieldError] = []
    for i, selector in enumerate(rule["clusterRoleSelectors"]):
        wrong = validate_label_selector(selector, f"{path}[{i}]")
        errors += wrong
        if wrong:
            # Nothing is left after conversion to a selector.
            errors.append(invalid_value(f"{path}[{i}]", None, "invalid label selector."))
    return errors


def _validate_role(role: Json, namespaced: bool) -> list[FieldError]:
    errors = validate_object_meta(role["metadata"], namespaced, is_path_segment)
    for i, rule in enumerate(role.get("rules") or ()):
        errors += _validate_rule(rule, namespaced, f"rules[{i}]")
    return errors if namespaced else errors + _validate_aggregation(role)


def _role(kind: str, plural: str, namespaced: bool) -> Kind:
    def update(new: Json, old: Json) -> list[FieldError]:
        errors = _validate_role(new, namespaced)
        return errors + validate_object_meta_update(new["metadata"], old["metadata"])

    return Kind(
        GROUP, "v1", kind, plural, kind.lower(), namespaced,
        selectable=NAMESPACED,
        allow_create_on_update=True,
        validate=lambda role: _validate_role(role, namespaced),
        validate_update={"": update},
    )  # fmt: skip


CLUSTERROLES: Final = _role("ClusterRole", "clusterroles", False)
ROLES: Final = _role("Role", "roles", True)


# --- bindings ---------------------------------------------------------------------------------------------------------


def _default_binding(binding: Json) -> None:
    reference = binding.get("roleRef")
    if reference is None:
        reference = binding["roleRef"] = {}
    if not reference.get("apiGroup"):
        reference["apiGroup"] = GROUP
    for name in ("kind", "name"):
        if reference.get(name) is None:
            reference[name] = ""
    for subject in binding.get("subjects") or ():
        if subject.get("kind") in ("User", "Group") and not subject.get("apiGroup"):
            subject["apiGroup"] = GROUP


def _validate_reference(reference: Json, kinds: tuple[str, ...]) -> list[FieldError]:
    group, kind, name = (reference.get(field) or "" for field in ("apiGroup", "kind", "name"))
    errors = [not_supported("roleRef.apiGroup", group, _ONLY_GROUP)] if group != GROUP else []
    if kind not in kinds:
        errors.append(not_supported("roleRef.kind", kind, kinds))
    if not name:
        return [*errors, required("roleRef.name")]
    return errors + [invalid_value("roleRef.name", name, message) for message in is_path_segment(name)]


def _validate_subject(subject: Json, namespaced: bool, path: str) -> list[FieldError]:
    name, kind, group = (subject.get(field) or "" for field in ("name", "kind", "apiGroup"))
    errors = [] if name else [required(f"{path}.name")]
    if kind not in _SUBJECTS:
        return [*errors, not_supported(f"{path}.kind", kind, _SUBJECTS)]
    if kind != "ServiceAccount":
        return errors if group == GROUP else [*errors, not_supported(f"{path}.apiGroup", group, _ONLY_GROUP)]
    if name:
        errors += [invalid_value(f"{path}.name", name, message) for message in is_dns1123_subdomain(name)]
    if group:
        errors.append(not_supported(f"{path}.apiGroup", group, ("",)))
    if not namespaced and not subject.get("namespace"):
        errors.append(required(f"{path}.namespace"))
    return errors


def _print_binding(binding: Json, age: Age) -> list[Any]:
    metadata, reference = binding["metadata"], binding["roleRef"]
    users, groups, accounts = [], [], []
    for subject in binding.get("subjects") or ():
        name = subject.get("name") or ""
        if subject.get("kind") == "ServiceAccount":
            accounts.append(f"{subject.get('namespace') or ''}/{name}")
        elif subject.get("kind") == "User":
            users.append(name)
        elif subject.get("kind") == "Group":
            groups.append(name)
    return [
        metadata["name"],
        f"{reference.get('kind') or ''}/{reference.get('name') or ''}",
        age(metadata.get("creationTimestamp")),
        *map(", ".join, (users, groups, accounts)),
    ]


def _binding(kind: str, plural: str, namespaced: bool) -> Kind:
    kinds = ("Role", "ClusterRole") if namespaced else ("ClusterRole",)

    def validate(binding: Json) -> list[FieldError]:
        errors = validate_object_meta(binding["metadata"], namespaced, is_path_segment)
        errors += _validate_reference(binding["roleRef"], kinds)
        for i, subject in enumerate(binding.get("subjects") or ()):
            errors += _validate_subject(subject, namespaced, f"subjects[{i}]")
        return errors

    def update(new: Json, old: Json) -> list[FieldError]:
        errors = validate(new) + validate_object_meta_update(new["metadata"], old["metadata"])
        if (reference := new["roleRef"]) != old["roleRef"]:
            # As upstream prints its internal type.
            names = {"APIGroup": "apiGroup", "Kind": "kind", "Name": "name"}
            shown = {go: reference.get(name) or "" for go, name in names.items()}
            errors.append(invalid_value("roleRef", shown, "cannot change roleRef"))
        return errors

    return Kind(
        GROUP, "v1", kind, plural, kind.lower(), namespaced,
        selectable=NAMESPACED,
        allow_create_on_update=True,
        default=_default_binding,
        validate=validate,
        validate_update={"": update},
        printer=Printer(
            (
                NAME,
                column("Role", "The role that is given."),
                AGE,
                column("Users", "The users that get it.", 1),
                column("Groups", "The groups that get it.", 1),
                column("ServiceAccounts", "The service accounts that get it.", 1),
            ),
            _print_binding,
        ),
    )  # fmt: skip


CLUSTERROLEBINDINGS: Final = _binding("ClusterRoleBinding", "clusterrolebindings", False)
ROLEBINDINGS: Final = _binding("RoleBinding", "rolebindings", True)

KINDS: Final[tuple[Kind, ...]] = (CLUSTERROLEBINDINGS, CLUSTERROLES, ROLEBINDINGS, ROLES)
