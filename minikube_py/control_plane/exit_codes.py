"""Exit codes of our processes, for their parents."""

from __future__ import annotations

from typing import Final

FAILED: Final = 1
USAGE: Final = 2
DISMISSED: Final = 3
"""A store member that was removed from its cluster: do not restart it as it is."""
DAMAGED: Final = 4
"""A store member with damaged data: it will not start until that is repaired."""
INTERRUPTED: Final = 130
