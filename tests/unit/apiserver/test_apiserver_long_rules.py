# ruff: noqa: E501
"""Small objects that are held to long rules: checked elsewhere, with the verdict that they would have got here."""

from __future__ import annotations

import gc
import json
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from api_core import MERGE, Core
from hypothesis import given, settings
from hypothesis import strategies as st
from patience import until
from turns import LINES_MAX, Elsewhere, Turns, lines_of

from minikube_py.api.custom.kinds import kinds_of
from minikube_py.api.errors import StatusError
from minikube_py.api.kind import Kind
from minikube_py.apiserver import settling
from minikube_py.apiserver.checks import check
from minikube_py.apiserver.work import INLINE_BYTES_MAX, WorkHere
from minikube_py.cel import regex
from minikube_py.cel.allowance import OutOfSteps, within
from minikube_py.cel.environment import Environment, compile
from minikube_py.cel.types import DYN, INT, STRING, list_of, map_of

Json = dict[str, Any]
CONFORMANCE = Path(__file__).resolve().parents[2] / "conformance"
sys.path.insert(0, str(CONFORMANCE))

import custom_rule_cases  # noqa: E402
from custom_cases import DEFINITIONS, GROUP, OBJECTS, definition, of, seen, thing, warning_texts  # noqa: E402

GAUGES = f"{OBJECTS}/gauges"
TEXT = {"type": "string"}
NUMBERS = {"type": "array", "maxItems": 600, "items": {"type": "integer"}}
KEYED = {
    "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
    "items": {"type": "object", "required": ["k"], "properties": {"k": TEXT}},
}  # fmt: skip
PATTERN = {"type": "string", "pattern": "^(a|b)*a(a|b){200}c$"}
MANY = {f"p{i}": {"type": "string", "pattern": f"a{{900}}b{{{500 + i}}}"} for i in range(40)}
MIXED = "ab" * 40 + "b" * 7


def ruled(*rules: str, **properties: Any) -> Json:
    return {"type": "object", "properties": properties, "x-kubernetes-validations": [{"rule": each} for each in rules]}


LONG: dict[str, tuple[Json, Any]] = {
    "loops in loops": (ruled("self.l.all(x, self.l.all(y, x + y >= 0))", l=NUMBERS), {"l": list(range(120))}),
    "many rules": (
        ruled(*(f"self.l.all(x, self.l.all(y, x + y >= {-i}))" for i in range(12)), l={**NUMBERS, "maxItems": 250}),
        {"l": list(range(40))},
    ),
    "loops that cost nothing": (
        ruled("!self.l.exists_one(x, self.l.exists_one(y, self.l.exists_one(z, false)))", l={**NUMBERS, "maxItems": 100}),
        {"l": [0] * 40},
    ),
    "a pattern": (PATTERN, MIXED * 300),
    "many patterns": ({"type": "object", "properties": MANY}, dict.fromkeys(MANY, "b")),
    "a pattern of every item": (
        {"type": "array", "items": {"type": "string", "pattern": "^(a?){300}a{300}$"}}, ["a" * n for n in range(250, 300)],
    ),
    "what a pattern finds": (ruled("self.s.find('(a*)*c') == ''", s={**TEXT, "maxLength": 30_000}), {"s": "a" * 30_000}),
    "many small rules": (
        {"type": "object", "properties": {f"p{i}": ruled(f"self.a.size() > {i}", a={**TEXT, "maxLength": 9}) for i in range(150)}},
        {f"p{i}": {"a": "b"} for i in range(150)},
    ),
    "many alternatives": (
        {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "oneOf": [{"required": [f"a{i}"]} for i in range(3000)]},
        {"a1": 1, "a2": 2},
    ),
}  # fmt: skip


async def served(core: Core, plural: str, spec: Json) -> None:
    await core.done("POST", DEFINITIONS, definition(plural, of(spec=spec)))

    async def answers() -> bool:
        return (await core.respond("GET", f"{OBJECTS}/{plural}")).status == 200

    await until(answers, f"{plural} are served")


async def told(
    core: Core, method: str, path: str, body: Json, content_type: str = "application/json"
) -> tuple[int, Any]:
    code, answer = await core.ask(method, path, body, content_type=content_type)
    return code, answer if code >= 300 else answer.get("spec")


@pytest.mark.parametrize("name", LONG)
async def test_no_rule_holds_the_loop(core: Core, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    schema, spec = LONG[name]
    assert len(orjson.dumps(spec)) < INLINE_BYTES_MAX
    await served(core, "gauges", schema)
    turns = Turns()
    core.api.hand_work_to(elsewhere := Elsewhere(turns))
    gc.collect()
    # As after many other patterns.
    monkeypatch.setattr(regex, "_kept", {})
    found = await turns.of(told(core, "POST", f"{GAUGES}?dryRun=All", thing("Gauge", "a", spec=spec)))
    # Rules that are compiled and kept are tried again here, in turns.
    assert turns.most < LINES_MAX and elsewhere.jobs == (name != "many small rules")
    monkeypatch.setattr(settling, "STEPS_MAX", 1 << 60)
    core.api.hand_work_to(WorkHere())
    core.api.writer.settling = settling.Settling(core.api.writer, core.api.writer.cluster)
    assert await told(core, "POST", f"{GAUGES}?dryRun=All", thing("Gauge", "a", spec=spec)) == found


async def test_after_a_long_check_the_next_are_not_begun_here(core: Core) -> None:
    schema, spec = LONG["loops in loops"]
    await served(core, "gauges", schema)
    turns = Turns()
    core.api.hand_work_to(elsewhere := Elsewhere(turns))
    await core.done("POST", GAUGES, thing("Gauge", "a", spec={"l": [1]}))
    for at in range(settling.SPARED + 3):
        short = at > 0
        value = {"l": [at]} if short else spec
        assert (await told(core, "PATCH", f"{GAUGES}/a", {"spec": value}, MERGE))[0] == 200
        await core.done("POST", f"{GAUGES}", thing("Gauge", f"b{at}", spec={"l": [1]}))
    assert elsewhere.jobs == 1 + settling.SPARED


class Packed(WorkHere):
    """As a process gets and gives it."""

    async def run(self, job: str, *given: Any) -> Any:
        try:
            return pickle.loads(pickle.dumps(self.now(job, *pickle.loads(pickle.dumps(given)))))
        except StatusError as error:
            raise pickle.loads(pickle.dumps(error)) from None


async def test_what_is_checked_elsewhere_is_answered_as_upstream_does(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of the rules' conformance suite, with no step allowed here."""
    monkeypatch.setattr(settling, "STEPS_MAX", 0)
    core.api.hand_work_to(Packed())
    upstream = json.loads((CONFORMANCE / "data" / "custom_rules.json").read_text())
    for case, wanted in zip(custom_rule_cases.cases(), upstream, strict=True):
        response = await core.respond(case.method, case.path, case.data(), case.accept, case.content_type)
        if case.await_names:
            path = f"/apis/{GROUP}/v1/{case.body['spec']['names']['plural']}"

            async def answers(path: str = path) -> bool:
                return (await core.respond("GET", path)).status == 200

            await until(answers, f"{path} is served")
        body = b"".join(response.pieces) if response.pieces is not None else response.body
        lines = (response.headers.get("Warning") or "").split("\n")
        found = seen(response.status, body, warning_texts(filter(None, lines)), case.path)
        assert found == wanted or wanted[0] == 404, f"{case.method} {case.path} {case.data()[:600]!r}"


# --- laws -----------------------------------------------------------------------------------------------------------

RULES = (
    "self.l.all(x, x >= 0)",
    "self.l.all(x, self.l.exists(y, y == x))",
    "self.l.map(x, self.l.filter(y, y < x).size()).sum() < 40",
    "self.l == oldSelf.l",
    "self.s.matches('^(a|b)*a(a|b){5}$')",
    "self.s.find('b+a') != 'ba' && self.s.split('b').join('bb').size() < 50",
    "self.m.all(x, x.k.size() < 3)",
    "self.m == oldSelf.m || self.m.exists_one(x, x.k == 'a')",
)
VALUES = st.fixed_dictionaries(
    {
        "l": st.lists(st.integers(-1, 9), max_size=30),
        "s": st.text("ab", max_size=40),
        "m": st.lists(st.builds(lambda k: {"k": k}, st.sampled_from(["a", "b", "abc", ""])), max_size=12),
    }
)


def gauges(rules: list[str], message: bool) -> Kind:
    """Built again each time: nothing is compiled yet."""
    spec = ruled(*rules, l=NUMBERS, s={"type": "string", "pattern": "^[ab]*$|b{30}"}, m=KEYED)
    if message:
        for each in spec["x-kubernetes-validations"]:
            each["messageExpression"] = "'of ' + string(self.l.size()) + self.s.lowerAscii()"
    whole = definition("gauges", of(spec=spec))
    content = {"spec": whole["spec"], "names": {"singular": "gauge", "listKind": "GaugeList", **whole["spec"]["names"]}}
    return kinds_of.__wrapped__(orjson.dumps(content, option=orjson.OPT_SORT_KEYS))[0]


def said(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except StatusError as error:
        return error.to_status(), error.warnings


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.sampled_from(RULES), min_size=1, max_size=4), st.booleans(), VALUES, st.none() | VALUES,
    st.lists(st.integers(0, 60_000), max_size=3),
)  # fmt: skip
def test_a_check_that_was_ended_leaves_nothing_behind(
    rules: list[str], message: bool, spec: Json, old_spec: Json | None, limits: list[int]
) -> None:
    """Whatever was begun and ended, wherever: the next one says what the first would have said."""
    meta = {"name": "a", "namespace": "default", "uid": "u", "resourceVersion": "1", "generation": 1}
    new = {**thing("Gauge", "a", spec=spec), "metadata": meta}
    old = {**thing("Gauge", "a", spec=old_spec), "metadata": meta} if old_spec is not None else None
    wanted = said(lambda: check(gauges(rules, message), new, old, ""))
    kind = gauges(rules, message)
    for limit in limits:
        try:
            assert said(lambda limit=limit: within(limit, check, kind, new, old, "")) == wanted
        except OutOfSteps:
            continue
    assert said(lambda: check(kind, new, old, "")) == wanted


EXPRESSIONS = (
    "l.all(x, l.all(y, x + y >= 0))", "l.map(x, l.map(y, x * y)).size() > 0", "l.exists_one(x, l.exists_one(y, false))",
    "l.all(x, (l + l).size() > 0)", "l.all(x, l.sum() > -1)", "l.all(x, x in l)", "l.sort() == l", "l.distinct() == l",
    "l.reverse() == l", "l.all(x, l == l)", "l.all(x, l.indexOf(99) < 0 && l.lastIndexOf(98) < 0)", "l.all(x, l.max() > 0)",
    "l.all(x, sets.contains(l, [x, 1000]))", "l.all(x, '%s'.format([l]) != '')", "[l, l, l].flatten().size() > 0",
    "l.all(x, l.isSorted())", "l.all(x, m == m)", "l.all(x, m.all(k, m[k] != ''))", "l.all(x, s.contains('c'))",
    "s.matches('(a|b)*a(a|b){50}c')", "s.find('(a*)*b') == ''", "s.findAll('a').size() > 0", "s.split('').size() > 0",
    "l.all(x, strings.quote(s) != '')", "s.matches('((a?){20}){20}c')", "l.all(x, s.replace('a', 'bb').size() > 0)",
    "l.all(x, [l.map(y, y)].flatten() == l)", "l.transformList(i, x, l.transformMap(j, y, y).size()).size() > 0",
)  # fmt: skip
PLACE = Environment({"l": list_of(INT), "s": STRING, "m": map_of(STRING, STRING), "d": DYN})


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(EXPRESSIONS), st.integers(0, 40), st.integers(0, 200))
def test_few_steps_are_little_work(text: str, items: int, length: int) -> None:
    """Lines of Python that run before an evaluation is ended, beside the steps that it was allowed."""
    expression = compile(text, PLACE)
    assert expression.unfit is None
    bindings = {"l": list(range(items)), "s": "ab" * length, "m": {f"k{i}": "v" for i in range(items)}}
    ended = False

    def evaluate() -> None:
        nonlocal ended
        try:
            within(3_000, expression.outcome, bindings, 1 << 40)
        except OutOfSteps:
            ended = True

    lines = lines_of(evaluate)
    assert lines < 3_000 * 20, (text, lines, ended)
