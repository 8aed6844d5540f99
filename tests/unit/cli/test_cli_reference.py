"""docs/reference/commands.md names every command there is, and none that is not."""

import re
from pathlib import Path

from minikube_py.cli.main import COMMANDS

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "commands.md"


def test_every_command_is_on_the_page() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("## ")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = {name.split()[0] for cell in cells for name in re.findall(r"`([a-zA-Z -]+)`", cell)}
    assert named == set(COMMANDS)
