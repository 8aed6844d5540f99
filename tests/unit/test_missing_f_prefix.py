"""A string beside an f-string shows its braces to the user when its own `f` is missing."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

PRODUCT = Path(__file__).parents[2] / "minikube_py"
FIELD = re.compile(r"(?<!\{)\{[a-zA-Z_][^{}\s\"']*\}(?!\})")


def without_prefix(source: str) -> Iterator[str]:
    """The strings with a field in braces that are joined to an f-string without being one."""
    plain: list[str] = []
    formatted, depth = False, 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        name = tokenize.tok_name[token.type]
        if name in ("FSTRING_START", "FSTRING_END"):
            formatted = True
            depth += 1 if name == "FSTRING_START" else -1
        elif depth or name in ("NL", "COMMENT"):
            continue
        elif name == "STRING" and "f" in token.string.partition(token.string[-1])[0].lower():
            formatted = True
        elif name == "STRING":
            plain.append(token.string)
        else:
            yield from (each for each in plain if formatted and FIELD.search(each))
            plain, formatted = [], False


def test_no_text_lacks_its_f() -> None:
    found = {
        path.relative_to(PRODUCT).as_posix(): texts
        for path in PRODUCT.rglob("*.py")
        if (texts := list(without_prefix(path.read_text("utf-8"))))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ('raise E(\n    f"{a:,} pods, "\n    "then {QUIET_S:.0f} s"\n)\n', 1),
        ('x = "{a}" f"{b}"\n', 1),
        ('x = f"{a}" f"{b}"\ny = "{c}"\n', 0),
        ('x = f"{a}" "{{b}}" \'{"kind":1}\'\n', 0),
        ('x = rf"{a}" "b"\nf(f"{a}", "{b}")\n', 0),
    ],
)
def test_what_is_found(source: str, count: int) -> None:
    assert len(list(without_prefix(source))) == count
