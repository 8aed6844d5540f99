"""Two pod specs compared line by line, as a refused update shows them."""

from __future__ import annotations

import difflib

import orjson

from minikube_py.api.errors import Json


def spec_diff(old: Json, new: Json) -> str:
    """Hunks of a unified diff with three lines of context."""
    before, after = (orjson.dumps(spec, option=orjson.OPT_INDENT_2).decode().splitlines(True) for spec in (old, new))
    return "".join(list(difflib.unified_diff(before, after, n=3))[2:])
