"""A Sphinx extension: links from a page of docs to a file of the repository lead to a highlighted page of that file.

In Markdown such a link is an ordinary relative path, `../minikube_py/raft/node.py#Raft.step`, so that it works where
the repository is browsed. On the site it becomes `_source/minikube_py/raft/node.py.html#Raft.step`. A unit test
(`tests/unit/test_docs_links.py`) checks that files and names exist.
"""

from __future__ import annotations

import ast
import html
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx.application import Sphinx

LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]+)?\)")
OUTPUT = "_source"
README = "<!-- README -->"


def definitions(text: str) -> dict[int, list[str]]:
    """Line number (from 1) to the names that are defined there: `f`, `Class`, `Class.method`."""
    found: dict[int, list[str]] = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.setdefault(node.lineno, []).append(node.name)
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                    found.setdefault(inner.lineno, []).append(f"{node.name}.{inner.name}")
    return found


def body_of(path: Path) -> str:
    """A file as HTML: one anchor for each line (`L12`) and, in Python, for each definition."""
    text = path.read_text(encoding="utf-8")
    try:
        lexer = get_lexer_for_filename(path.name, stripnl=False)
    except ClassNotFound:
        lexer = TextLexer(stripnl=False)
    names = definitions(text) if path.suffix == ".py" else {}
    lines = highlight(text, lexer, HtmlFormatter(nowrap=True)).splitlines()
    width = len(str(len(lines)))
    numbered = (
        "".join(f'<span id="{name}"></span>' for name in names.get(number, ()))
        + f'<span id="L{number}" class="linenos">{number:>{width}} </span>{line}'
        for number, line in enumerate(lines, 1)
    )
    return '<div class="highlight"><pre>' + "\n".join(numbered) + "\n</pre></div>"


class SourcePages:
    """Collects what the pages link to while they are read, and writes one page for each file."""

    def __init__(self, app: Sphinx) -> None:
        self.root = Path(app.srcdir).parent
        self.docs = Path(app.srcdir)
        self.wanted: set[str] = set()

    def read(self, _app: Sphinx, page: str, source: list[str]) -> None:
        source[0] = source[0].replace(README, self._readme())
        source[0] = LINK.sub(lambda match: self._link(page, match), source[0])

    def _readme(self) -> str:
        """README as a page of docs/: its links start one folder higher."""
        text = (self.root / "README.md").read_text(encoding="utf-8")
        return LINK.sub(lambda match: f"]({posixpath.relpath(match[1], 'docs')}{match[2] or ''})", text)

    def _link(self, page: str, match: re.Match[str]) -> str:
        target, anchor = match[1], match[2] or ""
        path = (self.docs / page).parent / target
        if path.resolve().is_relative_to(self.docs) or not path.exists():
            return match[0]
        name = path.resolve().relative_to(self.root).as_posix()
        self.wanted.add(name)
        if path.is_dir():
            self.wanted |= {f"{name}/{each.name}" for each in path.iterdir() if each.is_file()}
        away = posixpath.relpath(f"{OUTPUT}/{name}.html", posixpath.dirname(page) or ".")
        return f"]({'definition' if anchor else 'source'}:{away}{anchor})"

    def pages(self, app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
        for name in sorted(self.wanted):
            path = self.root / name
            if path.is_dir():
                files = sorted(each.name for each in path.iterdir() if each.is_file())
                body = "".join(f'<li><a href="{path.name}/{each}.html">{html.escape(each)}</a></li>' for each in files)
                body = f"<ul>{body}</ul>"
            else:
                body = body_of(path)
            title = html.escape(name)
            yield f"{OUTPUT}/{name}", {"title": title, "body": f"<h1><code>{title}</code></h1>{body}"}, "page.html"


def setup(app: Sphinx) -> dict[str, Any]:
    pages = SourcePages(app)
    app.connect("source-read", pages.read)
    app.connect("html-collect-pages", pages.pages)
    # What a page links to is known only from reading it, so a build reads all of them.
    return {"version": "1", "parallel_read_safe": False}
