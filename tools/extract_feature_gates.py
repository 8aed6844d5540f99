#!/usr/bin/env python3
"""Writes minikube_py/api/feature_gates.json: the feature gates that Kubernetes knows, read from its Go modules.

    python tools/extract_feature_gates.py --modules "$(go env GOMODCACHE)/k8s.io" [--output FILE]

By gate, `[default, locked]` at VERSION: whether it is on, and whether it cannot be changed. A developer's tool, run by
hand when the modules change; a test compares the result with what kube-apiserver and kube-scheduler say of themselves.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path

VERSION = (1, 36)
MODULE = "v0.36.2"
KUBERNETES = "kubernetes@v1.36.2"
SOURCES = (
    f"{KUBERNETES}/pkg/features/kube_features.go",
    f"apiserver@{MODULE}/pkg/features/kube_features.go",
    f"apiextensions-apiserver@{MODULE}/pkg/features/kube_features.go",
    f"controller-manager@{MODULE}/pkg/features/kube_features.go",
    f"client-go@{MODULE}/features/known_features.go",
    f"component-base@{MODULE}/metrics/features/kube_features.go",
    f"component-base@{MODULE}/logs/api/v1/kube_features.go",
    f"component-base@{MODULE}/zpages/features/kube_features.go",
)
OUTPUT = Path(__file__).resolve().parent.parent / "minikube_py" / "api" / "feature_gates.json"

_NAME = re.compile(r'^\t(?:const )?(\w+)(?:\s+(?:featuregate\.)?Feature)?\s*=\s*"([A-Z]\w+)"', re.M)
_ENTRY = re.compile(r"^(\t+)(?:\w+\.)?(\w+): \{\n((?:\1\t.*\n)*?)\1\},", re.M)
_SPEC = re.compile(r'\{Version: version\.MustParse\("(\d+)\.(\d+)"\), (.*?)\}')


def gates(text: str, names: dict[str, str]) -> Iterator[tuple[str, bool, bool]]:
    for _, constant, body in _ENTRY.findall(text):
        specs = [
            (settings, (int(major), int(minor)))
            for major, minor, settings in _SPEC.findall(body)
            if (int(major), int(minor)) <= VERSION
        ]
        if specs and constant in names:
            settings = max(specs, key=lambda spec: spec[1])[0]
            yield names[constant], "Default: true" in settings, "LockToDefault: true" in settings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modules", type=Path, required=True)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    arguments = parser.parse_args()
    texts = [(arguments.modules / source).read_text() for source in SOURCES]
    names = {constant: name for text in texts for constant, name in _NAME.findall(text)}
    found = {name: [default, locked] for text in texts for name, default, locked in gates(text, names)}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(found[name])}" for name in sorted(found))
    arguments.output.write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()
