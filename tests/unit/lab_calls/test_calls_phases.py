"""Which step of a pod's life a call belongs to, whatever else comes between."""

from hypothesis import given
from hypothesis import strategies as st

from minikube_py.lab.calls.phases import BOUND, CREATED, STATUS, by_phase
from minikube_py.lab.calls.recorder import Call

GET = "range: point get"
LIFE = [CREATED, GET, BOUND, GET, STATUS, GET]
PHASES = ["creation", "scheduling", "scheduling", "running", "running", "otherwise"]


def call(text: str, name: str, resource: str = "pods", outcome: str = "done") -> Call:
    return Call("store", "user", "API server", text, resource, (name,), 0.0, 0.0, outcome, 0)


@given(st.lists(st.sampled_from(["a", "b", "c"]), max_size=40), st.lists(st.booleans(), min_size=40, max_size=40))
def test_each_pod_goes_its_own_way(turns: list[str], beside: list[bool]) -> None:
    steps = dict.fromkeys("abc", 0)
    calls, expected = [call(GET, "x", "nodes"), call(CREATED, "first"), call(BOUND, "first"), call(STATUS, "first")], []
    for name, also in zip(turns, beside):
        at = min(steps[name], len(LIFE) - 1)
        steps[name] += 1
        calls.append(call(LIFE[at], name))
        expected.append(PHASES[at])
        if also:
            calls.append(call(CREATED, f"event-{name}", "events"))
            calls.append(call(GET, "x", "nodes"))
    counted = by_phase(calls)
    for phase in set(PHASES):
        own = sum(count for (found, _, resource), count in counted.items() if (found, resource) == (phase, "pods"))
        first = {"creation": 1, "scheduling": 1, "running": 1}.get(phase, 0)
        assert own == expected.count(phase) + first
    assert counted["start", GET, "nodes"] == 1
    assert counted["events", CREATED, "events"] == counted["otherwise", GET, "nodes"] == sum(beside[: len(turns)])


def test_a_write_that_compared_in_vain_moves_nothing() -> None:
    calls = [call(CREATED, "a"), call(BOUND, "a", outcome="compare failed"), call(GET, "a"), call(BOUND, "a")]
    assert by_phase([*calls, call(STATUS, "a")])["scheduling", BOUND, "pods"] == 2
