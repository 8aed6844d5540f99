"""Bugs planted in what guards and shares objects: server-side apply, pruning, quotas, rights, webhooks, policies, CEL.

The judges know none of them: structured-merge-diff's own tests and laws of apply, upstream's own tables for rights and
expressions, and upstream's answers to cases that are put to a live one, too (`tests/conformance/record_*`).
"""

# ruff: noqa: E501 - lines of the product, as they stand
from __future__ import annotations

from mutants import Mutant

_ANSWERS = "unit/apiserver/test_apiserver_admission_answers.py::test_answers_are_those_that_upstream_gave"
_CUSTOM = "unit/apiserver/test_apiserver_custom_resources.py::test_answers_are_those_that_upstream_gave"
MERGES = "unit/api/test_apply_merge.py"
APPLIES = f"{_ANSWERS}[applies]"
RESOURCES = f"{_CUSTOM}[resources]"
QUOTAS = f"{_ANSWERS}[quotas]"
RIGHTS = f"{_ANSWERS}[rights]"
WEBHOOKS = f"{_ANSWERS}[webhooks]"
POLICIES = f"{_ANSWERS}[policies]"
MUTATIONS = f"{_ANSWERS}[mutations]"
EVALUATIONS = "unit/cel/test_cel_evaluation.py::test_expressions_evaluate_as_upstream"
VALUES = f"{_CUSTOM}[values]"
_RULES = "unit/apiserver/test_apiserver_rbac.py"
RULES = f"{_RULES}::test_compiled_rules_decide_as_each_by_itself"
_LAWS = "property/test_apply_laws.py"
WRITES = f"{_LAWS}::test_a_plain_write_owns_what_it_changed_and_nobody_owns_what_is_gone"
WRITERS = f"{_LAWS}::test_of_many_plain_writers_the_latest_keep_their_names"

MUTANTS: tuple[Mutant, ...] = (
    # --- ownership --------------------------------------------------------------------------------------------------
    Mutant(
        "apply: who is overruled by force keeps the field", MERGES, "api/apply/updater.py",
        "Owned((owned.fields - lost) - theirs.removed, owned.version, owned.applied)",
        "Owned(owned.fields - theirs.removed, owned.version, owned.applied)",
        "a conflict is reported or overruled, and its owner is left as it was",
    ),
    Mutant(
        "apply: two who set a field that nobody had do not quarrel", MERGES, "api/apply/updater.py",
        "            lost = owned.fields & (theirs.modified | theirs.added)",
        "            lost = owned.fields & theirs.added",
        "one of the ways in which a field can change is forgotten",
    ),
    Mutant(
        "apply: what is no longer applied goes, though others own it", MERGES, "api/apply/updater.py",
        "        pruned = self._with_owned(whole, pruned, last.version, managers)\n",
        "",
        "only the one who removes is thought of",
    ),
    Mutant(
        "apply: a plain write that removes a field still owns it", WRITES, "api/apply/updater.py",
        "(before - changes.removed) | changes.modified | changes.added",
        "before | changes.modified | changes.added",
        "owned fields are added to, never taken from",
    ),
    Mutant(
        "apply: of eleven plain writers the latest becomes ancient", WRITERS, "api/apply/managed_fields.py",
        "        key=lambda name: (_seconds(times.get(name)), name),",
        "        key=lambda name: (-_seconds(times.get(name)), name),",
        "a descending order where an ascending one was meant",
    ),
    Mutant(
        "apply: a sender without managedFields deletes them", APPLIES, "api/apply/managed_fields.py",
        "        return found if found.owners else Managed.read_or_empty(before)",
        "        return found",
        "what was sent is taken for what is",
    ),
    Mutant(
        "apply: fields of the server are owned", APPLIES, "api/apply/managed_fields.py",
        "(fields := mine.fields - _STRIPPED):\n            name = self._identity(manager or",
        "(fields := mine.fields):\n            name = self._identity(manager or",
        "one of the two places that strip them is missed",
    ),
    # --- pruning and defaults ----------------------------------------------------------------------------------------
    Mutant(
        "pruning: what is in a list stays", RESOURCES, "api/custom/structural.py",
        '            _prune(item, schema.items if schema is not None else None, f"{path}[{index}]", unknown)',
        "            pass",
        "members are walked, items are not",
    ),
    Mutant(
        "pruning: below what is preserved nothing is pruned", VALUES, "api/custom/structural.py",
        "        _keep(value, schema, path, unknown)\n    elif",
        "        return\n    elif",
        "unknown members are kept, and with them all that is in the known ones",
    ),
    Mutant(
        "pruning: values of a map of any name are unknown", RESOURCES, "api/custom/structural.py",
        "        return self.properties.get(name) or self.values",
        "        return self.properties.get(name)",
        "additionalProperties are allowed, and their schema is not asked",
    ),
    Mutant(
        "defaults: a null that has a default is dropped", VALUES, "api/custom/structural.py",
        "not inner.nullable and inner.default is None:",
        "not inner.nullable:",
        "nulls are dropped before defaults are filled in",
    ),
    # --- quotas ------------------------------------------------------------------------------------------------------
    Mutant(
        "quota: what is used up to the limit is too much", QUOTAS, "api/quota/charging.py",
        "after[name].compare(hard[name]) > 0",
        "after[name].compare(hard[name]) >= 0",
        "the boundary of an inequality",
    ),
    Mutant(
        "quota: a change is charged as a whole", QUOTAS, "api/quota/charging.py",
        "    more = usage if write.old is None else above(usage, evaluator.usage(write.old, seen))",
        "    more = usage",
        "what it used before is not taken off",
    ),
    Mutant(
        "quota: what is not yet counted is taken for nothing", QUOTAS, "api/quota/charging.py",
        "    if any(each not in used for each in limited):",
        "    if not used and limited:",
        "one resource of several is known",
    ),
    Mutant(
        "quota: affinity to selected namespaces is not across namespaces", QUOTAS, "api/quota/pods.py",
        'term.get("namespaces") or term.get("namespaceSelector") is not None for term',
        'term.get("namespaces") or term.get("namespaceSelector") for term',
        "an empty selector taken for none: it selects all",
    ),
    Mutant(
        "quota: a pod without a class is in none of the lists, and in none outside them", QUOTAS, "api/quota/pods.py",
        'for name in names) if names else operator == "NotIn"',
        "for name in names) if names else False",
        "NotIn of nothing",
    ),
    Mutant(
        "quota: ports that are not allocated are counted", QUOTAS, "api/quota/evaluators.py",
        '        ports = [port for port in ports if port.get("nodePort")]',
        "        pass",
        "a load balancer without node ports",
    ),
    Mutant(
        "quota: of alternatives all are charged", QUOTAS, "api/quota/evaluators.py",
        "            most[name] = max(most.get(name, 0), _devices(one))",
        "            most[name] = most.get(name, 0) + _devices(one)",
        "a sum where a maximum was meant",
    ),
    # --- rights ------------------------------------------------------------------------------------------------------
    Mutant(
        "rbac: a rule for some names is for all", RULES, "apiserver/rules.py",
        "            if rule.names:\n",
        "            if rule.names and len(rule.names) > 1:\n",
        "a list of one item taken for none",
    ),
    Mutant(
        "rbac: the status of all resources is not all their statuses", RULES, "apiserver/rules.py",
        '    resources = (resource, f"*/{sub}", "*") if sub else (resource, "*")',
        '    resources = (resource, "*")',
        "one of the wildcards is forgotten",
    ),
    Mutant(
        "rbac: rights of one namespace are rights in all", RIGHTS, "apiserver/rbac.py",
        '        subjects = [(namespace, "User", user.name), *((namespace, "Group", group) for group in user.groups)]\n        found = {key for subject in subjects for key in self._by_subject.get(subject, ())}',
        '        names = {("User", user.name), *(("Group", group) for group in user.groups)}\n        found = {key for (_, *named), keys in self._by_subject.items() if tuple(named) in names for key in keys}',
        "bindings are found by their subject alone",
    ),
    Mutant(
        "rbac: an account without a namespace is one of the binding's", RIGHTS, "apiserver/rbac.py",
        '    namespace = subject.get("namespace") or namespace\n    return account_user',
        '    namespace = subject.get("namespace") or ""\n    return account_user',
        "what is left out is not filled in",
    ),
    Mutant(
        "rbac: who may bind one role may bind all", RIGHTS, "apiserver/escalation.py",
        'or GROUP, plural, "", namespace, role)):',
        'or GROUP, plural, "", namespace, "drawn-1")):',
        "the name of the role is not passed on",
    ),
    Mutant(
        "rbac: who may write roles may give what he has not", RIGHTS, "apiserver/escalation.py",
        "    if why := lacking(policy, user, namespace, rules):\n        raise forbidden(kind, name, why)\n    if any",
        "    if any",
        "only bindings are checked",
    ),
    Mutant(
        "rbac: a group with the name of a user is that user", RIGHTS, "apiserver/rbac.py",
        '    found = ((namespace, "Group" if kind == "Group" else "User", name) for kind, name in named if name)',
        '    found = ((namespace, each, name) for kind, name in named if name for each in ("Group", "User"))',
        "users and groups are kept in one table",
    ),
    # --- webhooks ----------------------------------------------------------------------------------------------------
    Mutant(
        "webhooks: asked in the order in which they were made", WEBHOOKS, "apiserver/webhooks.py",
        "            for key, entry in sorted(cache.entries.items()):",
        "            for key, entry in sorted(cache.entries.items(), key=lambda each: each[1].revision):",
        "the cache happens to have them so",
    ),
    Mutant(
        "webhooks: all are asked again", WEBHOOKS, "apiserver/webhooks.py",
        '        if hook.spec.get("reinvocationPolicy") == "IfNeeded":\n',
        "        if True:\n",
        "the policy is not looked at",
    ),
    Mutant(
        "webhooks: none is asked again", WEBHOOKS, "apiserver/webhooks.py",
        "            invoked.require()\n            attributes.changed = True",
        "            attributes.changed = True",
        "a change by a later one is not noticed",
    ),
    Mutant(
        "webhooks: a denial is passed over where failures are", WEBHOOKS, "apiserver/webhooks.py",
        "    return error.status if isinstance(error, _Denied) else error",
        "    return None if hook.ignores else error.status if isinstance(error, _Denied) else error",
        "to deny is taken for to fail",
    ),
    Mutant(
        "webhooks: what is deleted is of no interest", WEBHOOKS, "apiserver/admission_rules.py",
        "    found = (obj for obj in (attributes.new, attributes.old) if obj is not None)",
        "    found = (obj for obj in (attributes.new,) if obj is not None)",
        "labels are those of the new object, and there is none",
    ),
    Mutant(
        "webhooks: a namespace is no object of the cluster", WEBHOOKS, "apiserver/admission_rules.py",
        "    wide = of.kind is NAMESPACES or not of.namespace",
        "    wide = not of.namespace",
        "a namespace is in itself",
    ),
    Mutant(
        "webhooks: a dry run asks those that have effects", WEBHOOKS, "apiserver/webhooks.py",
        '        if attributes.of.dry_run and hook.spec.get("sideEffects") not in _HARMLESS:',
        '        if attributes.of.dry_run and hook.spec.get("sideEffects") == "None":',
        "a test the wrong way round",
    ),
    # --- policies ----------------------------------------------------------------------------------------------------
    Mutant(
        "policies: one that is only to warn denies", POLICIES, "apiserver/policies.py",
        '                if "Deny" in actions:',
        '                if "Audit" not in actions:',
        "actions are taken to be one",
    ),
    Mutant(
        "policies: failures of one that ignores them deny", POLICIES, "api/admission_policies.py",
        "for at, text in enumerate(texts, first)] if self._fails else []",
        "for at, text in enumerate(texts, first)]",
        "failurePolicy is asked for webhooks, and not here",
    ),
    Mutant(
        "policies: without parameters nothing is denied", POLICIES, "apiserver/policies.py",
        '        if not found and ref.get("parameterNotFoundAction") == "Deny":',
        '        if not found and ref.get("parameterNotFoundAction") == "deny":',
        "a name in another case",
    ),
    Mutant(
        "policies: a message of several lines is shown", POLICIES, "api/admission_policies.py",
        'if text and len(text.encode()) <= MESSAGE_BYTES_MAX and "\\n" not in text:',
        "if text and len(text.encode()) <= MESSAGE_BYTES_MAX:",
        "one of three conditions is forgotten",
    ),
    Mutant(
        "policies: a variable is seen by none that stands after it", POLICIES, "api/admission_policies.py",
        '        self._bindings = {**bindings, "variables": self}',
        "        self._bindings = {**bindings}",
        "variables are for rules, and not for each other",
    ),
    Mutant(
        "policies: changes are made again to what nobody else changed", MUTATIONS, "apiserver/mutating_policies.py",
        '        if found.holds and not skipped and hook.spec.get("reinvocationPolicy") == "IfNeeded":',
        "        if found.holds and not skipped:",
        "the policy is not looked at",
    ),
    Mutant(
        "policies: a patch that fails a test of its own is an error", MUTATIONS, "api/mutations.py",
        "    except json_patch.TestFailed:\n        return _settled(kind, sub, said, obj, False)\n",
        "",
        "it is an error wherever else patches are applied",
    ),
    # --- CEL ---------------------------------------------------------------------------------------------------------
    Mutant(
        "cel: division rounds down", EVALUATIONS, "cel/operators.py",
        "        quotient = abs(int(left)) // abs(int(right))\n        return _int(-quotient if (left < 0) != (right < 0) else quotient, kind)",
        "        return _int(int(left) // int(right), kind)",
        "Python's division taken for Go's",
    ),
    Mutant(
        "cel: a list is counted from its end", EVALUATIONS, "cel/evaluation.py",
        "        if 0 <= index < len(value):",
        "        if -len(value) <= index < len(value):",
        "Python's indexes taken for Go's",
    ),
    Mutant(
        "cel: integers do not overflow", EVALUATIONS, "cel/operators.py",
        '    return value if INT_MIN <= value <= INT_MAX else EvaluationError("integer overflow")',
        "    return value",
        "Python's integers taken for Go's",
    ),
    Mutant(
        "cel: what is missing costs as what is there", EVALUATIONS, "cel/evaluation.py",
        "        if result[1] or not lenient:\n            run.charge(1)",
        "        run.charge(1)",
        "a step is a step",
    ),
    Mutant(
        "cel: sets cost once for both ways", EVALUATIONS, "cel/runtime_costs.py",
        '    "list_sets_equivalent_list": _sets(2),',
        '    "list_sets_equivalent_list": _sets(1),',
        "a line copied from its neighbour",
    ),
)  # fmt: skip
QUICK = (
    "apply: what is no longer applied goes, though others own it",
    "pruning: what is in a list stays",
    "quota: what is used up to the limit is too much",
    "rbac: a rule for some names is for all",
    "webhooks: asked in the order in which they were made",
    "policies: one that is only to warn denies",
    "cel: a list is counted from its end",
)
"""One of each, in every run of the suite; `make planted` looks for all."""
