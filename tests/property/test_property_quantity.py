"""Laws of quantities: printing, order and addition agree with exact fractions."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import example, given
from hypothesis import strategies as st

from minikube_py.fields.quantity import (
    Quantity,
    QuantityError,
    from_milli,
    from_value,
    parse,
    resource_text,
    resource_units,
)

SUFFIXES = {
    "": Fraction(1), "m": Fraction(1, 1000), "u": Fraction(1, 10**6), "n": Fraction(1, 10**9), "k": Fraction(10**3),
    "M": Fraction(10**6), "G": Fraction(10**9), "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30),
    "e3": Fraction(10**3), "E-3": Fraction(1, 1000),
}  # fmt: skip
NUMBERS = st.from_regex(r"[+-]?[0-9]{1,6}(\.[0-9]{0,3})?", fullmatch=True).filter(str.isascii)
TEXTS = st.tuples(NUMBERS, st.sampled_from(sorted(SUFFIXES)))


def exact(number: str, suffix: str) -> Fraction:
    """The value, rounded away from zero to 10**-9 as every quantity is."""
    nanos = Fraction(number.rstrip(".") or "0") * SUFFIXES[suffix] * 10**9
    rounded = -(-abs(nanos) // 1)
    return Fraction(rounded if nanos >= 0 else -rounded, 10**9)


@given(TEXTS)
def test_a_quantity_is_its_fraction(drawn: tuple[str, str]) -> None:
    quantity = parse("".join(drawn))
    assert Fraction(quantity.at_scale(-9), 10**9) == exact(*drawn)
    whole, milli = Fraction(quantity.value()), Fraction(quantity.milli_value(), 1000)
    assert 0 <= abs(whole) - abs(exact(*drawn)) < 1
    assert 0 <= abs(milli) - abs(exact(*drawn)) < Fraction(1, 1000)


@given(TEXTS)
def test_printing_is_canonical_and_keeps_the_value(drawn: tuple[str, str]) -> None:
    quantity = parse("".join(drawn))
    printed = str(quantity)
    assert parse(printed).compare(quantity) == 0
    assert str(parse(printed)) == printed


@given(st.text(alphabet="0123456789.-", max_size=12), st.sampled_from([*SUFFIXES, "Ti", "Ei", "i", "Gm"]))
@example("9" * 9, "Gi").via("the most that is read fast")
@example("9" * 10, "Gi").via("does not fit an int64")
@example("", "m").via("no digits")
def test_what_is_read_fast_is_what_is_read_exactly(number: str, suffix: str) -> None:
    text = number + suffix
    for resource, exactly in (("cpu", Quantity.milli_value), ("memory", Quantity.value)):
        try:
            value = exactly(parse(text))
            expected = value if -(2**63) <= value < 2**63 else "refused"
        except QuantityError:
            expected = "refused"
        try:
            units: int | str = resource_units(resource, text)
        except QuantityError:
            units = "refused"
        assert units == expected, (resource, text)


@given(TEXTS, TEXTS)
def test_order_and_sums_are_those_of_fractions(left: tuple[str, str], right: tuple[str, str]) -> None:
    one, other = parse("".join(left)), parse("".join(right))
    a, b = exact(*left), exact(*right)
    assert one.compare(other) == (a > b) - (a < b)
    assert Fraction(one.plus(other).at_scale(-9), 10**9) == a + b
    assert Fraction(one.minus(other).at_scale(-9), 10**9) == a - b
    assert str(parse(str(one.plus(other)))) == str(one.plus(other))


@given(st.integers(-(2**62), 2**62), st.sampled_from(["cpu", "memory", "openb.io/gpu-milli", "ephemeral-storage"]))
def test_units_survive_being_printed(units: int, resource: str) -> None:
    assert resource_units(resource, resource_text(resource, units)) == units
    assert from_value(units).value() == from_milli(units).at_scale(-3) == units


@given(st.text(alphabet="0123456789.+-eEinumkKMGTP _a", max_size=12))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        quantity = parse(text)
    except QuantityError:
        return
    assert parse(str(quantity)).value() is not None
