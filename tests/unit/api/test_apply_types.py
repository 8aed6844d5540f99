"""The types of apply beside upstream's, which are in client-go (tests/conformance/record_apply_types.py)."""

from __future__ import annotations

import json
from pathlib import Path

from minikube_py.api.apply.types import Ref, message_type
from minikube_py.api.schema import SCHEMA

FACTS = json.loads((Path(__file__).parents[2] / "conformance" / "data" / "apply_types.json").read_text())


def said(ref: Ref) -> str:
    atom = ref.atom
    if atom.scalar is not None:
        return "any" if atom.map is not None else atom.scalar
    if atom.list is not None:
        keys = ",".join(atom.list.keys)
        return f"list {f'map {keys}' if keys else 'set' if atom.list.associative else 'atomic'}"
    assert atom.map is not None
    return "map atomic" if atom.map.atomic else "map"


def test_the_types_of_all_messages_are_upstreams() -> None:
    compared = 0
    for name, theirs in FACTS.items():
        if not SCHEMA.has(name):
            continue
        ref = message_type(name)
        struct = ref.atom.map
        assert struct is not None
        mine = {"": said(ref)}
        for field, declared in struct.fields.items():
            default = "" if declared.default is None else f" = {json.dumps(declared.default)}"
            mine[field] = said(declared.type) + default
        assert mine == theirs, name
        compared += len(theirs)
    print(f"types: {compared} fields compared")
    assert compared > 3000
