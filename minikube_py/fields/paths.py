r"""Dotted paths into decoded objects: `spec.nodeName`, `metadata.labels.topology\.kubernetes\.io/zone`,
`metadata.annotations["a.b/c"]`, `spec.containers[0].name`.

Pure and total: what is not there reads as None.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

from minikube_py.errors import InvalidRequest

Path = tuple[str | int, ...]
MAX_PATH_LENGTH = 1024
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_KEYED: Final = (("metadata", "labels"), ("metadata", "annotations"))


@lru_cache(maxsize=4096)
def parse_path(text: str) -> Path:
    """Raises: InvalidRequest with the position of the error."""
    if not text or len(text) > MAX_PATH_LENGTH:
        raise InvalidRequest(f"a path has 1 to {MAX_PATH_LENGTH} characters, this one {len(text)}")
    parts: list[str | int] = []
    at = 1 if text[0] == "." else 0
    while at < len(text):
        if text[at] == "[":
            part, at = _bracket(text, at)
        else:
            part, at = _name(text, at)
        parts.append(part)
        if at < len(text) and text[at] == ".":
            at += 1
            if at == len(text):
                raise InvalidRequest(f"path {text!r} ends with a dot")
    if not parts:
        raise InvalidRequest(f"path {text!r} names nothing")
    return tuple(parts)


def path_text(path: Path) -> str:
    """The canonical text of a path, as `parse_path` reads it: names plain, keys of labels and other texts in
    brackets."""
    text = ""
    for at, part in enumerate(path):
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN.fullmatch(part) and path[:at] not in _KEYED:
            text += f".{part}" if text else part
        elif '"' not in part:
            text += f'["{part}"]'
        else:
            escaped = re.sub(r"(\W)", r"\\\1", part)
            text += f".{escaped}" if text else escaped
    return text


def _name(text: str, at: int) -> tuple[str, int]:
    start = at
    name = []
    while at < len(text) and text[at] not in ".[":
        if text[at] == "\\" and at + 1 < len(text):
            at += 1
        name.append(text[at])
        at += 1
    if not name:
        raise InvalidRequest(f"path {text!r} has an empty part at position {start}")
    return "".join(name), at


def _bracket(text: str, at: int) -> tuple[str | int, int]:
    quote = text[at + 1 : at + 2]
    if quote in ("'", '"') and quote:
        end = text.find(quote + "]", at + 2)
        if end > at + 2:
            return text[at + 2 : end], end + 2
    else:
        end = text.find("]", at)
        digits = text[at + 1 : end]
        if end > 0 and digits.isascii() and digits.isdigit() and len(digits) < 10:
            return int(digits), end + 1
    raise InvalidRequest(f'path {text!r}: expected ["key"] or [index] at position {at}')


def read(obj: Any, path: Path) -> Any:
    """The value at `path`, None if there is none."""
    for part in path:
        if type(part) is str:
            if not isinstance(obj, dict):
                return None
            obj = obj.get(part)
        else:
            if not isinstance(obj, list) or not isinstance(part, int) or part >= len(obj):
                return None
            obj = obj[part]
    return obj
