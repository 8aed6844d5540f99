"""Writes down upstream's types for apply: of each message, which lists and maps are owned item by item, and how.

    python tests/conformance/record_apply_types.py

They are in client-go (applyconfigurations/internal/internal.go), made from the API server's OpenAPI document.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

DATA = Path(__file__).parent / "data" / "apply_types.json"
SOURCE = "k8s.io/client-go@v0.36.2/applyconfigurations/internal/internal.go"
_ROOTS = r"api|apimachinery\.pkg\.apis|apiextensions-apiserver\.pkg\.apis"
_NAMED = re.compile(rf"io\.k8s\.(?:{_ROOTS})\.(\w+)\.(v\w+)\.(\w+)$")


def said(atom: dict[str, Any], named: dict[str, Any]) -> str:
    """A type in a word or two: `string`, `list map a,b`, `list set`, `list atomic`, `map`, `map atomic`, `any`."""
    relationship = atom.get("elementRelationship")
    found = named[atom["namedType"]] if "namedType" in atom else atom
    if "scalar" in found:
        return "any" if "map" in found else found["scalar"]
    if "list" in found:
        keys = ",".join(found["list"].get("keys", ()))
        associative = found["list"]["elementRelationship"] == "associative"
        return f"list {f'map {keys}' if keys else 'set' if associative else 'atomic'}"
    atomic = (relationship or found["map"].get("elementRelationship")) == "atomic"
    return "map atomic" if atomic else "map"


def main() -> None:
    cache = subprocess.run(("go", "env", "GOMODCACHE"), capture_output=True, text=True, check=True).stdout.strip()
    text = re.search(r"YAMLObject\(`(.*?)`\)", (Path(cache) / SOURCE).read_text(), re.DOTALL)
    assert text is not None
    named = {each["name"]: each for each in yaml.safe_load(text[1])["types"]}
    found = {}
    for name, type_ in named.items():
        if (match := _NAMED.match(name)) is None or "map" not in type_:
            continue
        fields = {"": said(type_, named)}
        for field in type_["map"].get("fields", ()):
            default = field.get("default")
            words = said(field["type"], named)
            fields[field["name"]] = words if default in (None, {}) else f"{words} = {json.dumps(default)}"
        found["{}/{}.{}".format(*match.groups())] = fields
    DATA.write_text(json.dumps(found, separators=(",", ":")) + "\n")
    print(f"{DATA.name}: {len(found)} messages")


if __name__ == "__main__":
    main()
