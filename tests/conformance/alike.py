"""Whether two answers are alike: status, headers, and bodies to the byte, where only what must differ was made alike.

What must differ between two servers: uids, times, versions and ports and addresses that each gives out. Bodies of JSON
are also compared as trees of raw scalars, so that a difference in the order of members stands apart from all others.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import yaml
from asking import Answer

_UID = rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_TIME = rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)"
_NOISE = (
    # Go writes what was no UTF-8 as an escape, and the same character where it was sent as itself.
    (re.compile(rb"\\ufffd"), "\ufffd".encode()),
    (re.compile(rb'("uid":\s*)"' + _UID + rb'"'), rb'\1"<uid>"'),
    (re.compile(rb"\b" + _UID + rb"\b"), rb"<uid>"),
    (re.compile(rb'("resourceVersion":\s*)"\d+"'), rb'\1"<n>"'),
    (re.compile(rb"(\bresourceVersion: )[\"']\d+[\"']"), rb"\1<n>"),
    (re.compile(rb"(ResourceVersion in record \()\d+(?=\))"), rb"\1<n>"),
    (re.compile(_TIME), rb"<time>"),
    (re.compile(rb'("(?:clusterIP|clusterIPs|ip)":\s*\[?\s*)"10\.\d+\.\d+\.\d+"'), rb'\1"<ip>"'),
    (re.compile(rb'(Invalid value: \\")10\.0\.\d+\.\d+(?=\\": expected an IPv)'), rb"\1<ip>"),
    (re.compile(rb'("(?:nodePort|healthCheckNodePort)":\s*)[1-9]\d+'), rb"\1<port>"),
    (re.compile(rb'("continue":\s*)"[A-Za-z0-9_=-]+"'), rb'\1"<continue>"'),
    (re.compile(rb"(resource version: )\d+, current: \d+"), rb"\1<n>"),
    (re.compile(rb'("serverAddress":\s*)"[0-9.:]+"'), rb'\1"<server>"'),
    (re.compile(rb"(?<=[a-z0-9]-)[bcdfghjklmnpqrstvwxz2456789]{5}(?=\\?\")"), rb"<five>"),
    (re.compile(rb'"(?:\d+[dhms]){1,2}(?= ago"|")'), rb'"<age>'),
)
_OWN_HEADERS = {"date", "content-length", "transfer-encoding"}
"""Of one moment, or of how an answer is framed: Go's server sends in chunks what is longer than 2,048 bytes."""
_NOISE_OF_HEADERS = (
    (re.compile(rf"{_UID.decode()}"), "<uid>"),
    (re.compile(r'"[0-9A-F]{128}"'), '"<hash>"'),
    (re.compile(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT"), "<date>"),
)

_TOKEN = re.compile(rb'\s*(?:([{}\[\]:,])|("(?:[^"\\]|\\.)*")|([^\s{}\[\]:,"]+))', re.S)


class Tree(NamedTuple):
    """JSON with raw scalars. `members`: those of an object as (name, Tree) in their order, of a list as Trees."""

    kind: str
    members: tuple[Any, ...] = ()
    raw: bytes = b""

    def sorted(self) -> Tree:
        if self.kind == "object":
            return Tree("object", tuple(sorted((name, tree.sorted()) for name, tree in self.members)))
        return Tree(self.kind, tuple(each.sorted() for each in self.members), self.raw)

    def get(self, *path: str) -> Tree | None:
        found: Tree | None = self
        for name in path:
            key = f'"{name}"'.encode()
            members = found.members if found is not None and found.kind == "object" else ()
            found = next((tree for each, tree in members if each == key), None)
        return found

    def text(self, *path: str) -> str:
        found = self.get(*path)
        return found.raw.decode("utf-8", "replace").strip('"') if found is not None and found.kind == "scalar" else ""

    def unordered(self) -> Tree:
        """With lists sorted as well."""
        if self.kind == "object":
            return Tree("object", tuple(sorted((name, tree.unordered()) for name, tree in self.members)))
        return Tree(self.kind, tuple(sorted(each.unordered() for each in self.members)), self.raw)

    def with_message(self, change: Callable[[bytes], bytes]) -> Tree:
        """A Status whose message is changed."""
        pairs = ((n, Tree("scalar", raw=change(t.raw)) if n == b'"message"' else t) for n, t in self.members)
        return Tree(self.kind, tuple(pairs), self.raw) if self.kind == "object" else self

    def told(self) -> bytes:
        """As JSON again."""
        if self.kind == "object":
            return b"{" + b",".join(name + b":" + tree.told() for name, tree in self.members) + b"}"
        return b"[" + b",".join(tree.told() for tree in self.members) + b"]" if self.kind == "list" else self.raw

    def with_sorted(self, name: str) -> Tree:
        """With the lists of this name sorted, at any depth."""
        if self.kind == "object":
            key = f'"{name}"'.encode()
            pairs = ((n, t.unordered() if n == key else t.with_sorted(name)) for n, t in self.members)
            return Tree("object", tuple(pairs))
        return Tree(self.kind, tuple(each.with_sorted(name) for each in self.members), self.raw)

    def without(self, *names: str) -> Tree:
        """Less the members of these names, at any depth."""
        keys = {f'"{name}"'.encode() for name in names}
        if self.kind == "object":
            return Tree("object", tuple((n, t.without(*names)) for n, t in self.members if n not in keys))
        return Tree(self.kind, tuple(each.without(*names) for each in self.members), self.raw)


def tree_of(body: bytes) -> Tree | None:
    """None where the body is no JSON. Of several documents in a row, as a watch sends them, a list."""
    matches = list(_TOKEN.finditer(body))
    if not matches or sum(len(match[0]) for match in matches) != len(body.rstrip()):
        return None
    tokens = [next(each for each in match.groups() if each is not None) for match in matches]
    trees: list[Tree] = []
    at = 0
    try:
        while at < len(tokens):
            tree, at = _parse(tokens, at)
            trees.append(tree)
    except (IndexError, RecursionError, ValueError):
        return None
    return trees[0] if len(trees) == 1 else Tree("list", tuple(trees))


def _parse(tokens: list[bytes], at: int) -> tuple[Tree, int]:
    token = tokens[at]
    if token == b"{":
        pairs: list[tuple[bytes, Tree]] = []
        at += 1
        while tokens[at] != b"}":
            if pairs:
                at = _expect(tokens, at, b",")
            name = tokens[at]
            value, at = _parse(tokens, _expect(tokens, at + 1, b":"))
            pairs.append((name, value))
        return Tree("object", tuple(pairs)), at + 1
    if token == b"[":
        items: list[Tree] = []
        at += 1
        while tokens[at] != b"]":
            if items:
                at = _expect(tokens, at, b",")
            value, at = _parse(tokens, at)
            items.append(value)
        return Tree("list", tuple(items)), at + 1
    if token in (b"}", b"]", b":", b","):
        raise ValueError("no value")
    return Tree("scalar", raw=token), at + 1


def _expect(tokens: list[bytes], at: int, wanted: bytes) -> int:
    if tokens[at] != wanted:
        raise ValueError(f"no {wanted!r}")
    return at + 1


def style(body: bytes) -> str:
    """How JSON is laid out: compact or indented, and whether a line ends it."""
    lines = body.count(b"\n")
    end = "newline" if body.endswith(b"\n") else "no newline"
    return f"{'indented' if lines > 1 else 'compact'}, {end}" if body else "empty"


class Seen(NamedTuple):
    """An answer as it compares. `tree` is None for what is no JSON."""

    code: int
    headers: tuple[tuple[str, tuple[str, ...]], ...]
    style: str
    body: bytes
    tree: Tree | None

    @property
    def tree_text(self) -> str:
        return self.tree.told().decode("utf-8", "replace") if self.tree else ""

    @property
    def message(self) -> str:
        return self.tree.text("message") if self.tree else self.body.decode("utf-8", "replace")

    def header(self, name: str) -> str:
        return ", ".join(dict(self.headers).get(name, ()))


def _quiet(value: str) -> str:
    for pattern, name in _NOISE_OF_HEADERS:
        value = pattern.sub(name, value)
    return value


def seen(answer: Answer) -> Seen:
    body = answer.body
    if answer.headers.get("content-encoding") == ["gzip"] and body:
        answer = answer._replace(body=gzip.decompress(body))
        body = answer.body
    for pattern, name in _NOISE:
        body = pattern.sub(name, body)
    compared = {name: values for name, values in answer.headers.items() if name not in _OWN_HEADERS}
    headers = tuple(sorted((name, tuple(map(_quiet, values))) for name, values in compared.items()))
    kind = "".join(answer.headers.get("content-type", ()))
    if "yaml" in kind:
        try:
            tree = tree_of(json.dumps(yaml.load(body, Loader=yaml.BaseLoader)).encode())
        except yaml.YAMLError:
            tree = None
        return Seen(answer.code, headers, "yaml", body, tree)
    is_json = "json" in kind
    return Seen(answer.code, headers, style(answer.body) if is_json else "", body, tree_of(body) if is_json else None)


def differences(theirs: Seen, mine: Seen) -> dict[str, tuple[Any, Any]]:
    """What differs, by aspect: code, header NAME, style, order, body."""
    found: dict[str, tuple[Any, Any]] = {}
    if theirs.code != mine.code:
        found["code"] = (theirs.code, mine.code)
    both = dict(theirs.headers), dict(mine.headers)
    for name in sorted({*both[0], *both[1]}):
        if both[0].get(name) != both[1].get(name):
            found[f"header {name}"] = (both[0].get(name), both[1].get(name))
    if theirs.style != mine.style:
        found["style"] = (theirs.style, mine.style)
    if theirs.body == mine.body and (theirs.body or theirs.tree == mine.tree):
        return found
    if theirs.tree is None or mine.tree is None:
        found["body"] = (theirs.body, mine.body)
    elif theirs.tree.sorted() != mine.tree.sorted():
        found["body"] = (theirs.tree.told(), mine.tree.told())
    elif theirs.tree != mine.tree:
        found["order"] = (theirs.tree.told(), mine.tree.told())
    elif theirs.body and mine.body and "style" not in found:
        found["layout"] = (theirs.body, mine.body)
    return found
