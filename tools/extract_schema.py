#!/usr/bin/env python3
"""Writes minikube_py/api/schema_data.json: the shapes of Kubernetes' messages, read from its Go modules.

    python tools/extract_schema.py --modules "$(go env GOMODCACHE)/k8s.io" [--output FILE]

Sources are `generated.proto` (numbers and wire types) and the Go type declarations (JSON names, omitempty, embedding,
patch and list markers) of k8s.io/api, apimachinery, apiextensions-apiserver, kube-aggregator and metrics. Comments are
read only for their `+markers`; no text of theirs is kept. A developer's tool, run by hand when the modules change.

The table, one message per line:

    {"versions": {module: version},
     "packages": {"core/v1": {"group": "", "version": "v1", "kinds": ["Pod", ...]}},
     "named":    {"core/v1.PodPhase": ["string", [enum values]], "core/v1.ResourceList": ["map[...]...", []]},
     "custom":   ["resource.Quantity", ...],           types with JSON code of their own
     "atomic":   ["core/v1.NodeSelector", ...],        structs marked structType=atomic
     "messages": {"core/v1.Pod": [field, ...]}}

A field is `[json, type, number, flags]` or `[json, type, number, flags, extra]`. Types are Go's, with packages named by
their path below `k8s.io/api` or `k8s.io/apimachinery/pkg/apis` (`*core/v1.PodSpec`, `[]string`, `map[string][]byte`).
Number 0: not in protobuf. Flags: `e` omitempty, `z` omitzero, `i` inline (the JSON name is then the embedded field's Go
name), `r` required. `extra` may hold `ps` patch strategies, `mk` merge key, `lt` list type, `lk` list map keys, `mt`
map type, `st` struct type, `d` the default, `g` the Go name where it is not the capitalised JSON name.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

API, MACHINERY, EXTENSIONS, AGGREGATOR = "api", "apimachinery", "apiextensions-apiserver", "kube-aggregator"
METRICS = "metrics"
VERSION = "v0.36.2"
OUTPUT = Path(__file__).resolve().parent.parent / "minikube_py" / "api" / "schema_data.json"

OLD = frozenset(
    ("extensions/v1beta1", "apps/v1beta1", "apps/v1beta2", "imagepolicy/v1alpha1", "apiextensions/v1beta1")
)
"""Packages whose kinds the API server of this version no longer serves."""

OUTSIDE = {
    "k8s.io/apimachinery/pkg/api/resource": "resource",
    "k8s.io/apimachinery/pkg/util/intstr": "intstr",
    "k8s.io/apimachinery/pkg/runtime": "runtime",
    "k8s.io/apimachinery/pkg/types": "types",
}
"""Packages outside the API folders whose types the messages use, by the name they get in the table."""


class Unreadable(Exception):
    """The sources contain something this tool does not know."""


@dataclass
class GoField:
    go_name: str
    go_type: str
    tag: dict[str, str]
    markers: list[str]


@dataclass
class Package:
    name: str
    folder: Path
    group: str = ""
    structs: dict[str, list[GoField]] = field(default_factory=dict)
    named: dict[str, str] = field(default_factory=dict)
    enums: dict[str, list[str | tuple[str, str]]] = field(default_factory=dict)
    """Values by type: texts, or the package and name of a constant."""
    constants: dict[str, str] = field(default_factory=dict)
    custom: set[str] = field(default_factory=set)
    struct_markers: dict[str, list[str]] = field(default_factory=dict)
    registered: set[str] = field(default_factory=set)
    proto: dict[str, dict[int, tuple[str, str]]] = field(default_factory=dict)


# --- reading Go ------------------------------------------------------------------------------------------------------

_TYPE = re.compile(r"^type (\w+)\s+(=\s*)?(.+)$")
_FIELD = re.compile(r"^\t(?:(\w+(?:, \w+)*)\s+)?([\w.\[\]*]+(?:\{\})?)\s*(?:`([^`]*)`)?\s*(?://.*)?$")
_TAG = re.compile(r'(\w+):"((?:[^"\\]|\\.)*)"')
_CONST = re.compile(r'^\t?(?:const )?\s*(\w+)\s+(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"')
_CONVERTED = re.compile(r'^\t[A-Z]\w*\s+=\s*([A-Z]\w*)\((?:"((?:[^"\\]|\\.)*)"|(\w+)\.(\w+))\)')
_IMPORT = re.compile(r'^\t?(?:import )?(?:(\w+) )?"([\w./-]+)"$')
_MARSHALER = re.compile(r"^func \(\w+ \*?(\w+)\) UnmarshalJSON\(")
_REGISTERED = re.compile(r"^\t\t&(?:\w+\.)?(\w+)\{\},")


def go_files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.glob("*.go")):
        if not path.name.endswith("_test.go") and not path.name.startswith(("generated", "zz_generated")):
            yield path


def qualify(go_type: str, package: str, imports: dict[str, str]) -> str:
    """A Go type with every named type in the table's form."""

    def name(match: re.Match[str]) -> str:
        text = match.group(0)
        if "." in text:
            alias, bare = text.split(".")
            return f"{imports[alias]}.{bare}" if alias in imports else text
        return f"{package}.{text}" if text[0].isupper() else text

    return re.sub(r"(?:\w+\.)?\w+", name, go_type)


def imports_of(lines: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines:
        match = _IMPORT.match(line)
        if match is None:
            continue
        alias, path = match.groups()
        known = OUTSIDE.get(path) or table_name(path)
        if known:
            found[alias or path.rsplit("/", 1)[1]] = known
    return found


def table_name(path: str) -> str:
    others = (f"k8s.io/{module}/pkg/apis/" for module in (MACHINERY, EXTENSIONS, AGGREGATOR, METRICS))
    for prefix in (*others, "k8s.io/api/"):
        if path.startswith(prefix):
            return path[len(prefix) :]
    return ""


def read_go(package: Package) -> None:
    for path in go_files(package.folder):
        lines = path.read_text().splitlines()
        imports = imports_of(lines)
        markers: list[str] = []
        at = 0
        while at < len(lines):
            line = lines[at]
            at += 1
            if line.startswith("//"):
                markers += marker_of(line)
                continue
            match = _TYPE.match(line)
            if match is not None:
                at = read_type(package, match, lines, at, imports, markers)
            read_other(package, line, imports)
            # A blank line ends a comment block, but markers may be in a separate block above the type's.
            if line.strip():
                markers = []


def read_other(package: Package, line: str, imports: dict[str, str]) -> None:
    constant = _CONST.match(line)
    if constant is not None:
        package.constants[constant[1]] = json.loads(f'"{constant[3]}"')
        package.enums.setdefault(constant[2], []).append(json.loads(f'"{constant[3]}"'))
    converted = _CONVERTED.match(line)
    if converted is not None:
        of, text, alias, other = converted.groups()
        value = (imports[alias], other) if text is None else json.loads(f'"{text}"')
        package.enums.setdefault(of, []).append(value)
    marshaler = _MARSHALER.match(line)
    if marshaler is not None:
        package.custom.add(marshaler[1])
    registered = _REGISTERED.match(line)
    if registered is not None:
        package.registered.add(registered[1])
    group = re.match(r'^const GroupName = "([\w.]*)"', line)
    if group is not None:
        package.group = group[1]


def marker_of(line: str) -> list[str]:
    text = line.strip().removeprefix("//").strip()
    return [text[1:]] if text.startswith("+") and not text.startswith("+k8s:") else []


def read_type(
    package: Package, match: re.Match[str], lines: list[str], at: int, imports: dict[str, str], markers: list[str]
) -> int:
    name, is_alias, rest = match.groups()
    if rest == "struct {" and package.name not in OUTSIDE.values():
        package.structs[name] = []
        package.struct_markers[name] = markers
        return read_struct(package, name, lines, at, imports)
    if rest.replace(" ", "") == "struct{}":
        package.structs[name] = []
        return at
    if rest.startswith(("struct", "interface", "func")):
        return at
    base = rest.split("//")[0].strip()
    package.named[name] = qualify(base, package.name, imports)
    if "enum" not in markers and not is_alias:
        package.enums.setdefault(name, [])
    package.struct_markers[name] = markers
    return at


def read_struct(package: Package, name: str, lines: list[str], at: int, imports: dict[str, str]) -> int:
    markers: list[str] = []
    while lines[at] != "}":
        line = lines[at]
        at += 1
        if line.strip().startswith("//"):
            markers += marker_of(line)
            continue
        if line.strip().startswith("/*"):
            while "*/" not in lines[at - 1]:
                at += 1
            continue
        match = _FIELD.match(line)
        if match is None or not line.strip():
            if line.strip():
                raise Unreadable(f"{package.name}.{name}: {line!r}")
            continue
        go_name, go_type, tag_text = match.groups()
        tag = {key: json.loads(f'"{value}"') for key, value in _TAG.findall(tag_text or "")}
        go_name = go_name or go_type.lstrip("*").rsplit(".", 1)[-1]
        package.structs[name].append(GoField(go_name, qualify(go_type, package.name, imports), tag, markers))
        markers = []
    return at + 1


# --- reading protobuf ------------------------------------------------------------------------------------------------

_PROTO_FIELD = re.compile(r"^  (?:(optional|repeated|required) )?([\w.]+|map<[\w., ]+>) (\w+) = (\d+);")


def read_proto(package: Package) -> None:
    path = package.folder / "generated.proto"
    if not path.exists():
        return
    current: dict[int, tuple[str, str]] | None = None
    for line in path.read_text().splitlines():
        if line.startswith("message "):
            current = package.proto[line.split()[1]] = {}
        elif line.startswith("}"):
            current = None
        elif current is not None and (match := _PROTO_FIELD.match(line)):
            label, wire, name, number = match.groups()
            current[int(number)] = (name, f"repeated {wire}" if label == "repeated" else wire)


# --- joining both ----------------------------------------------------------------------------------------------------


def join(package: Package) -> dict[str, list[list[Any]]]:
    messages = {}
    for name, fields in sorted(package.structs.items()):
        if package.proto and name not in package.proto:
            continue
        rows = [row for go_field in fields if (row := join_field(package, name, go_field)) is not None]
        seen = {row[2] for row in rows if row[2]}
        missing = set(package.proto.get(name, {})) - seen
        if missing and name not in package.custom:
            raise Unreadable(f"{package.name}.{name}: protobuf fields {sorted(missing)} have no Go field")
        messages[f"{package.name}.{name}"] = rows
    return messages


def join_field(package: Package, message: str, go_field: GoField) -> list[Any] | None:
    tag = go_field.tag
    json_name, *options = tag.get("json", "").split(",")
    if json_name == "-" or ("json" not in tag and "protobuf" not in tag):
        return None
    number = int(tag["protobuf"].split(",")[1]) if tag.get("protobuf", "-") != "-" else 0
    if number and package.proto:
        proto_name = package.proto.get(message, {}).get(number, ("", ""))[0]
        if not proto_name:
            raise Unreadable(f"{package.name}.{message}.{go_field.go_name}: no protobuf field {number}")
    elif not package.proto:
        number = 0
    inline = "inline" in options
    flags = "e" * ("omitempty" in options) + "z" * ("omitzero" in options) + "i" * inline
    wire = package.proto.get(message, {}).get(number, ("", ""))[1]
    check_wire(package, message, go_field, wire)
    if is_required(options, go_field.markers) and not inline:
        flags += "r"
    row = [go_field.go_name if inline else json_name or go_field.go_name, go_field.go_type, number, flags]
    extra = extra_of(package, tag, go_field.markers)
    if not inline and go_field.go_name != json_name[:1].upper() + json_name[1:]:
        extra["g"] = go_field.go_name
    return [*row, extra] if extra else row


def is_required(options: list[str], markers: list[str]) -> bool:
    """Like kube-openapi: markers decide, otherwise fields that are always written are required."""
    if "optional" in markers:
        return False
    return "required" in markers or not ({"omitempty", "omitzero"} & set(options))


_WIRES = {
    "string": {"string"}, "bool": {"bool"}, "int32": {"int32"}, "int64": {"int64"}, "float64": {"double"},
    "int": {"int32", "int64"}, "[]byte": {"bytes"}, "uint32": {"uint32"}, "uint64": {"uint64"}, "byte": {"bytes"},
}  # fmt: skip


def check_wire(package: Package, message: str, go_field: GoField, wire: str) -> None:
    """Builtin Go types must have their usual wire type: the decoder relies on the Go type alone."""
    expected = _WIRES.get(go_field.go_type.lstrip("*"))
    if wire and expected is not None and wire not in expected:
        raise Unreadable(f"{package.name}.{message}.{go_field.go_name}: {go_field.go_type} travels as {wire}")


def extra_of(package: Package, tag: dict[str, str], markers: list[str]) -> dict[str, Any]:
    extra: dict[str, Any] = {}
    if tag.get("patchStrategy"):
        extra["ps"] = tag["patchStrategy"].split(",")
    if tag.get("patchMergeKey"):
        extra["mk"] = tag["patchMergeKey"]
    for marker in markers:
        key, _, value = marker.partition("=")
        if key == "listMapKey":
            extra.setdefault("lk", []).append(value)
        elif key in ("listType", "mapType", "structType"):
            extra[{"listType": "lt", "mapType": "mt", "structType": "st"}[key]] = value
        elif key == "default":
            reference = re.fullmatch(r"ref\((?:.*\.)?(\w+)\)", value)
            extra["d"] = package.constants[reference[1]] if reference else json.loads(value)
    return extra


def constant_values(package: Package, name: str, known: dict[str, Package]) -> list[str]:
    if "enum" not in package.struct_markers.get(name, []):
        return []
    values = package.enums.get(name, [])
    return sorted({each if isinstance(each, str) else known[each[0]].constants[each[1]] for each in values})


# --- the table -------------------------------------------------------------------------------------------------------


def packages(modules: Path) -> list[Package]:
    found: list[Package] = []
    roots = [
        (modules / f"{API}@{VERSION}", "*/*/types.go"),
        (modules / f"{MACHINERY}@{VERSION}" / "pkg" / "apis", "meta/v1/types.go"),
        (modules / f"{EXTENSIONS}@{VERSION}" / "pkg" / "apis", "*/v1/types.go"),
        (modules / f"{AGGREGATOR}@{VERSION}" / "pkg" / "apis", "*/v1/types.go"),
        (modules / f"{METRICS}@{VERSION}" / "pkg" / "apis", "metrics/v1beta1/types.go"),
    ]
    for root, pattern in roots:
        if not root.is_dir():
            raise Unreadable(f"{root} does not exist; fetch it with: go mod download k8s.io/{root.name}")
        for path in sorted(root.glob(pattern)):
            name = str(path.parent.relative_to(root))
            if name not in OLD:
                found.append(Package(name, path.parent))
    base = modules / f"{MACHINERY}@{VERSION}" / "pkg"
    for path_text, name in OUTSIDE.items():
        found.append(Package(name, base / path_text.removeprefix("k8s.io/apimachinery/pkg/")))
    for package in found:
        read_go(package)
        read_proto(package)
    return found


def build(modules: Path) -> dict[str, Any]:
    """The whole table. Raises: Unreadable."""
    table: dict[str, Any] = {
        "versions": dict.fromkeys((API, MACHINERY, EXTENSIONS, AGGREGATOR, METRICS), VERSION),
        "packages": {},
        "named": {},
        "custom": [],
        "atomic": [],
        "messages": {},
    }
    outside = set(OUTSIDE.values())
    known = {package.name: package for package in packages(modules)}
    for package in known.values():
        table["custom"] += [f"{package.name}.{name}" for name in sorted(package.custom)]
        if package.name in outside:
            table["named"] |= {f"{package.name}.{n}": [t, []] for n, t in package.named.items()}
            continue
        group = "" if package.name == "meta/v1" else package.group
        kinds = sorted(name for name, fields in package.structs.items() if is_kind(package, name, fields))
        table["packages"][package.name] = {
            "group": group, "version": package.name.rsplit("/", 1)[1], "kinds": kinds,
        }  # fmt: skip
        atomic = (name for name in package.structs if "structType=atomic" in package.struct_markers.get(name, ()))
        table["atomic"] += sorted(f"{package.name}.{name}" for name in atomic)
        for name, base in sorted(package.named.items()):
            table["named"][f"{package.name}.{name}"] = [base, constant_values(package, name, known)]
        table["messages"] |= join(package)
    keep_reachable(table)
    return table


def is_kind(package: Package, name: str, fields: list[GoField]) -> bool:
    return name in package.registered and any(f.go_type == "meta/v1.TypeMeta" for f in fields)


_NAMES = re.compile(r"[a-z][\w/]*\.\w+")


def keep_reachable(table: dict[str, Any]) -> None:
    """Drops named types that no message uses, and custom types that are not used either."""
    used: set[str] = set()
    messages = table["messages"]
    # Types with custom serialisation do not need the types of their Go fields.
    for name in set(table["custom"]) & set(messages):
        messages[name] = [row for row in messages[name] if not row[1].startswith("time.")]
    todo = [row[1] for rows in messages.values() for row in rows]
    while todo:
        for name in _NAMES.findall(todo.pop()):
            if name not in used:
                used.add(name)
                if name in table["named"]:
                    todo.append(table["named"][name][0])
    table["named"] = {name: value for name, value in table["named"].items() if name in used}
    table["custom"] = sorted(name for name in table["custom"] if name in used or name in table["messages"])
    unknown = {n for n in used if n not in table["named"] and n not in table["messages"] and n not in table["custom"]}
    if unknown:
        raise Unreadable(f"types used but not read: {sorted(unknown)}")


def render(table: dict[str, Any]) -> str:
    """Compact JSON, one entry per line, so that changes can be read."""

    def dump(value: Any) -> str:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)

    def block(entries: dict[str, Any]) -> str:
        return "{\n" + ",\n".join(f"{dump(key)}:{dump(value)}" for key, value in entries.items()) + "\n}"

    sections = (f"{dump(key)}:{block(v) if isinstance(v, dict) else dump(v)}" for key, v in table.items())
    return "{\n" + ",\n".join(sections) + "\n}\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="Extract message shapes from Kubernetes' Go modules.")
    parser.add_argument("--modules", type=Path, required=True, help='usually "$(go env GOMODCACHE)/k8s.io"')
    parser.add_argument("--output", type=Path, default=OUTPUT)
    arguments = parser.parse_args()
    try:
        text = render(build(arguments.modules))
    except Unreadable as error:
        print(f"extract_schema: {error}", file=sys.stderr)
        return 1
    arguments.output.write_text(text)
    print(f"{arguments.output}: {len(text)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
