"""Makes `minikube_py/api/validation/pod_layout.json`: the field order of upstream's internal types.

    python tools/extract_pod_layout.py "$(go env GOMODCACHE)/k8s.io" v1.36.2 v0.36.2

The layout is needed for errors that print internal types: the diff of a refused update of a pod, claim or volume, and
values of events and flow schemas. Each type is one text: its fields in order, as `GoName`, `=jsonName` where that is
not the Go name with its first letter lowered (`=-` where the field is elsewhere in JSON), and a mark: `$` text, `#`
number, `!` boolean, `?` null when missing, `%` map, `[T` list, `*T` pointer, `.T` value, `@T` fields of T in this
place.
"""

from __future__ import annotations

import json
import pathlib
import re
import sys

Field = tuple[str, str, str]
"""Go name (empty where embedded), Go type, JSON name."""

ROOTS = {
    "core": (
        "PodSpec", "PersistentVolumeClaimSpec", "PersistentVolumeSpec", "VolumeNodeAffinity", "ObjectReference",
        "EventSource",
    ),
    "flowcontrol": ("FlowSchemaSpec", "PriorityLevelConfigurationSpec"),
}  # fmt: skip
_SCALARS = {"string": "$", "UID": "$", "NodeName": "$", "bool": "!", "int": "#", "int32": "#", "int64": "#"}


def read_types(path: pathlib.Path) -> tuple[dict[str, list[Field]], dict[str, str]]:
    """The structs of a `types.go`, and the named types that alias others."""
    structs: dict[str, list[Field]] = {}
    aliases: dict[str, str] = {}
    current = ""
    for line in path.read_text().splitlines():
        if match := re.match(r"type (\w+) struct \{", line):
            current = match[1]
            structs[current] = []
        elif match := re.match(r"type (\w+) (string|int32|map\[\S+|\[\]\S+)\s*$", line):
            aliases[match[1]] = match[2]
        elif line.startswith("}"):
            current = ""
        elif current and (text := line.strip()) and not text.startswith("//"):
            tag = re.search(r'json:"([^",]*)', text)
            parts = re.sub(r"`.*|//.*", "", text).split()
            name, kind = ("", parts[0]) if len(parts) == 1 else (parts[0], parts[1])
            structs[current].append((name, kind, tag[1] if tag else ""))
    return structs, aliases


class Extractor:
    def __init__(self, internal: pathlib.Path, versioned: pathlib.Path) -> None:
        self._structs, self._aliases = read_types(internal)
        self._json = {
            (struct, name): json_name
            for struct, fields in read_types(versioned)[0].items()
            for name, _, json_name in fields
        }
        self.layout: dict[str, str] = {}

    def _mark(self, kind: str) -> str:
        pointer = kind.startswith("*")
        kind = kind.lstrip("*")
        if kind.startswith("[]"):
            return "[" + self._mark(kind[2:]).lstrip(".")
        if kind.startswith("map[") or kind == "ResourceList":
            return "%"
        if kind.startswith("metav1."):
            return "?"
        name = kind.rpartition(".")[2]
        if name in self._aliases:
            return self._mark(("*" if pointer else "") + self._aliases[name])
        if name in self._structs:
            self.visit(name)
            return ("*" if pointer else ".") + name
        if pointer:
            return "?"
        return _SCALARS.get(name, "#" if name in ("IntOrString", "Quantity") else "?")

    def visit(self, struct: str) -> None:
        if struct in self.layout:
            return
        self.layout[struct] = ""
        fields = []
        for name, kind, _ in self._structs[struct]:
            if not name:
                base = kind.rpartition(".")[2].lstrip("*")
                if base in self._structs:
                    self.visit(base)
                    fields.append(f"@{base}")
                continue
            json_name = self._json.get((struct, name), "-")
            derived = name[0].lower() + name[1:]
            fields.append(name + ("" if json_name == derived else f"={json_name}") + self._mark(kind))
        self.layout[struct] = " ".join(fields)


def main() -> None:
    modules, kubernetes, staging = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    layout: dict[str, str] = {}
    for group, structs in ROOTS.items():
        internal = modules / f"kubernetes@{kubernetes}/pkg/apis/{group}/types.go"
        extractor = Extractor(internal, modules / f"api@{staging}/{group}/v1/types.go")
        for struct in structs:
            extractor.visit(struct)
        layout |= extractor.layout
    target = pathlib.Path(__file__).parents[1] / "minikube_py/api/validation/pod_layout.json"
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(text)}" for name, text in sorted(layout.items()))
    target.write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main()
