#!/usr/bin/env python3
"""Writes data/defaults.json: upstream's admission plugins in order, and the controllers of kube-controller-manager.

    python tests/conformance/record_defaults.py --modules "$(go env GOMODCACHE)/k8s.io" [--output FILE]

`admission`: `[name, on by default, gate it needs]` in the order of AllOrderedPlugins. `controllers`: by name, what it
needs besides: `disabled` (off by default), `cloud` (a cloud provider), else the names of feature gates.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

KUBERNETES = "kubernetes@v1.36.2"
OUTPUT = Path(__file__).resolve().parent / "data" / "defaults.json"
_PLUGIN = re.compile(r"^\t+(\w+)\.PluginName, +// (\w+)(?:,.*feature gate (\w+))?", re.M)
_NAMED = re.compile(r'^\t(\w+)\s+= "([a-z0-9-]+)"', re.M)
_DESCRIPTOR = re.compile(r"return &ControllerDescriptor\{\n(.*?)\n\t\}\n", re.S)


def admission(text: str) -> list[list[Any]]:
    ordered, _, rest = text.partition("// registerAllAdmissionPluginFlags")
    on = {package: gate for package, _, gate in _PLUGIN.findall(rest)}
    return [[name, package in on, on.get(package, "")] for package, name, _ in _PLUGIN.findall(ordered)]


def controllers(names: str, sources: list[str]) -> dict[str, list[str]]:
    by_constant = dict(_NAMED.findall(names))
    found: dict[str, list[str]] = {}
    for body in (body for source in sources for body in _DESCRIPTOR.findall(source)):
        (constant,) = re.findall(r"names\.(\w+)", body)
        needs = re.findall(r"\w*[fF]eatures\.(\w+)", body)
        if re.search(r"isDisabledByDefault:\s+true", body):
            needs.insert(0, "disabled")
        if re.search(r"isCloudProviderController:\s+true", body):
            needs.insert(0, "cloud")
        found[by_constant.get(constant, constant)] = needs
    return dict(sorted(found.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modules", type=Path, required=True)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    arguments = parser.parse_args()
    root = arguments.modules / KUBERNETES
    manager = root / "cmd" / "kube-controller-manager"
    sources = [path.read_text() for path in sorted((manager / "app").glob("*.go")) if "_test" not in path.name]
    recorded = {
        "version": KUBERNETES.partition("@")[2],
        "admission": admission((root / "pkg/kubeapiserver/options/plugins.go").read_text()),
        "controllers": controllers((manager / "names/controller_names.go").read_text(), sources),
    }
    arguments.output.write_text(json.dumps(recorded, indent=1) + "\n")


if __name__ == "__main__":
    main()
