"""The table of messages, and the tool that makes it."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from needs import absent

from minikube_py.api.registry import REGISTRY
from minikube_py.api.schema import SCHEMA, Schema

ROOT = Path(__file__).parents[3]
TABLE = ROOT / "minikube_py" / "api" / "schema_data.json"


def modules() -> Path | None:
    go = shutil.which("go")
    if go is None:
        return None
    cache = subprocess.run([go, "env", "GOMODCACHE"], capture_output=True, text=True, check=True).stdout.strip()
    folder = Path(cache) / "k8s.io"
    return folder if (folder / "api@v0.36.2").is_dir() else None


def extractor() -> ModuleType:
    spec = importlib.util.spec_from_file_location("extract_schema", ROOT / "tools" / "extract_schema.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["extract_schema"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.original
def test_the_extractor_makes_the_committed_table() -> None:
    folder = modules()
    if folder is None:
        absent("needs Go, and `go mod download k8s.io/api@v0.36.2 k8s.io/apimachinery@v0.36.2`")
    made = extractor()
    assert made.render(made.build(folder)) == TABLE.read_text()


def test_every_message_can_be_built() -> None:
    for name in SCHEMA.names:
        message = SCHEMA.message(name)
        assert set(message.numbers) == {field.number for field in message.declared if field.number}
        assert SCHEMA.message(message.proto_name).name == name


def test_every_row_of_the_registry_has_its_message() -> None:
    for row in REGISTRY.kinds:
        assert SCHEMA.kind(row.group, row.version, row.kind) is not None, row
        for sub in row.subresources:
            origin = sub if sub.version else row
            assert SCHEMA.kind(origin.group, origin.version, sub.kind) is not None, (row, sub)


@pytest.mark.parametrize(
    ("message", "field", "attribute", "expected"),
    [
        ("core/v1.PodSpec", "containers", "merge_key", "name"),
        ("core/v1.PodSpec", "containers", "patch_strategies", ("merge",)),
        ("core/v1.PodSpec", "volumes", "patch_strategies", ("merge", "retainKeys")),
        ("core/v1.PodSpec", "containers", "required", True),
        ("core/v1.PodSpec", "initContainers", "number", 20),
        ("core/v1.Container", "ports", "list_map_keys", ("containerPort", "protocol")),
        ("core/v1.Container", "args", "list_type", "atomic"),
        ("core/v1.ServicePort", "protocol", "default", "TCP"),
        ("core/v1.Volume", "hostPath", "embedded", ("VolumeSource",)),
        ("core/v1.Pod", "metadata", "go_name", "ObjectMeta"),
        ("meta/v1.ObjectMeta", "finalizers", "patch_strategies", ("merge",)),
        ("core/v1.Container", "env", "left_out_when_zero", True),
        ("core/v1.Container", "resources", "left_out_when_zero", False),
    ],
)
def test_facts_of_fields(message: str, field: str, attribute: str, expected: object) -> None:
    assert getattr(SCHEMA.message(message).fields[field], attribute) == expected


def test_kinds_are_found_by_group_and_version() -> None:
    pod = SCHEMA.kind("", "v1", "Pod")
    assert pod is not None and pod.text == "v1.Pod" and pod.proto_name == "k8s.io.api.core.v1.Pod"
    options = SCHEMA.kind("apps", "v1", "DeleteOptions")
    assert options is not None and options.name == "meta/v1.DeleteOptions"
    assert SCHEMA.kind("", "v1", "Container") is None
    assert SCHEMA.kind("nowhere", "v1", "Pod") is None


def test_the_table_loads_late() -> None:
    schema = Schema()
    assert "_table" not in vars(schema)
    assert schema.kind("", "v1", "Pod") is not None and "_table" in vars(schema)


def test_values_of_constants_that_are_conversions_belong_to_their_type() -> None:
    assert SCHEMA.enum("discovery/v1.AddressType") == ("FQDN", "IPv4", "IPv6")
    assert SCHEMA.enum("networking/v1.PathType") == ("Exact", "ImplementationSpecific", "Prefix")
