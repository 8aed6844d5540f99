"""What a failed exploration shows: every kind of line, and repeated ones once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from minikube_py.client.transport import ApiResponse
from minikube_py.cluster.timeline import LINES_MAX, NS_PER_S, TURN_MAX, Timeline


class Clock:
    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


def listed(timeline: Timeline, revision: int, items: int = 2) -> None:
    body = b'{"items": [%b], "metadata": {"resourceVersion": "%d"}}' % (b",".join([b"{}"] * items), revision)
    timeline.request("op", "GET", "/api/v1/pods", None, None)(ApiResponse(200, body))


def test_a_program_that_polls_is_shown_once() -> None:
    clock = Clock()
    timeline = Timeline(clock)
    for second in range(100):
        clock.now_ns = second * NS_PER_S
        listed(timeline, 5 + second, items=3 if second == 98 else 2)
        timeline.add("op: GET /api/v1/nodes: 200 with 1 items at revision 7")
    assert timeline.lines() == [
        "    0.0000  op: GET /api/v1/pods: 200 with 2 items at revision 5",
        "    0.0000  op: GET /api/v1/nodes: 200 with 1 items at revision 7",
        "            ... these 2 lines 97 more times, until 97.0000 ...",
        "   98.0000  op: GET /api/v1/pods: 200 with 3 items at revision 103",
        "   98.0000  op: GET /api/v1/nodes: 200 with 1 items at revision 7",
        "   99.0000  op: GET /api/v1/pods: 200 with 2 items at revision 104",
        "   99.0000  op: GET /api/v1/nodes: 200 with 1 items at revision 7",
    ]


def test_a_write_that_is_repeated_keeps_its_revisions() -> None:
    timeline = Timeline(lambda: 0)
    for revision in range(5):
        answer = ApiResponse(200, b'{"metadata": {"resourceVersion": "%d"}}' % revision)
        timeline.request("op", "PATCH", "/api/v1/namespaces/a/pods/p", None, b"{}")(answer)
    assert len(timeline.lines()) == 5


@given(st.lists(st.sampled_from("abc"), max_size=60))
def test_what_is_left_out_can_be_put_back(texts: list[str]) -> None:
    clock = Clock()
    timeline = Timeline(clock)
    for at, text in enumerate(texts):
        clock.now_ns = at * NS_PER_S
        timeline.add(text)
    found: list[str] = []
    for line in timeline.lines():
        words = line.split()
        if words[0] != "...":
            found.append(words[1])
            continue
        period = int(words[2]) if words[1] == "these" else 1
        times = int(words[-6]) if words[1] == "these" else int(words[3])
        assert period <= TURN_MAX
        found += found[-period:] * times
        assert float(words[-2]) == len(found) - 1
    assert found == texts


def test_the_middle_of_a_long_one_is_left_out() -> None:
    timeline = Timeline(lambda: 0)
    for number in range(1000):
        timeline.add(f"line {number}")
    lines = timeline.lines()
    assert len(lines) == LINES_MAX + 1 and lines[LINES_MAX // 2] == "            ... 840 lines left out ..."
    assert lines[0].endswith("line 0") and lines[-1].endswith("line 999")
