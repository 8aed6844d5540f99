"""The diagrams in the docs are what tools/diagrams.py draws of today's layers."""

from xml.etree import ElementTree

import pytest
from diagrams import DIAGRAMS, IMAGES, LIFE, PLAIN, WIDTH, architecture, layers


@pytest.mark.parametrize("name", DIAGRAMS)
def test_the_committed_diagram_is_drawn_from_what_is_so(name: str) -> None:
    assert (IMAGES / name).read_text(encoding="utf-8") == DIAGRAMS[name](), "run python tools/diagrams.py"


def test_every_package_has_a_box_and_plain_words() -> None:
    packages = {name for row in layers() for name in row}
    assert packages == set(PLAIN)
    texts = [each.text for each in ElementTree.fromstring(architecture()).iter() if each.get("class") == "name"]
    assert sorted(filter(None, texts)) == sorted(packages)


@pytest.mark.parametrize("name", DIAGRAMS)
def test_boxes_are_within_the_picture_and_apart(name: str) -> None:
    tree = ElementTree.fromstring(DIAGRAMS[name]())
    height = float(tree.attrib["viewBox"].split()[3])
    boxes = [
        tuple(float(each.attrib[part]) for part in ("x", "y", "width", "height"))
        for each in tree.iter()
        if each.get("class") == "box"
    ]
    assert len(boxes) >= len(LIFE)
    for number, (x, y, wide, high) in enumerate(boxes):
        assert x >= 0 and y >= 0 and x + wide <= WIDTH and y + high <= height
        for other_x, other_y, other_wide, other_high in boxes[:number]:
            beside = x >= other_x + other_wide or other_x >= x + wide
            assert beside or y >= other_y + other_high or other_y >= y + high
