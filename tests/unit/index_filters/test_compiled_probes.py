"""The compiled probes' loops give the filters' own answers, also run as plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from needs import require_numba

from minikube_py.index.filters import compiled as module
from minikube_py.index.filters.catalogue import filter_of
from minikube_py.index.filters.compiled import compiled, numba_jit
from minikube_py.index.structure import HIGH, LOW, MISSING


def as_it_is(function: Any) -> Any:
    return function


def numbas() -> Any:
    require_numba()
    return numba_jit()


JITS = {"plain": lambda: as_it_is, "numba": numbas}

CASES: list[tuple[str, dict[str, Any]]] = [
    ("bloom", {"bits_per_key": 6, "max_probes": 64}),
    ("prefix-bloom", {"bits_per_key": 6, "shift": 4, "max_probes": 64}),
    ("rosetta", {"bits_per_key": 24, "max_length": 16, "max_probes": 64}),
    ("rosetta", {"bits_per_key": 12, "max_length": 1, "allocation": "single", "max_probes": 64}),
    ("rosetta", {"bits_per_key": 12, "max_length": 64, "allocation": "equilibrium", "max_probes": 64}),
    ("grafite", {"bits_per_key": 5}),
    ("grafite", {"bits_per_key": 2.5, "storage": "codes"}),
    ("memento", {"bits_per_key": 8, "memento_bits": 4, "max_probes": 64}),
    ("memento", {"bits_per_key": 12, "memento_bits": 0, "max_probes": 64}),
]


def questions(keys: list[int]) -> tuple[Any, Any]:
    lows, highs = [], []
    for key in [MISSING, LOW, 0, HIGH, *keys[:40]]:
        for before, after in ((0, 0), (1, -1), (-1, 1), (-1, 40), (20, -3), (30, 30), (0, 1 << 20)):
            low, high = max(MISSING, min(HIGH, key - before)), max(MISSING, min(HIGH, key + after))
            lows.append(low)
            highs.append(high)
    return np.array([*lows, MISSING]), np.array([*highs, HIGH])


@pytest.mark.parametrize("kind", JITS)
@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
def test_answers_are_those_of_the_filter(name: str, options: dict[str, Any], kind: str) -> None:
    jit = JITS[kind]()
    rng = np.random.default_rng(8)
    random = rng.integers(MISSING, HIGH, 300, endpoint=True)
    for keys in (random, rng.integers(0, 2000, 300), np.array([MISSING, LOW, HIGH, HIGH, 0]), random[:0]):
        held = filter_of(name, keys, **options)
        lows, highs = questions(keys.tolist())
        with np.errstate(over="ignore"):
            probe = compiled(held, jit)
            many = probe.many(lows, highs)
            one = [probe.one(low, high) for low, high in zip(lows[:20].tolist(), highs[:20].tolist())]
        assert probe.form == "compiled" and probe.why == ""
        assert many.tolist() == list(held.may_contain_many(lows, highs)), name
        assert one == many[:20].tolist()
        if len(keys):
            assert many.any() and (not many.all() or len(keys) == 5)


def test_a_memento_that_has_changed_or_is_full() -> None:
    held: Any = filter_of("memento", np.arange(60, dtype=np.int64) * 1000, 8)
    lows = np.arange(0, 90_000, 500)
    for key in range(60_000, 90_000, 1000):
        held.insert(key)
    with np.errstate(over="ignore"):
        assert compiled(held, as_it_is).many(lows, lows).tolist() == held.may_contain_many(lows, lows).tolist()
        held.saturated = True
        assert compiled(held, as_it_is).many(lows, lows).all()


def test_without_numba_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "numba_jit", lambda: None)
    keys = np.array([1, 5, 9])
    held = filter_of("bloom", keys, 16)
    probe = compiled(held)
    assert (probe.form, probe.why) == ("numpy", "numba is not installed: pip install numba")
    assert probe.one(5, 5) and probe.many(keys, keys).all()
    assert compiled(filter_of("oracle", keys, 16)).why == "the filter oracle has no compiled form"
