"""How a process of ours may end, for whoever started it."""

from __future__ import annotations

from typing import Final

FAILED: Final = 1
USAGE: Final = 2
DISMISSED: Final = 3
"""A store member that was removed from its cluster: it is not to be started again as it is."""
DAMAGED: Final = 4
"""A store member whose data is damaged: it will not start before somebody did something about it."""
INTERRUPTED: Final = 130
