"""Expressions over a device, good or not: the keys of `data/expressions.json`, which holds upstream's answers."""

from __future__ import annotations

import json
from pathlib import Path

EXPRESSIONS: tuple[str, ...] = tuple(json.loads((Path(__file__).parent / "data" / "expressions.json").read_text()))
