"""Quantities against answers recorded from upstream's resource.Quantity (apimachinery 0.36)."""

from __future__ import annotations

import pytest

from minikube_py.fields import quantity
from minikube_py.fields.quantity import (
    FORMAT_WRONG,
    MAX_EXPONENT,
    NUMERIC_WRONG,
    SUFFIX_WRONG,
    QuantityError,
    from_json,
    milli_units,
    parse,
    resource_text,
    resource_units,
    whole_units,
)

# text, canonical text, format, value, milli-value
READ = [
    ("0", "0", "DecimalSI", 0, 0),
    ("1", "1", "DecimalSI", 1, 1000),
    ("01", "01", "DecimalSI", 1, 1000),
    ("+1", "+1", "DecimalSI", 1, 1000),
    ("1.", "1.", "DecimalSI", 1, 1000),
    (".", "0", "DecimalSI", 0, 0),
    ("+", "0", "DecimalSI", 0, 0),
    ("-", "0", "DecimalSI", 0, 0),
    ("m", "0", "DecimalSI", 0, 0),
    ("0Pi", "0", "BinarySI", 0, 0),
    ("1000", "1k", "DecimalSI", 1000, 1000000),
    ("1500m", "1500m", "DecimalSI", 2, 1500),
    ("1000m", "1", "DecimalSI", 1, 1000),
    ("0.5", "500m", "DecimalSI", 1, 500),
    (".5", "500m", "DecimalSI", 1, 500),
    ("0.5Gi", "512Mi", "BinarySI", 536870912, 536870912000),
    ("1.1Ki", "1126400m", "BinarySI", 1127, 1126400),
    ("0.001Ki", "1024m", "BinarySI", 2, 1024),
    ("0.5Ki", "512", "BinarySI", 512, 512000),
    ("1e3", "1e3", "DecimalExponent", 1000, 1000000),
    ("1E3", "1E3", "DecimalExponent", 1000, 1000000),
    ("1e+3", "1e+3", "DecimalExponent", 1000, 1000000),
    ("10e3", "10e3", "DecimalExponent", 10000, 10000000),
    ("1000e3", "1e6", "DecimalExponent", 1000000, 1000000000),
    ("1e-3", "1e-3", "DecimalExponent", 1, 1),
    ("1024Ki", "1Mi", "BinarySI", 1048576, 1048576000),
    ("1025Ki", "1025Ki", "BinarySI", 1049600, 1049600000),
    ("0.1n", "1n", "DecimalSI", 1, 1),
    ("1e-30", "1e-9", "DecimalExponent", 1, 1),
    ("16384Mi", "16Gi", "BinarySI", 17179869184, 17179869184000),
    ("1.5Gi", "1536Mi", "BinarySI", 1610612736, 1610612736000),
    ("-1.5", "-1500m", "DecimalSI", -2, -1500),
    ("0.3Pi", "337769972052787200m", "BinarySI", 337769972052788, 337769972052787200),
]
REFUSED = [
    ("", FORMAT_WRONG),
    (" 1", FORMAT_WRONG),
    ("1 ", FORMAT_WRONG),
    ("1.1.1", FORMAT_WRONG),
    ("abc", FORMAT_WRONG),
    ("1_0", FORMAT_WRONG),
    ("1٣", FORMAT_WRONG),
    ("1\n", FORMAT_WRONG),
    ("Pi", NUMERIC_WRONG),
    ("1e", SUFFIX_WRONG),
    ("1Ee3", SUFFIX_WRONG),
    ("1i", SUFFIX_WRONG),
    ("1K", SUFFIX_WRONG),
    ("--1", SUFFIX_WRONG),
    (f"1e{MAX_EXPONENT + 1}", SUFFIX_WRONG),
    ("1e99999999999999999999999", SUFFIX_WRONG),
    ("9" * 5000, FORMAT_WRONG),
]


@pytest.mark.parametrize(("text", "canonical", "format", "value", "milli"), READ, ids=[row[0] for row in READ])
def test_reads_and_prints_as_the_original(text: str, canonical: str, format: str, value: int, milli: int) -> None:
    quantity = parse(text)
    assert (str(quantity), quantity.format, quantity.value(), quantity.milli_value()) == (
        canonical,
        format,
        value,
        milli,
    )


def test_caps_binary_quantities_as_the_original() -> None:
    assert str(parse("100Ei")) == "9223372036854775807"
    assert str(parse("-100Ei")) == "-9223372036854775807"


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=[repr(row[0])[:20] for row in REFUSED])
def test_refuses_in_the_originals_words(text: str, message: str) -> None:
    with pytest.raises(QuantityError) as refused:
        parse(text)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("value", "canonical"),
    [(1, "1"), (0.5, "500m"), (" 1Gi ", "1Gi"), (None, "0"), (1000, "1k"), (1e22, "10e21"), (-3, "-3")],
)
def test_reads_json_values(value: object, canonical: str) -> None:
    assert str(from_json(value)) == canonical


@pytest.mark.parametrize("value", [True, [], {}, float("nan"), float("inf")], ids=str)
def test_refuses_json_that_is_no_quantity(value: object) -> None:
    with pytest.raises(QuantityError):
        from_json(value)


def test_units_are_milli_for_cpu_and_whole_otherwise_rounded_up() -> None:
    assert resource_units("cpu", "0.0001") == 1
    assert resource_units("cpu", "2") == 2000
    assert resource_units("memory", "0.5") == 1
    assert resource_units("openb.io/gpu-milli", "8k") == 8000
    assert [resource_text("cpu", 1500), resource_text("memory", 1 << 34), resource_text("x.io/y", 8000)] == [
        "1500m",
        "16Gi",
        "8k",
    ]


def test_units_beyond_64_bits_are_refused() -> None:
    for read in (whole_units, milli_units):
        with pytest.raises(QuantityError):
            read("1e30")


@pytest.mark.parametrize(
    ("left", "right", "order"),
    [("1", "1000m", 0), ("1Ki", "1k", 1), ("-1", "0", -1), ("1e3", "1k", 0), ("1n", "1u", -1)],
)
def test_compares_by_value(left: str, right: str, order: int) -> None:
    assert parse(left).compare(parse(right)) == order
    assert parse(right).compare(parse(left)) == -order


def test_adds_in_the_format_of_the_first_unless_it_is_zero() -> None:
    assert str(parse("1Gi").plus(parse("512Mi"))) == "1536Mi"
    assert str(parse("0").plus(parse("1Gi"))) == "1Gi"
    assert str(parse("1500m").minus(parse("1"))) == "500m"


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from minikube_py.fields import quantity

    monkeypatch.setattr(quantity, "_CACHE_LIMIT", 10)
    for number in range(100):
        quantity.parse(f"{number}m")
        quantity.milli_units(f"{number}.5m")
    assert len(quantity._parsed) <= 10
    assert len(quantity._milli) <= 10


def test_long_texts_are_not_kept() -> None:
    """A cache of 20,000 may not hold texts of 4 KB each, which anybody may send."""
    long = "0" * 4000 + "77"
    assert quantity.whole_units(long) == 77 and quantity.milli_units(long) == 77_000
    assert quantity.wide_units("cpu", long) == 77_000 and quantity.parse(long).value() == 77
    held = (quantity._parsed, quantity._whole, quantity._milli, quantity._wide)
    assert not any(long in kept or (True, long) in kept for kept in held)
