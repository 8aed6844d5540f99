"""docs/reference/commands.md names every command there is, and none that is not; indexes.md so the structures."""

import re
from pathlib import Path

from minikube_py.cli.main import COMMANDS
from minikube_py.index.catalogue import built_in, options_of

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "commands.md"


def test_every_command_is_on_the_page() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("## ")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = {name.split()[0] for cell in cells for name in re.findall(r"`([a-zA-Z: -]+)`", cell)}
    assert named == set(COMMANDS)


def test_every_structure_and_its_defaults_are_on_the_page_of_indexes() -> None:
    page = (PAGE.parent / "indexes.md").read_text(encoding="utf-8")
    section = page.partition("## Structures")[2].partition("## ")[0].partition("| State |")[0]
    rows = dict(re.findall(r"^\| `([a-z-]+)`[^|]*\|([^|]*)\|$", section, re.MULTILINE))
    assert set(rows) == set(built_in())
    for name, told in rows.items():
        options = {option: str(default) or "none" for option, default in options_of(name).items()}
        assert dict(re.findall(r"`(\w+)` ([\w-]+)", told)) == options, name
