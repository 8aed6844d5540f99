"""Amounts of resources by name, added and compared as `apiserver/pkg/quota/v1/resources.go` does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from minikube_py.fields import quantity
from minikube_py.fields.quantity import ZERO, Quantity

Amounts = dict[str, Quantity]
ONE: Final = quantity.parse("1")


def read(texts: Mapping[str, str] | None) -> Amounts:
    return {name: quantity.parse(text) for name, text in (texts or {}).items()}


def written(amounts: Mapping[str, Quantity]) -> dict[str, str]:
    return {name: str(amounts[name]) for name in sorted(amounts)}


def plus(left: Mapping[str, Quantity], right: Mapping[str, Quantity]) -> Amounts:
    total = dict(left)
    for name, amount in right.items():
        known = total.get(name)
        total[name] = amount if known is None else known.plus(amount)
    return total


def largest(*given: Mapping[str, Quantity]) -> Amounts:
    most: Amounts = {}
    for amounts in given:
        for name, amount in amounts.items():
            if name not in most or amount.compare(most[name]) > 0:
                most[name] = amount
    return most


def above(left: Mapping[str, Quantity], right: Mapping[str, Quantity]) -> Amounts:
    """How much more there is on the left, by name: nothing at least."""
    rest = {name: amount.minus(right[name]) if name in right else amount for name, amount in left.items()}
    return {name: rest[name] if name in rest and rest[name].unscaled > 0 else ZERO for name in {**rest, **right}}


def mask(amounts: Mapping[str, Quantity], names: Iterable[str]) -> Amounts:
    kept = set(names)
    return {name: amount for name, amount in amounts.items() if name in kept}


def same(left: Mapping[str, Quantity], right: Mapping[str, Quantity]) -> bool:
    return left.keys() == right.keys() and all(not amount.compare(right[name]) for name, amount in left.items())


def shown(amounts: Mapping[str, Quantity]) -> str:
    return ",".join(f"{name}={amounts[name]}" for name in sorted(amounts))
