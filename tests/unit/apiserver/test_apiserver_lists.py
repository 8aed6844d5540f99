"""Lists: consistency by resourceVersion, pages, forms, and the inequalities that the store's index answers."""

from __future__ import annotations

import base64
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from api_core import MAPS, MERGE, PARTIAL, PARTIAL_LIST, PODS, TABLE, Core, config_map, names, node, pod

from minikube_py.api.kinds.core import CONFIGMAPS
from minikube_py.api.selectors import parse_field_selector, parse_label_selector
from minikube_py.apiserver.limits import Limits
from minikube_py.apiserver.lists import Page
from minikube_py.apiserver.selection import Selection
from minikube_py.mvcc.types import RangeRequest


def token_of(**fields: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps({"v": "meta.k8s.io/v1", **fields}).encode()).rstrip(b"=").decode()


async def fill(core: Core, count: int) -> None:
    for i in range(count):
        await core.done("POST", MAPS, config_map(f"m{i:02}", {"odd": str(i % 2)}))


async def test_pages_show_one_moment_whatever_happens_between_them(core: Core) -> None:
    await fill(core, 7)
    first = await core.done("GET", f"{MAPS}?limit=3")
    assert first["metadata"]["remainingItemCount"] == 4
    await core.done("DELETE", f"{MAPS}/m04")
    await core.done("POST", MAPS, config_map("m03a"))
    seen, page = names(first), first
    while page["metadata"].get("continue"):
        page = await core.done("GET", f"{MAPS}?limit=3&continue={page['metadata']['continue']}")
        assert page["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
        seen += names(page)
    assert seen == [f"m{i:02}" for i in range(7)]


async def test_pages_of_a_selection(core: Core) -> None:
    await fill(core, 9)
    first = await core.done("GET", f"{MAPS}?limit=2&labelSelector=odd%3D1")
    assert "remainingItemCount" not in first["metadata"]
    await core.done("DELETE", f"{MAPS}/m07")
    seen, page = names(first), first
    while token := page["metadata"].get("continue"):
        page = await core.done("GET", f"{MAPS}?limit=2&labelSelector=odd%3D1&continue={token}")
        assert "remainingItemCount" not in page["metadata"]
        seen += names(page)
    assert seen == ["m01", "m03", "m05", "m07"]


async def test_older_revisions(core: Core) -> None:
    await core.done("POST", MAPS, config_map("a", x="1"))
    then = (await core.done("GET", MAPS))["metadata"]["resourceVersion"]
    await core.done("PATCH", f"{MAPS}/a", {"data": {"x": "2"}}, MERGE)
    await core.done("POST", MAPS, config_map("b"))
    exact = await core.done("GET", f"{MAPS}?resourceVersion={then}&resourceVersionMatch=Exact")
    assert names(exact) == ["a"] and exact["items"][0]["data"] == {"x": "1"}
    assert exact["metadata"]["resourceVersion"] == then
    newer = await core.done("GET", f"{MAPS}?resourceVersion={then}&resourceVersionMatch=NotOlderThan")
    assert names(newer) == ["a", "b"]
    assert names(await core.done("GET", f"{MAPS}?resourceVersion={then}&limit=5")) == ["a"]


async def test_compacted_revisions_are_expired_and_a_list_can_go_on(core: Core) -> None:
    await fill(core, 6)
    first = await core.done("GET", f"{MAPS}?limit=2")
    await core.done("POST", MAPS, config_map("m02a"))
    await core.member.storage.compact(core.member.storage.revision)
    status, answer = await core.ask("GET", f"{MAPS}?limit=2&continue={first['metadata']['continue']}")
    assert (status, answer["reason"]) == (410, "Expired")
    rest = await core.done("GET", f"{MAPS}?limit=10&continue={answer['metadata']['continue']}")
    assert names(rest) == ["m02", "m02a", "m03", "m04", "m05"]
    status, answer = await core.ask("GET", f"{MAPS}?resourceVersion=3&resourceVersionMatch=Exact")
    assert (status, answer["message"]) == (410, "The resourceVersion for the provided list is too old.")


BAD_OPTIONS = {
    "limit": ("limit=x", 400, 'strconv.ParseInt: parsing "x": invalid syntax'),
    "limit out of range": ("limit=99999999999999999999", 400,
                           'strconv.ParseInt: parsing "99999999999999999999": value out of range'),
    "version": ("resourceVersion=x", 400,
                'invalid resource version: resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax'),  # noqa: E501
    "match without version": ("resourceVersionMatch=Exact", 422, "is forbidden unless resourceVersion is provided"),
    "exact zero": ("resourceVersion=0&resourceVersionMatch=Exact", 422,
                   'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'),
    "unknown match": ("resourceVersion=5&resourceVersionMatch=Foo", 422,
                      'Unsupported value: "Foo": supported values: "Exact", "NotOlderThan", ""'),
    "initial events": ("sendInitialEvents=true", 422, "sendInitialEvents is forbidden for list"),
    "labels": ("labelSelector=a%20b", 400, "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),  # noqa: E501
    "fields": ("fieldSelector=foo%3Dbar", 400,
               '"foo" is not a known field selector: only "metadata.name", "metadata.namespace"'),
    "undeclared inequality": ("fieldSelector=free.cpu%3E%3D4", 400,
                              '"free.cpu>" is not a known field selector: only "metadata.name", "metadata.namespace"'),
    "continue and version": (f"continue={token_of(rv=1, start='x')}&resourceVersion=5", 400,
                             "specifying resource version is not allowed when using continue"),
    "continue of nothing": ("continue=abc", 400,
                            "invalid continue token: continue key is not valid: invalid character 'i' looking for beginning"),  # noqa: E501
    "continue of symbols": ("continue=!!!", 400,
                            "invalid continue token: continue key is not valid: illegal base64 data at input byte 0"),
    "continue of another time": (f"continue={token_of(rv='x', start='a')}", 400, "invalid continue token"),
    "continue out of the folder": (f"continue={token_of(rv=5, start='../../secrets/a')}", 400, "invalid continue token"),  # noqa: E501
    "continue of a list": ("continue=W10", 400, "invalid continue token"),
    "future version": ("resourceVersion=99999999", 504, "Timeout: Too large resource version: 99999999, current: "),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_OPTIONS.values(), ids=BAD_OPTIONS)
async def test_bad_options(core: Core, case: tuple[str, int, str], monkeypatch: pytest.MonkeyPatch) -> None:
    query, code, message = case
    object.__setattr__(core.api.limits, "fresh_timeout_s", 0.01)
    status, answer = await core.ask("GET", f"{MAPS}?{query}")
    assert status == code and message in answer["message"], answer


async def test_forms(core: Core) -> None:
    await core.done("POST", MAPS, config_map("a", x="1"))
    _, table = await core.ask("GET", MAPS, accept=f"{TABLE},application/json")
    assert table["kind"] == "Table" and table["rows"][0]["cells"][:2] == ["a", 1]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    _, full = await core.ask("GET", f"{MAPS}?includeObject=Object", accept=TABLE)
    assert full["rows"][0]["object"]["data"] == {"x": "1"}
    _, partial = await core.ask("GET", MAPS, accept=PARTIAL_LIST)
    assert partial["kind"] == "PartialObjectMetadataList" and "data" not in partial["items"][0]
    _, single = await core.ask("GET", f"{MAPS}/a", accept=PARTIAL)
    assert single["kind"] == "PartialObjectMetadata" and single["metadata"]["name"] == "a"
    _, row = await core.ask("GET", f"{MAPS}/a", accept=TABLE)
    assert [r["cells"][0] for r in row["rows"]] == ["a"]
    listed = await core.done("GET", MAPS)
    assert "kind" not in listed["items"][0] and listed["kind"] == "ConfigMapList"
    assert (await core.respond("GET", MAPS, accept="application/yaml")).body.startswith(b"apiVersion: v1\nitems:\n")


NOT_ACCEPTABLE = {
    "text": (MAPS, "text/plain", "406: Not Acceptable"),
    "unknown form": (MAPS, "application/json;as=Foo;v=v1;g=meta.k8s.io", "only the following media types are accepted"),
    "single form of a list": (MAPS, PARTIAL, "you requested PartialObjectMetadata, but the requested object is a list"),
    "list form of one": ("/api/v1/namespaces/default", PARTIAL_LIST, "but the requested object is not a list"),
}


@pytest.mark.parametrize("case", NOT_ACCEPTABLE.values(), ids=NOT_ACCEPTABLE)
async def test_not_acceptable(core: Core, case: tuple[str, str, str]) -> None:
    path, accept, message = case
    status, answer = await core.ask("GET", path, accept=accept)
    assert (status, answer["reason"]) == (406, "NotAcceptable") and message in answer["message"]


async def test_large_lists_come_in_parts_of_one_moment(core: Core) -> None:
    await fill(core, 12)
    object.__setattr__(core.api.limits, "list_slice", 5)
    response = await core.respond("GET", MAPS)
    assert response.pieces is not None
    first = next(response.pieces)
    await core.done("DELETE", f"{MAPS}/m11")
    parts = [first, *response.pieces]
    object.__setattr__(core.api.limits, "list_slice", 500)
    assert len(parts) == 5
    assert names(json.loads(b"".join(parts))) == [f"m{i:02}" for i in range(12)]


async def test_pods_of_a_node_come_from_an_index_that_follows(core: Core) -> None:
    for i in range(6):
        await core.done("POST", PODS, pod(f"p{i}", f"n{i % 2}" if i < 4 else ""))
    query = "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1"
    assert names(await core.done("GET", query)) == ["p1", "p3"]
    await core.ask("POST", f"{PODS}/p5/binding", {"metadata": {"name": "p5"}, "target": {"name": "n1"}})
    await core.done("DELETE", f"{PODS}/p1?gracePeriodSeconds=0")
    assert names(await core.done("GET", query)) == ["p3", "p5"]
    assert names(await core.done("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3D")) == ["p4"]


def finished(coroutine: Coroutine[Any, Any, Page]) -> Page:
    """What it returns; it must wait for nothing but its next turn."""
    while True:
        try:
            assert coroutine.send(None) is None
        except StopIteration as end:
            page: Page = end.value
            return page


async def test_a_long_selection_is_of_one_moment_though_others_write_meanwhile(tmp_path: Path) -> None:
    core = await Core(tmp_path, limits=Limits(list_slice=4)).start()
    try:
        await fill(core, 40)
        odd = [f"m{i:02}" for i in range(40) if i % 2]
        cache = core.api.cache.of(CONFIGMAPS)
        labels, fields = parse_label_selector("odd=1"), parse_field_selector(CONFIGMAPS, "")
        selection = Selection(CONFIGMAPS, "default", labels, fields)
        for limit, expected in ((0, odd), (15, odd[:15])):
            listing = core.api.lister._current(cache, selection, None, limit)
            # It gives others their turn after the first slice, and what it has yet to look at changes.
            listing.send(None)
            for name, value in ((odd[-1], "0"), (odd[9], "0")):
                await core.done("PATCH", f"{MAPS}/{name}", {"metadata": {"labels": {"odd": value}}}, MERGE)
            await core.done("DELETE", f"{MAPS}/{odd[8]}")
            await core.done("POST", MAPS, config_map("m20a", {"odd": "1"}))
            page = finished(listing)
            assert [entry.key.decode().rpartition("/")[2] for entry in page.items] == expected
            assert (page.after is not None) == bool(limit)
            await core.done("DELETE", f"{MAPS}/m20a")
            await core.done("POST", MAPS, config_map(odd[8], {"odd": "1"}))
            for name in (odd[-1], odd[9]):
                await core.done("PATCH", f"{MAPS}/{name}", {"metadata": {"labels": {"odd": "1"}}}, MERGE)
    finally:
        await core.stop()


# --- inequalities ---------------------------------------------------------------------------------------------------


def select(text: str) -> str:
    return f"/api/v1/nodes?fieldSelector={quote(text)}"


async def nodes(core: Core) -> None:
    for i in range(6):
        await core.done("POST", "/api/v1/nodes", node(f"n{i}", cpu=str(2 * i + 2), memory="16Gi" if i % 2 else "64Gi"))


async def test_inequalities_are_answered_from_the_index_without_decoding(core: Core) -> None:
    await nodes(core)
    await core.done("POST", PODS, pod("p", "n5", cpu="9"))
    before = core.api.metrics()
    assert names(await core.done("GET", select("free.cpu>=6,free.memory>16Gi"))) == ["n2", "n4"]
    assert names(await core.done("GET", select("free.cpu<=4"))) == ["n0", "n1", "n5"]
    assert names(await core.done("GET", select("free.cpu in (2,4)"))) == ["n0", "n1"]
    assert names(await core.done("GET", select("free.cpu>=6,metadata.name!=n3"))) == ["n2", "n4"]
    after = core.api.metrics()
    (decoded,) = [name for name in after if name.endswith("index_objects_decoded_total")]
    (queries,) = [name for name in after if name.endswith("index_queries_total")]
    assert after[decoded] == before[decoded] and after[queries] == before[queries] + 4


async def test_inequalities_at_an_older_revision_and_in_pages(core: Core) -> None:
    await nodes(core)
    first = await core.done("GET", select("free.cpu>=4") + "&limit=2")
    then = first["metadata"]["resourceVersion"]
    await core.done("POST", PODS, pod("p", "n4", cpu="9"))
    assert names(await core.done("GET", select("free.cpu>=4"))) == ["n1", "n2", "n3", "n5"]
    exact = select("free.cpu>=4") + f"&resourceVersion={then}&resourceVersionMatch=Exact"
    assert names(await core.done("GET", exact)) == ["n1", "n2", "n3", "n4", "n5"]
    rest = await core.done("GET", select("free.cpu>=4") + f"&limit=9&continue={first['metadata']['continue']}")
    assert names(first) + names(rest) == ["n1", "n2", "n3", "n4", "n5"]


async def test_an_answer_equals_brute_force_at_its_own_revision(core: Core) -> None:
    await nodes(core)
    answer = await core.done("GET", select("free.cpu>=8"))
    revision = int(answer["metadata"]["resourceVersion"])
    request = RangeRequest(b"/registry/nodes/", b"/registry/nodes0", revision=revision, fields=("free.cpu",))
    result = await core.member.storage.range(request)
    fitting = [kv.key.decode().rsplit("/", 1)[1] for kv, row in zip(result.kvs, result.fields or []) if row[0] >= 8000]  # type: ignore[operator]
    assert names(answer) == fitting


async def test_what_is_free_stands_in_wide_tables(core: Core) -> None:
    await nodes(core)
    await core.done("POST", PODS, pod("p", "n1", cpu="1500m"))
    _, table = await core.ask("GET", "/api/v1/nodes", accept=TABLE)
    titles = [column["name"] for column in table["columnDefinitions"]]
    at = titles.index("free.cpu")
    assert [row["cells"][at] for row in table["rows"]] == ["2", "2500m", "6", "8", "10", "12"]
    assert all(c["priority"] == 1 for c in table["columnDefinitions"] if c["name"].startswith("free."))


async def test_what_is_free_of_a_few_nodes_among_many(core: Core) -> None:
    for i in range(60):
        await core.done("POST", "/api/v1/nodes", node(f"n{i:02}", cpu=str(i + 1)))
    path = f"/api/v1/nodes?fieldSelector={quote('free.cpu in (1,60)')}"
    _, table = await core.ask("GET", path, accept=TABLE)
    at = [column["name"] for column in table["columnDefinitions"]].index("free.cpu")
    assert [row["cells"][at] for row in table["rows"]] == ["1", "60"]


@pytest.mark.parametrize("limit", [0, 1, 3, 20])
async def test_an_index_and_a_selector_in_slices(tmp_path: Path, limit: int) -> None:
    core = await Core(tmp_path, limits=Limits(list_slice=4)).start()
    try:
        for i in range(50):
            body = node(f"n{i:02}", cpu=str(i + 1))
            body["metadata"]["labels"] = {"rare": str(i % 9)}
            await core.done("POST", "/api/v1/nodes", body)
        path = f"{select('free.cpu>=11')}&labelSelector=rare%3D8" + (f"&limit={limit}" if limit else "")
        page = await core.done("GET", path)
        seen = names(page)
        while token := page["metadata"].get("continue"):
            assert len(page["items"]) == limit
            page = await core.done("GET", f"{path}&continue={token}")
            seen += names(page)
        assert seen == [f"n{i:02}" for i in range(10, 50) if i % 9 == 8]
    finally:
        await core.stop()


async def test_selectors_that_cannot_be_read(core: Core) -> None:
    for text, message in {
        "free.cpu>=lots": "free.cpu",
        "spec.foo=1": "field label not supported: spec.foo",
        "hash.spec.nodeName>=x": "field label not supported: hash.spec.nodeName>",
    }.items():
        status, answer = await core.ask("GET", select(text))
        assert status == 400 and message in answer["message"], answer


async def test_a_share_of_the_nodes_pods(core: Core) -> None:
    for i in range(20):
        await core.done("POST", PODS, pod(f"p{i:02}", f"n{i}"))
    half = 1 << 31
    low = names(await core.done("GET", f"/api/v1/pods?fieldSelector={quote(f'hash.spec.nodeName<{half}')}"))
    high = names(await core.done("GET", f"/api/v1/pods?fieldSelector={quote(f'hash.spec.nodeName>={half}')}"))
    assert sorted(low + high) == [f"p{i:02}" for i in range(20)] and low and high
