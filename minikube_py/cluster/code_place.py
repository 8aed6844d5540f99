"""Where in the code of a test or program an exception was raised."""

from __future__ import annotations

import os
import sysconfig
import traceback
from pathlib import Path
from typing import Final

LIBRARIES: Final = tuple(map(sysconfig.get_path, ("stdlib", "purelib", "platlib")))
NOT_OWN: Final = tuple([f"{each}{os.sep}" for each in (Path(__file__).parents[1], *LIBRARIES)])
"""Folders without code of the test or its operator."""


def place(error: BaseException | None) -> tuple[str, int] | None:
    """File and line of the innermost frame outside this package and Python's libraries; None without such a frame."""
    at = None
    for frame, line in traceback.walk_tb(error.__traceback__ if error else None):
        file = frame.f_code.co_filename
        if not file.startswith((*NOT_OWN, "<")):
            at = (file, line)
    return at
