#!/usr/bin/env python3
"""Draws docs/img/architecture.svg from import-linter's layers, and docs/img/life-of-a-pod.svg from a list.

    python tools/diagrams.py    writes both; a test compares them with what is committed
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs/img"
WIDTH = 960

PLAIN = {
    "cli": "commands", "studies": "registered experiments", "lab": "measure: traces, benchmarks, reports",
    "ui": "live page", "cluster": "control plane as a value, virtual time", "sim": "simulated network, disk and faults",
    "control_plane": "starts and connects the parts", "apiserver": "API server: REST, watches", "etcd": "etcd's API",
    "controllers": "control loops", "scheduler": "chooses nodes", "kubelet": "fake nodes",
    "client": "API client, caches",
    "store": "store member: Raft, log, state", "containers": "simulated containers", "stages": "lifecycles as data",
    "ports": "accepts connections", "raft": "consensus", "mvcc": "revisions, transactions", "index": "range queries",
    "wal": "log format", "api": "Kubernetes objects", "http2": "HTTP/2", "cel": "CEL expressions",
    "fields": "what selectors ask about", "env": "clock, randomness, disk", "own_code": "your classes, by name",
    "errors": "root errors",
}  # fmt: skip
"""What each package is, in plain words."""

LIFE = (
    ("kubectl create", "sends a Pod"),
    ("API server", "checks who may, defaults,\nvalidates, admits"),
    ("Raft leader", "proposes the write"),
    ("Logs of a majority", "write it to disk, synced"),
    ("State machine", "gives it a revision"),
    ("Watch cache", "sends the event\nto every watcher"),
    ("Scheduler", "filters and scores nodes,\nbinds the pod to one"),
    ("Kubelet", "runs it, writes\nits status: Running"),
)
"""The stations of a pod, in order: component and action."""

STYLE = """<style>
  svg { font: 13px system-ui, sans-serif; }
  .ground { fill: #ffffff; } .box { fill: #eef3f9; stroke: #0b5cad; } .name { fill: #17202a; font-weight: 600; }
  .says { fill: #44515e; font-size: 11px; }
  .way { stroke: #0b5cad; fill: none; stroke-width: 1.5; } .tip { fill: #0b5cad; }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #11161c; } .box { fill: #1a2733; stroke: #7db8f0; } .name { fill: #e6ebf0; }
    .says { fill: #b4c0cc; } .way { stroke: #7db8f0; } .tip { fill: #7db8f0; }
  }
</style>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path class="tip" d="M0 0 L8 4 L0 8 z"/></marker></defs>"""


def layers(root: Path = ROOT) -> list[list[str]]:
    """Packages by layer, highest first, from pyproject.toml."""
    document = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = document["tool"]["importlinter"]["contracts"]
    (found,) = (each["layers"] for each in contracts if each["type"] == "layers")
    return [re.findall(r"\w+", layer) for layer in found]


def box(x: float, y: float, width: float, height: float, name: str, says: str) -> Iterator[str]:
    yield f'<rect class="box" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"/>'
    middle = x + width / 2
    yield f'<text class="name" x="{middle:g}" y="{y + 20:g}" text-anchor="middle">{escape(name)}</text>'
    for number, line in enumerate(says.split("\n")):
        at = y + 37 + 14 * number
        yield f'<text class="says" x="{middle:g}" y="{at:g}" text-anchor="middle">{escape(line)}</text>'


def wrapped(text: str, width: float) -> str:
    """Two lines if one would not fit; a letter of 11 px is about 5.7 px wide."""
    if len(text) * 5.7 < width - 8:
        return text
    cuts = [match.start() for match in re.finditer(" ", text)]
    cut = min(cuts, key=lambda at: abs(at - len(text) / 2))
    return f"{text[:cut]}\n{text[cut + 1 :]}"


def document(height: float, title: str, parts: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{title}">'
    ground = f'<rect class="ground" width="{WIDTH}" height="{height:g}" rx="8"/>'
    return "\n".join([head, f"<title>{title}</title>", STYLE, ground, *parts, "</svg>", ""])


def architecture() -> str:
    parts, high, gap, y = [], 60, 10, 40
    parts.append('<text class="says" x="20" y="24">Each package imports only from the rows below its own.</text>')
    for row in layers():
        width = (WIDTH - 40 - gap * (len(row) - 1)) / len(row)
        for number, name in enumerate(row):
            parts += box(20 + number * (width + gap), y, width, high, name, wrapped(PLAIN[name], width))
        y += high + gap
    return document(y + 10, "Packages of minikube_py in layers", parts)


def life_of_a_pod() -> str:
    across, wide, high = 4, 190, 76
    step_x, step_y = (WIDTH - 40 - wide) / (across - 1), high + 50
    places = []
    for number in range(len(LIFE)):
        row, column = divmod(number, across)
        # The second row goes backwards, so that every arrow is short.
        places.append((20 + step_x * (across - 1 - column if row % 2 else column), 20 + step_y * row))
    parts: list[str] = []
    for number, ((x, y), (name, says)) in enumerate(zip(places, LIFE, strict=True)):
        parts += box(x, y, wide, high, f"{number + 1}. {name}", says)
    for (x, y), (to_x, to_y) in pairwise(places):
        if to_y > y:
            way = f"M{x + wide / 2:g} {y + high:g} V{to_y - 2:g}"
        else:
            way = f"M{x + wide if to_x > x else x:g} {y + high / 2:g} H{to_x - 2 if to_x > x else to_x + wide + 2:g}"
        parts.append(f'<path class="way" d="{way}" marker-end="url(#tip)"/>')
    return document(places[-1][1] + high + 20, "The life of a pod, from kubectl create to Running", parts)


DIAGRAMS = {"architecture.svg": architecture, "life-of-a-pod.svg": life_of_a_pod}


def main() -> None:
    for name, draw in DIAGRAMS.items():
        (IMAGES / name).write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
