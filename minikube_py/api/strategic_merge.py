"""Strategic merge patches: merges by the schema's list types, with directives.

Directives in a patch: `$patch` (replace, delete; in lists also of one item), `$retainKeys`,
`$deleteFromPrimitiveList/x` and `$setElementOrder/x`. Messages are those of apimachinery's strategicpatch.

Source: community design "strategic-merge-patch" and "preserve-order-in-strategic-merge-patch"; apimachinery
pkg/util/strategicpatch for behaviour.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final, NamedTuple

from minikube_py.api.errors import go_quote
from minikube_py.api.go_format import go_format, go_type
from minikube_py.api.schema import SCHEMA, Message, Type

Json = Any
Object = dict[str, Any]

DIRECTIVE: Final = "$patch"
RETAIN_KEYS: Final = "$retainKeys"
DELETE_FROM_LIST: Final = "$deleteFromPrimitiveList"
ELEMENT_ORDER: Final = "$setElementOrder"
VISITS_MAX: Final = 1_000_000
"""List items that one patch may visit. A patch that names each list once stays far below it; one that names an item of
a list again and again, with lists inside, does not, however short it is."""


class StrategicMergeError(ValueError):
    """The patch cannot be merged. `code` is the status upstream answers with; its 500 for bad patches is 400 here."""

    def __init__(self, message: str, code: int = 400) -> None:
        super().__init__(message)
        self.code = code


class _Visits:
    """Counts the items of the lists that are merged, before they are merged."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, *lists: list[Json]) -> None:
        """Raises: StrategicMergeError 413."""
        self.count += sum(map(len, lists))
        if self.count > VISITS_MAX:
            raise StrategicMergeError(f"the patch merges over {VISITS_MAX} items of lists, which is the limit", 413)


def _bad_primitive_list() -> StrategicMergeError:
    return StrategicMergeError("invalid patch format of primitive list")


def _bad_retain_keys() -> StrategicMergeError:
    return StrategicMergeError("invalid patch format of retainKeys")


def _bad_element_order() -> StrategicMergeError:
    return StrategicMergeError("invalid patch format of setElementOrder list")


def _bad_type(expected: str, actual: Json) -> StrategicMergeError:
    return StrategicMergeError(f"expected a {expected}, but received a {go_type(actual)}")


def _bad_directive(directive: Json, item: Object) -> StrategicMergeError:
    shown = directive if isinstance(directive, str) else f"%!s({go_type(directive)}={go_format(directive)})"
    return StrategicMergeError(f"unknown patch type: {shown} in map: {go_format(item)}")


def _no_merge_key(item: Object, key: str) -> StrategicMergeError:
    return StrategicMergeError(f"map: {go_format(item)} does not contain declared merge key: {key}")


def merge(original: Object, patch: Object, message: Message) -> Object:
    """The object after the patch. Both are consumed: pass copies. Raises: StrategicMergeError."""
    return _merge_map(original, patch, Type("message", message.text, message=message.name), _Visits())


# --- what the schema says -------------------------------------------------------------------------------------------


class _Rule(NamedTuple):
    type: Type
    """Of the value; of the items where a list was asked for."""
    strategy: str
    merge_key: str


def _rule(schema: Type, key: str) -> _Rule:
    """How the member `key` of a struct is merged. Raises: StrategicMergeError."""
    if schema.kind != "message" and not schema.message:
        kind = {"list": "slice", "any": "interface"}.get(schema.kind, schema.kind)
        raise StrategicMergeError(f"merging an object in json but data type is not struct, instead is: {kind}")
    name = schema.message.rpartition(".")[2]
    field = SCHEMA.message(schema.message).fields.get(key) if schema.kind == "message" else None
    if field is None:
        raise StrategicMergeError(f"unable to find api field in struct {name} for the json field {go_quote(key)}")
    strategies = [strategy for strategy in field.patch_strategies if strategy != "retainKeys"]
    return _Rule(field.type, strategies[0] if strategies else "", field.merge_key)


def _list_rule(schema: Type, key: str) -> _Rule:
    rule = _rule(schema, key)
    if rule.type.kind != "list" or rule.type.element is None:
        kind = {"message": "struct", "bytes": "slice"}.get(rule.type.kind, rule.type.kind)
        if rule.type.kind == "bytes":
            return rule
        raise StrategicMergeError(f"expected slice or array type, but got: {kind}")
    return _Rule(rule.type.element, rule.strategy, rule.merge_key)


# --- maps -----------------------------------------------------------------------------------------------------------


def _merge_map(original: Object, patch: Object, schema: Type, visits: _Visits) -> Object:
    if DIRECTIVE in patch:
        directive = patch[DIRECTIVE]
        if directive == "replace":
            del patch[DIRECTIVE]
            return patch
        if directive == "delete":
            return {}
        raise _bad_directive(directive, patch)
    _retain_keys(original, patch)
    _order_lists(original, patch, schema, visits)
    for key, value in patch.items():
        if key.startswith(DELETE_FROM_LIST):
            name = _after_prefix(key, DELETE_FROM_LIST, _bad_primitive_list)
            _merge_member(original, name, value, schema, True, visits)
        else:
            _merge_member(original, key, value, schema, False, visits)
    return original


def _after_prefix(key: str, prefix: str, wrong: Callable[[], StrategicMergeError]) -> str:
    head, slash, rest = key.partition("/")
    if not slash or head != prefix:
        raise wrong()
    return rest


def _merge_member(
    original: Object, key: str, value: Json, schema: Type, deleting: bool, visits: _Visits
) -> None:
    if value is None:
        original.pop(key, None)
        return
    current: Any = original.get(key)
    if key not in original or current.__class__ is not value.__class__:
        if not deleting:
            _set_cleaned(original, key, value)
        return
    if isinstance(value, dict):
        rule = _rule(schema, key)
        original[key] = value if rule.strategy == "replace" else _merge_map(current, value, rule.type, visits)
    elif isinstance(value, list):
        rule = _list_rule(schema, key)
        if rule.strategy == "merge" or deleting:
            original[key] = _merge_list(current, value, rule, deleting, visits)
        else:
            original[key] = value
    else:
        original[key] = value


def _set_cleaned(original: Object, key: str, value: Json) -> None:
    if isinstance(value, dict) and DIRECTIVE in value:
        original.pop(key, None)
        return
    _clean(value, True)
    original[key] = value


def _clean(value: Json, drop_nulls: bool) -> None:
    """Drops, at any depth, objects that hold `$patch` and, where asked, members that are null."""
    if isinstance(value, dict):
        gone = []
        for key, item in value.items():
            if item is None:
                if drop_nulls:
                    gone.append(key)
            elif item.__class__ is dict or item.__class__ is list:
                if item.__class__ is dict and DIRECTIVE in item:
                    gone.append(key)
                else:
                    _clean(item, drop_nulls)
        for key in gone:
            del value[key]
    elif isinstance(value, list):
        if any(item.__class__ is dict and DIRECTIVE in item for item in value):
            value[:] = [item for item in value if not (item.__class__ is dict and DIRECTIVE in item)]
        for item in value:
            if item.__class__ is dict or item.__class__ is list:
                _clean(item, drop_nulls)


def _retain_keys(original: Object, patch: Object) -> None:
    """Obeys `$retainKeys`: removes the members of `original` that it does not name."""
    if RETAIN_KEYS not in patch:
        return
    retained = patch.pop(RETAIN_KEYS)
    if not isinstance(retained, list):
        raise _bad_retain_keys()
    names = {item for item in retained if isinstance(item, str)}
    for key, value in patch.items():
        if value is not None and not key.startswith((DELETE_FROM_LIST, ELEMENT_ORDER)) and key not in names:
            raise _bad_retain_keys()
    for key in [key for key in original if key not in names]:
        del original[key]


# --- lists ----------------------------------------------------------------------------------------------------------


def _order_lists(original: Object, patch: Object, schema: Type, visits: _Visits) -> None:
    """Obeys every `$setElementOrder/x`, merging the list `x` with it."""
    for directive in [key for key in patch if key.startswith(ELEMENT_ORDER)]:
        order = patch.pop(directive)
        if not isinstance(order, list):
            raise _bad_type("[]interface {}", order)
        key = _after_prefix(directive, ELEMENT_ORDER, _bad_element_order)
        live, wanted = original.get(key), patch.get(key)
        for found in (original, patch):
            if key in found and not isinstance(found[key], list):
                raise _bad_type("[]interface {}", found[key])
        rule = _list_rule(schema, key)
        visits.add(live or [], wanted or [], order)
        _check_order(wanted or [], order, rule.merge_key)
        server_order = list(live or [])
        if key in original and key in patch:
            merged = _merge_or_replace(original[key], patch[key], rule, visits)
        elif key in original:
            merged = original[key]
        elif key in patch:
            merged = patch[key]
            _clean(merged, False)
        else:
            continue
        items, others = _partition(merged, order, rule.merge_key)
        is_map = _element_type([*server_order, *(wanted or [])]) == "map"
        original[key] = _in_order(items, others, order, server_order, rule.merge_key, is_map)
        patch.pop(key, None)


def _merge_or_replace(original: list[Json], patch: list[Json], rule: _Rule, visits: _Visits) -> list[Json]:
    return _merge_list(original, patch, rule, False, visits) if rule.strategy == "merge" else patch


def _check_order(patch: list[Json], order: list[Json], merge_key: str) -> None:
    """Items of the patch must be in the order list, and in its order."""
    if not patch or not order:
        return
    kept = _split_deletions(patch)[0] if merge_key else patch
    at = 0
    for place in order:
        while at < len(kept) and isinstance(kept[at], dict) and DIRECTIVE in kept[at]:
            at += 1
        if at >= len(kept):
            return
        if _key_of(kept[at], merge_key) == _key_of(place, merge_key):
            at += 1
    if at < len(kept):
        raise StrategicMergeError(
            f"The order in patch list:\n{go_format(patch)}\n doesn't match {ELEMENT_ORDER} list:\n{go_format(order)}\n"
        )


def _identity(value: Json) -> Hashable:
    """What two values of a merge key, or two scalars, are compared by. Raises: StrategicMergeError."""
    if isinstance(value, dict | list):
        raise StrategicMergeError(f"merge keys must be scalars, but received a {go_type(value)}")
    return value.__class__, value


def _key_of(item: Json, merge_key: str) -> Hashable:
    if not merge_key:
        return _identity(item)
    if not isinstance(item, dict):
        raise _bad_type("map[string]interface {}", item)
    if merge_key not in item:
        raise _no_merge_key(item, merge_key)
    return _identity(item[merge_key])


def _element_type(items: list[Json]) -> str:
    """`map` or `scalar`: all items must be of one type, and none a list."""
    if not items:
        raise StrategicMergeError("no elements in any of the given slices")
    first = items[0].__class__
    if first is list:
        raise StrategicMergeError("lists of lists are not supported", 422)
    if any(item.__class__ is not first for item in items):
        raise StrategicMergeError(f"list element types are not identical: {go_format([items])}")
    return "map" if first is dict else "scalar"


def _merge_list(
    original: list[Json], patch: list[Json], rule: _Rule, deleting: bool, visits: _Visits
) -> list[Json]:
    if not original and not patch:
        return original
    visits.add(original, patch)
    merge_key = rule.merge_key
    try:
        kind = _element_type([*original, *patch])
    except StrategicMergeError as error:
        if "not identical" in str(error):
            raise StrategicMergeError(f"list element types are not identical: {go_format([original, patch])}") from None
        raise
    if kind == "scalar":
        if deleting:
            gone = {_identity(item) for item in patch}
            return [item for item in original if _identity(item) not in gone]
        merged = list({_identity(item): item for item in [*original, *patch]}.values())
        items, others = _partition(merged, patch, "")
        return _in_order(items, others, patch, original, "", False)
    if not merge_key:
        kind = "struct" if rule.type.message else rule.type.kind
        raise StrategicMergeError(f"cannot merge lists without merge key for {kind}")
    original, patch = _obey_directives(original, patch, merge_key)
    server_order = list(original)
    merged = _merge_items(original, patch, merge_key, rule.type, visits)
    items, others = _partition(merged, patch, merge_key)
    return _in_order(items, others, patch, server_order, merge_key, True)


def _obey_directives(
    original: list[Json], patch: list[Json], merge_key: str
) -> tuple[list[Json], list[Json]]:
    """The live list without what the patch deletes, and the patch without its directives."""
    plain: list[Json] = []
    gone: set[Hashable] = set()
    replace = False
    for item in patch:
        if DIRECTIVE not in item:
            plain.append(item)
            continue
        directive = item[DIRECTIVE]
        if directive == "delete":
            if merge_key not in item:
                raise _no_merge_key(item, merge_key)
            gone.add(_identity(item[merge_key]))
        elif directive == "replace":
            replace = True
        elif directive == "merge":
            raise StrategicMergeError("merging lists cannot yet be specified in the patch")
        else:
            raise _bad_directive(directive, item)
    if gone:
        original = [live for live in original if merge_key not in live or _identity(live[merge_key]) not in gone]
    return (plain, []) if replace else (original, plain)


def _merge_items(
    original: list[Json], patch: list[Json], merge_key: str, schema: Type, visits: _Visits
) -> list[Json]:
    merged = list(original)
    places: dict[Hashable, int] = {}
    for index, item in enumerate(merged):
        if merge_key in item:
            places.setdefault(_identity(item[merge_key]), index)
    for item in patch:
        key = _key_of(item, merge_key)
        if key in places:
            merged[places[key]] = _merge_map(merged[places[key]], item, schema, visits)
        else:
            places[key] = len(merged)
            merged.append(item)
    return merged


def _partition(items: list[Json], order: list[Json], merge_key: str) -> tuple[list[Json], list[Json]]:
    """The items that `order` names, and the others."""
    if merge_key:
        for place in order:
            if not isinstance(place, dict):
                raise StrategicMergeError(f"value for key {order.index(place)} is not a map")
        named = {_identity(place[merge_key]) for place in order if merge_key in place}
    else:
        named = {_identity(place) for place in order}
    inside: list[Json] = []
    outside: list[Json] = []
    for item in items:
        (inside if _key_of(item, merge_key) in named else outside).append(item)
    return inside, outside


def _split_deletions(items: list[Json]) -> tuple[list[Json], list[Json]]:
    kept: list[Json] = []
    gone: list[Json] = []
    for item in items:
        if not isinstance(item, dict):
            raise _bad_type("map[string]interface {}", item)
        (gone if item.get(DIRECTIVE) == "delete" else kept).append(item)
    return kept, gone


def _places(order: list[Json], merge_key: str) -> dict[Hashable, int]:
    found: dict[Hashable, int] = {}
    for index, item in enumerate(order):
        found.setdefault(_key_of(item, merge_key), index)
    return found


def _in_order(
    items: list[Json], others: list[Json], order: list[Json], server_order: list[Json], merge_key: str, is_map: bool
) -> list[Json]:
    """Merges items in the patch's order with the others in live order; an other item comes first if it did before."""
    key = merge_key if is_map else ""
    right = _sorted(items, _places(order, key), key, is_map)
    if not others:
        return right
    served = _places(server_order, key)
    left = _sorted(others, served, key, is_map)
    woven: list[Json] = []
    i = j = 0
    while i < len(left) and j < len(right):
        left_place, right_place = served.get(_key_of(left[i], key)), served.get(_key_of(right[j], key))
        if left_place is not None and right_place is not None and left_place < right_place:
            woven.append(left[i])
            i += 1
        else:
            woven.append(right[j])
            j += 1
    return [*woven, *left[i:], *right[j:]]


def _sorted(items: list[Json], places: dict[Hashable, int], merge_key: str, is_map: bool) -> list[Json]:
    kept, gone = _split_deletions(items) if is_map else (items, [])
    return [*sorted(kept, key=lambda item: places.get(_key_of(item, merge_key), -1)), *gone]
