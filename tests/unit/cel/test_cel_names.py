"""Names that upstream takes in one place and refuses in another."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from minikube_py.api.admission_expressions import condition
from minikube_py.cel.environment import Environment, compile
from minikube_py.cel.schemas import declared, seen
from minikube_py.cel.syntax import RESERVED, Invalid
from minikube_py.cel.types import Type

WORDS = sorted(RESERVED - {"true", "false", "null", "in"})


def of_schema(word: str) -> tuple[Environment, object]:
    schema = {"type": "object", "properties": {word: {"type": "string", "maxLength": 3}}}
    structs: dict[str, Mapping[str, Type]] = {}
    found = declared(schema)
    assert found is not None
    return Environment({"self": found.typed("self", structs)}, structs, found.size_of), seen({word: "a"}, schema)


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("form", ["{}", "__{}__"])
def test_a_reserved_word_names_a_field_plainly_and_escaped(word: str, form: str) -> None:
    environment, value = of_schema(word)
    name = form.format(word)
    for text in (f"has(self.{name})", f"self.{name} == 'a'", f"self.?{name}.orValue('b') == 'a'"):
        assert compile(text, environment).evaluate({"self": value}) is True


def test_other_words_need_their_escape() -> None:
    environment, _ = of_schema("a-b")
    assert compile("has(self.a__dash__b)", environment)
    with pytest.raises(Invalid, match="undefined field 'namespace'"):
        compile("has(self.namespace)", environment)


def test_bind_is_a_macro_of_devices_alone() -> None:
    found = condition("cel.bind(x, 1, x == 1)")
    assert isinstance(found, str) and "undeclared reference to 'bind'" in found
