"""Manifests are read as the real kubectl reads them: drawn scalars, as values and keys, under tags and quotes, and
files of several documents, of YAML and JSON."""

from __future__ import annotations

import json
import random
import subprocess
from os import environ

import pytest
from needs import original_program

from minikube_py.api.yaml_text import YamlError, documents

WORDS = (
    "y", "N", "yes", "Off", "on", "true", "TRUE", "tRue", "null", "~", "Null", "<<", "=", ".inf", "-.INF", ".nan",
    "2020-01-01", "2020-01-01T10:00:00Z", "12:30:45", "190:20:30", "1:30", "0o17", "017", "08", "0x1F", "0b11", "1e3",
    "1_000", "1.", ".5", "+1", "-0", "9223372036854775808", "-9223372036854775809", "18446744073709551616", "1e400",
    "1.5e3", "0.1e1", "1.0e+2", "100000000000000000000.5",
)  # fmt: skip
TAGS = ("!!int", "!!str", "!!float", "!!bool", "!!null", "!!binary", "!foo", "!!timestamp")
FILES = {
    "JSON in a row": '{"kind":"W","apiVersion":"e/v1"}\n {"kind":"W","apiVersion":"e/v1","a":18446744073709551616}',
    "JSON, then YAML": '{"kind":"W","apiVersion":"e/v1"}\n---\nkind: W\napiVersion: e/v1\n',
    "a mapping in braces": "{kind: W, apiVersion: e/v1, a: [1, {b: c}]}",
    "two in braces": "{kind: W, apiVersion: e/v1}\n---\n{kind: W, apiVersion: e/v1, b: 0o7}",
    "separators": "---\n# none\n--- # first\nkind: W\napiVersion: e/v1\n---\n---\n"
                  "kind: W\napiVersion: e/v1\nb: |\n ---\n x\n",
    "a bad separator": "kind: W\napiVersion: e/v1\n--- x\nkind: W\napiVersion: e/v1\n",
    "three, then not JSON": '{"kind":"W","apiVersion":"e/v1"}{"kind":"W","apiVersion":"e/v1"}{"kind": W}',
    "keys that are no texts": "kind: W\napiVersion: e/v1\nd: {1: a, on: b, 1.5: c, 2020-01-01: d}\n",
    "a key twice": "kind: W\napiVersion: e/v1\nd: {a: 1, a: 2}\n",
    "merged": "kind: W\napiVersion: e/v1\nx: &x {a: b}\nd: {<<: *x, c: d}\n",
    "odd line ends": "kind: W\r\napiVersion: e/v1\r\nd: \"a\u2028b\x85c\"\r\n",
    "a byte order mark": "\ufeffkind: W\napiVersion: e/v1\n",
}  # fmt: skip


def read_by_kubectl(text: str) -> list[object] | None:
    """None: refused."""
    command = ["label", "--local", "-f", "-", "drawn=yes", "-o", "json", "--dry-run=client"]
    environment = {"KUBECONFIG": "/dev/null", "PATH": environ["PATH"]}
    done = subprocess.run(
        [original_program("kubectl"), *command], input=text.encode(), capture_output=True, env=environment, check=False
    )
    if done.returncode:
        return None
    found, at, decoder, said = [], 0, json.JSONDecoder(), done.stdout.decode()
    while rest := said[at:].lstrip():
        value, end = decoder.raw_decode(rest)
        at = len(said) - len(rest) + end
        (value.get("metadata") or {}).get("labels", {}).pop("drawn", None)
        found += value["items"] if value["kind"] == "List" else [value]
    return found


def read_by_us(text: str) -> list[object] | None:
    try:
        found = documents(text.encode())
    except YamlError:
        return None
    for each in found:
        each.setdefault("metadata", {}).setdefault("labels", {})
    return found


def scalar(rng: random.Random) -> str:
    digits = "".join(rng.choices("0123456789.+-eE_xobn", k=rng.randint(1, 7)))
    text = rng.choice(WORDS) if rng.random() < 0.4 else digits
    if rng.random() < 0.2:
        text = f"'{text}'"
    return f"{rng.choice(TAGS)} {text}" if rng.random() < 0.2 else text


def manifest(rng: random.Random, number: int) -> str:
    return (
        f"apiVersion: e/v1\nkind: W\nmetadata: {{name: w-{number}}}\nvalue: {scalar(rng)}\nlist:\n- {scalar(rng)}\n"
        f"keys:\n  {scalar(rng)}: k\n"
    )


@pytest.mark.parametrize("seed", range(3))
def test_drawn_scalars(seed: int) -> None:
    rng = random.Random(seed)
    drawn = [manifest(rng, number) for number in range(150)]
    refused = [each for each in drawn if read_by_us(each) is None]
    accepted = [each for each in drawn if each not in refused]
    assert len(accepted) > 60
    both = "---\n".join(accepted)
    theirs = read_by_kubectl(both)
    assert theirs is not None, [each for each in accepted if read_by_kubectl(each) is None]
    ours = read_by_us(both)
    assert ours is not None
    different = [text for text, one, other in zip(accepted, ours, theirs, strict=True) if not alike(one, other)]
    assert not different
    assert not [each for each in refused[:12] if read_by_kubectl(each) is not None]


@pytest.mark.parametrize("name", FILES)
def test_files(name: str) -> None:
    ours, theirs = read_by_us(FILES[name]), read_by_kubectl(FILES[name])
    assert (ours is None) == (theirs is None), (ours, theirs)
    assert ours is None or theirs is None or (len(ours) == len(theirs) and all(map(alike, ours, theirs)))


def alike(one: object, other: object) -> bool:
    """As JSON. Numbers beyond 2^53 are compared as floats: kubectl prints some of them rounded."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in (one, other))
    return float(one) == float(other) if numbers else type(one) is type(other) and one == other  # type: ignore[arg-type]
