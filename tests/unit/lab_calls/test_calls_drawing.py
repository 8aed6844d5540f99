"""Diagrams are well-formed, hold every lane and word, and tell what repeats once."""

from xml.etree import ElementTree

import pytest

from minikube_py.lab.calls.drawing import Arrow, Diagram, Note, svg, time_text
from minikube_py.lab.calls.recorder import Call
from minikube_py.lab.calls.story import pod_story, repeated, rows_of

SVG = "{http://www.w3.org/2000/svg}"


def _ask(text: str = "get") -> Arrow:
    return Arrow("a", "b", text, "request", 1.0)


def _answer() -> Arrow:
    return Arrow("b", "a", "done", "reply", 1.5)


def test_every_lane_and_text_is_drawn_within_the_picture() -> None:
    two = ("a text that is far longer than two", "lanes usually are apart <&>")
    long = " ".join(two)
    rows = (_ask(), Arrow("b", "c", long, "request", 1.001), Arrow("c", "c", "thinks", "own"), Note("and now?"))
    root = ElementTree.fromstring(svg(Diagram("Title", "below", ("a", "b", "c"), rows)))
    texts = [each.text for each in root.iter(f"{SVG}text")]
    assert {"Title", "below", "a", "b", "c", "get", *two, "thinks", "and now?", "0 µs", "1.00 ms"} <= set(texts)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for line in root.iter(f"{SVG}line"):
        assert all(0 <= float(line.attrib[x]) <= width for x in ("x1", "x2"))
        assert all(0 <= float(line.attrib[y]) <= height for y in ("y1", "y2"))


@pytest.mark.parametrize(
    ("rows", "texts"),
    [
        ([_ask()] * 3, ["get  × 3"]),
        ([_ask(), _answer()] * 3, ["get  × 3 (with the next 1)", "done"]),
        ([_ask(), _answer(), _ask("put"), _answer()], ["get", "done", "put", "done"]),
        ([_ask(), Note("cut"), _ask()], ["get", "cut", "get"]),
    ],
)
def test_what_repeats_stands_once(rows: list[Arrow | Note], texts: list[str]) -> None:
    assert [row.text for row in repeated(rows)] == texts


@pytest.mark.parametrize(("seconds", "text"), [(0.0, "0 µs"), (5e-5, "50 µs"), (0.0015, "1.50 ms"), (2.5, "2.50 s")])
def test_times(seconds: float, text: str) -> None:
    assert time_text(seconds) == text


def test_answers_come_in_order_of_time_between_later_questions() -> None:
    outer = Call("api", "user", "API server", "POST pods", "pods", ("n/a",), 1.0, 4.0, "201", 1)
    inner = Call("store", "user", "API server", "txn: create", "pods", ("n/a",), 2.0, 3.0, "done", 1, "revision 9")
    refused = Call("api", "user", "API server", "GET pods", "pods", (), 5.0, 6.0, "410", 2)
    kinds = [(arrow.source, arrow.target, arrow.text, arrow.kind) for arrow in rows_of([outer, refused, inner])]
    assert kinds == [
        ("user", "API server", "POST pods", "request"),
        ("API server", "store", "txn: create of pods", "request"),
        ("store", "API server", "revision 9", "reply"),
        ("API server", "user", "201", "reply"),
        ("user", "API server", "GET pods", "request"),
        ("API server", "user", "410", "refused"),
    ]


def test_without_a_pods_whole_way_there_is_no_story() -> None:
    only = Call("store", "user", "API server", "txn: create", "pods", ("n/a",), 2.0, 3.0, "done", 1)
    assert pod_story([only]) is None
