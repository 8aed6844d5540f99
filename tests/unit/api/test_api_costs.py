# ruff: noqa: E501
"""What bodies cost is bounded, and grows with their length alone: counted, not timed."""

from __future__ import annotations

import functools
import gc
import json
from collections.abc import Callable
from difflib import unified_diff
from itertools import product
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from turns import lines_of

from minikube_py.api import json_patch, memo
from minikube_py.api.decode import target_of
from minikube_py.api.errors import ERRORS_CHARS_MAX, GroupResource, StatusError, invalid, invalid_value, shortened
from minikube_py.api.json_patch import COPIED_BYTES_MAX, JsonPatchError
from minikube_py.api.kinds.core import PODS
from minikube_py.api.pod_warnings import WARNINGS_MAX, _port_warnings
from minikube_py.api.registry import REGISTRY
from minikube_py.api.selectors import SELECTOR_CHARS_MAX, parse_field_selector, parse_label_selector
from minikube_py.api.strategic_merge import VISITS_MAX, StrategicMergeError, merge
from minikube_py.api.tables import TablePrinter
from minikube_py.api.validation import pod_diff
from minikube_py.apiserver.preparing import Body, create, patch, update
from tests.support.hostile import CHANGES, CONFIG_MAPS, JSON, POD_SHAPES, YAML, YAML_SHAPES, Change, stored_by

SMALL, GROWTH = 6 << 10, 8


def done(plural: str, body: bytes, content_type: str) -> None:
    try:
        create(REGISTRY, Body(("", "v1", plural), body, content_type, "Warn", "default", ""), 0.0, 1)
    except StatusError:
        pass


@functools.cache
def frozen() -> list[object]:
    """What `gc.get_objects` leaves out: the caches of functions that were there before the tests began."""
    gc.unfreeze()
    found = [each for each in gc.get_objects() if type(each) in (functools._lru_cache_wrapper, memo.Remembered)]
    gc.freeze()
    return found


def forget() -> None:
    """Empties what functions of the product remember."""
    for found in (*frozen(), *gc.get_objects()):
        if type(found) is functools._lru_cache_wrapper and found.__module__.startswith("minikube_py."):
            found.cache_clear()
        elif type(found) is memo.Remembered:
            found.clear()


SHAPES = [
    *((name, "configmaps", shape, JSON) for name, shape in CONFIG_MAPS.items()),
    *((name, "pods", shape, JSON) for name, shape in POD_SHAPES.items()),
    *((name, "configmaps", shape, YAML) for name, shape in YAML_SHAPES.items() if name != "YAML bomb"),
]


@pytest.mark.parametrize(("name", "plural", "shape", "content_type"), SHAPES, ids=lambda given: given if isinstance(given, str) else "")
def test_work_grows_no_faster_than_a_body(name: str, plural: str, shape: Callable[[int], bytes], content_type: str) -> None:
    small, large = shape(SMALL), shape(SMALL * GROWTH)
    done(plural, small, content_type)
    counts = []
    for body in (small, large):
        # What is remembered of names, by whichever tests ran before, is remembered of neither.
        forget()
        counts.append(lines_of(lambda body=body: done(plural, body, content_type)))
    linear(counts)


def linear(counts: list[int]) -> None:
    of_small, of_large = counts
    assert of_large <= max(of_small, 3000) * GROWTH * 1.6, (of_small, of_large)


# --- changes of what is stored ----------------------------------------------------------------------------------------


def changed(change: Change, stored: bytes, body: bytes) -> None:
    asked = Body(("", "v1", change.plural), body, change.content_type, "Warn", "default", "hostile", change.sub)
    try:
        if change.content_type == JSON:
            update(REGISTRY, asked, stored, 7, False)
        else:
            patch(REGISTRY, asked, stored, 7)
    except StatusError:
        pass


@pytest.mark.parametrize("name", CHANGES)
def test_work_of_a_change_grows_no_faster_than_object_and_body(name: str) -> None:
    change = CHANGES[name]
    sizes = (SMALL, SMALL * GROWTH)
    changed(change, stored_by(change, SMALL), change.body(SMALL))
    counts = []
    for size in sizes:
        stored, body = stored_by(change, size), change.body(size)
        forget()
        counts.append(lines_of(lambda stored=stored, body=body: changed(change, stored, body)))
    linear(counts)


@pytest.mark.parametrize("include", ["Metadata", "Object"])
@pytest.mark.parametrize("name", CHANGES)
def test_work_of_a_row_grows_no_faster_than_an_object(name: str, include: str) -> None:
    change = CHANGES[name]
    kind = REGISTRY.resource("", "v1", change.plural)
    assert kind is not None
    printer = TablePrinter(kind, 0.0, include)
    values = [stored_by(change, size) for size in (SMALL, SMALL * GROWTH)]
    linear([lines_of(lambda value=value: printer.row_bytes(value, "7")) for value in values])


def test_an_item_that_is_merged_again_and_again_is_refused_before_it_costs() -> None:
    """Each item of the patch goes through the whole list of the one container."""
    env = [{"name": f"c{at}"} for at in range(1000)]

    def merged(items: int) -> None:
        container = {"name": "a", "env": [{"name": "x"}]}
        original = {"spec": {"containers": [{"name": "a", "env": list(env)}]}}
        merge(original, {"spec": {"containers": [dict(container) for _ in range(items)]}}, target_of(PODS, None).message)

    merged(100)
    with pytest.raises(StrategicMergeError, match=f"over {VISITS_MAX} items") as refused:
        merged(10_000)
    assert refused.value.code == 413


# --- what a refused update of a pod shows -----------------------------------------------------------------------------

SPECS = st.fixed_dictionaries(
    {
        "containers": st.lists(
            st.fixed_dictionaries(
                {"name": st.sampled_from("ab"), "image": st.sampled_from(["i", "<&>", "\u2028é\x7f"])},
                optional={"args": st.lists(st.sampled_from("xy"), max_size=4), "ports": st.just([{"containerPort": 1}])},
            ),
            min_size=1,
            max_size=5,
        )
    },
    optional={"nodeName": st.sampled_from(["n", ""]), "nodeSelector": st.dictionaries(st.sampled_from("kl"), st.just("v"))},
)


@given(SPECS, SPECS)
def test_small_specs_are_compared_as_difflib_does(old: dict[str, Any], new: dict[str, Any]) -> None:
    expected = list(unified_diff(pod_diff._lines(old, "PodSpec"), pod_diff._lines(new, "PodSpec"), n=3))[2:]
    assert pod_diff.spec_diff(old, new) == "".join(expected)


@given(SPECS)
def test_lines_of_a_spec_are_indented_by_one(spec: dict[str, Any]) -> None:
    text = json.dumps(pod_diff._internal(spec, "PodSpec", spec), indent=1, ensure_ascii=False)
    for char, code in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        text = text.replace(char, code)
    assert "".join(pod_diff._lines(spec, "PodSpec")) == text + "\n"


# --- JSON patches -----------------------------------------------------------------------------------------------------


def doublings(count: int) -> list[dict[str, Any]]:
    return [{"op": "copy", "from": "/data", "path": f"/data/a{at}"} for at in range(count)]


def test_copies_are_refused_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0

    def counted(text: bytes) -> Any:
        nonlocal made
        made += len(text)
        return orjson.loads(text)

    class Counted:
        dumps, loads, JSONEncodeError = staticmethod(orjson.dumps), staticmethod(counted), orjson.JSONEncodeError

    monkeypatch.setattr(json_patch, "orjson", Counted)
    with pytest.raises(JsonPatchError, match="exceeding the limit 3145728"):
        json_patch.apply({"data": {"x": "y" * 100}}, doublings(40))
    assert made <= COPIED_BYTES_MAX


def test_copies_within_the_limit_are_made() -> None:
    found = json_patch.apply({"data": {"x": 1}}, doublings(5))
    assert found["data"]["a1"] == {"x": 1, "a0": {"x": 1}} and len(orjson.dumps(found)) > 200
    assert found["data"]["a1"]["a0"] is not found["data"]["a0"]


# --- warnings of ports ------------------------------------------------------------------------------------------------


def pairs(ports: list[tuple[dict[str, Any], str]]) -> list[str]:
    """Each port beside each one before it, as upstream does."""
    found = []
    for at, (port, where) in enumerate(ports):
        if port.get("hostIP") and not port.get("hostPort"):
            shown = f"HostPort:0 ContainerPort:{port['containerPort']} Protocol:{port.get('protocol', '')}"
            found.append(f"{where}: hostIP set without hostPort: {{Name: {shown} HostIP:{port['hostIP']}}}")
        for other, there in ports[:at]:
            if any((port.get(key) or empty) != (other.get(key) or empty) for key, empty in (("containerPort", 0), ("protocol", ""))):
                continue
            host, address = port.get("hostPort") or 0, port.get("hostIP") or ""
            other_host, other_address = other.get("hostPort") or 0, other.get("hostIP") or ""
            if (address, host) == (other_address, other_host):
                found.append(f"{where}: duplicate port definition with {there}")
            elif not host or not other_host:
                found.append(f"{where}: overlapping port definition with {there}")
            elif host == other_host and bool(address) is not bool(other_address):
                found.append(f"{where}: dangerously ambiguous port definition with {there}")
    return found


PORTS = st.fixed_dictionaries(
    {"containerPort": st.integers(1, 2)},
    optional={"hostPort": st.sampled_from([0, 1, 2]), "hostIP": st.sampled_from(["", "1.1.1.1", "2.2.2.2"]), "protocol": st.just("TCP")},
)


@given(st.lists(PORTS, max_size=12))
def test_ports_are_warned_of_as_if_each_was_compared_with_each(ports: list[dict[str, Any]]) -> None:
    named = [(port, f"[{at}]") for at, port in enumerate(ports)]
    assert _port_warnings(named) == pairs(named)


def test_warnings_of_ports_are_few() -> None:
    assert len(_port_warnings([({"containerPort": 1}, f"[{at}]") for at in range(2000)])) == WARNINGS_MAX


# --- errors and selectors ---------------------------------------------------------------------------------------------


def test_errors_that_show_a_whole_list_are_told_while_there_is_room() -> None:
    shown = ["x" * 100] * 3000
    error = invalid(GroupResource("", "a", "A"), "n", [invalid_value("f", shown, f"wrong {at}") for at in range(500)])
    assert len(error.message) < 2 * ERRORS_CHARS_MAX and "500 errors in all, of which" in error.message


def test_texts_of_megabytes_are_cut_where_a_worker_gives_them_back() -> None:
    error = shortened(invalid(GroupResource("", "a", "A"), "n", [invalid_value("f", "x" * 3_000_000, "wrong")]))
    assert len(orjson.dumps(error.to_status())) < 600_000 and "3000" in error.message


def test_long_selectors_are_refused_and_no_long_text_is_remembered() -> None:
    for parse in (parse_label_selector, lambda text: parse_field_selector(PODS, text)):
        with pytest.raises(StatusError, match=f"limit {SELECTOR_CHARS_MAX}"):
            parse("a" * (SELECTOR_CHARS_MAX + 1))
    values = "a in (" + ",".join(f"v{at}" for at in range(3000)) + ")"
    assert parse_label_selector(values) is not parse_label_selector(values)
    assert parse_label_selector("a=b") is parse_label_selector("a=b")


def test_a_selector_is_read_up_to_what_is_wrong() -> None:
    def refused(text: str) -> None:
        with pytest.raises(StatusError):
            parse_label_selector(text)

    assert lines_of(lambda: refused("(" * 30_000)) <= lines_of(lambda: refused("(" * 10)) + 10


@given(st.lists(st.text(max_size=12), max_size=30))
def test_remembering_changes_no_answer(texts: list[str]) -> None:
    asked: list[str] = []

    @memo.remembered(4, 8)
    def upper(text: str) -> str:
        asked.append(text)
        return text.upper()

    for text, _ in product(texts, range(2)):
        assert upper(text) == text.upper()
    assert len(upper.__self__) <= 4  # type: ignore[attr-defined]
    assert all(asked.count(text) >= 2 for text in texts if len(text) > 8)
