"""The check of the built site finds files and anchors that do not exist, and text of a template."""

from __future__ import annotations

from pathlib import Path

import pytest
from check_site import broken_links

PAGE = '<html><body><h1 id="top">Page</h1><a class="x" href="{link}">there</a></body></html>'


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    (tmp_path / "other file.html").write_text('<h2 id="an&#39;anchor">Other</h2>')
    (tmp_path / "sub/index.html").write_text("<p>folder</p>")
    return tmp_path


@pytest.mark.parametrize(
    "link",
    (
        "other%20file.html", "other%20file.html#an%27anchor", "#top", "#", "sub/", "sub/../other%20file.html",
        "https://example.com/x", "mailto:a@example.com", "data:image/png;base64,AA==", "/other%20file.html",
    ),
)  # fmt: skip
def test_a_link_that_leads_somewhere_passes(site: Path, link: str) -> None:
    (site / "index.html").write_text(PAGE.format(link=link))
    assert list(broken_links(site)) == []


@pytest.mark.parametrize(
    ("link", "reason"),
    (
        ("absent.html", "no such file"),
        ("other%20file.html#absent", "no such anchor"),
        ("#absent", "no such anchor"),
        ("../outside.html", "no such file"),
        ("sub/absent.png", "no such file"),
        ("source:file.py", "no such scheme: source"),
        ("file.py.html%7B%25%20if%20fragment%20%25%7D#f", "text of a template"),
        ("file.py.html#{{fragment}}", "text of a template"),
    ),
)
def test_a_link_that_leads_nowhere_is_found(site: Path, link: str, reason: str) -> None:
    (site / "index.html").write_text(PAGE.format(link=link))
    assert list(broken_links(site)) == [f"index.html: {link}: {reason}"]
