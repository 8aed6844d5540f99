"""Numbers of custom objects, as Go's encoder writes them and its decoder reads them again."""

from __future__ import annotations

import json
import struct
from decimal import Decimal

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikube_py.api import go_json, go_numbers, yaml_text
from minikube_py.api.go_format import go_float

# Printed by Go 1.26: encoding/json, and fmt's %v.
WRITTEN = {
    3.0: ("3", "3"), 1e3: ("1000", "1000"), 1e6: ("1000000", "1e+06"), 1234567.5: ("1234567.5", "1.2345675e+06"),
    1e18: ("1000000000000000000", "1e+18"), 1e20: ("100000000000000000000", "1e+20"), 1e21: ("1e+21", "1e+21"),
    9.223372036854776e18: ("9223372036854776000", "9.223372036854776e+18"), 1e-5: ("0.00001", "1e-05"),
    1e-6: ("0.000001", "1e-06"), 0.0001: ("0.0001", "0.0001"),
    9.9e-6: ("0.0000099", "9.9e-06"), 1e-7: ("1e-7", "1e-07"),
    5e-324: ("5e-324", "5e-324"), 123456.0: ("123456", "123456"), 0.1: ("0.1", "0.1"),
}  # fmt: skip


@pytest.mark.parametrize("value", sorted(WRITTEN))
def test_floats_are_written_as_by_go(value: float) -> None:
    assert go_json.dumps(go_numbers.written({"a": [value]})).decode() == f'{{"a":[{WRITTEN[value][0]}]}}'
    assert go_float(value) == WRITTEN[value][1]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_what_is_written_is_the_same_number_and_stays_the_same_text(value: float) -> None:
    text = go_json.dumps(go_numbers.written([value]))
    assert struct.pack("d", json.loads(text)[0]) == struct.pack("d", value + 0.0 if value else 0.0)
    again = orjson.loads(text)
    go_numbers.read(again)
    assert go_json.dumps(go_numbers.written(again)) == text
    assert Decimal(go_float(value)) == Decimal(repr(value))


@pytest.mark.parametrize(
    ("text", "value"),
    [("3.0", 3), ("1e18", 10**18),
     ("1e19", 1e19), ("1.5", 1.5), ("1e21", 1e21), ("-0.0", 0), ("9007199254740993.0", 1 << 53)],
)  # fmt: skip
def test_numbers_by_yaml_are_whole_where_their_digits_are(text: str, value: float) -> None:
    found, _ = yaml_text.read(f"a: {text}".encode())
    assert found["a"] == value and type(found["a"]) is type(value)
