"""Plain tables for a terminal or a pipe, and numbers as people read them."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: Collection[str] = ()) -> str:
    """Columns side by side, two spaces between; those whose heads are in `numbers` end flush right."""
    cells = [list(heads), *(list(row) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(heads))]
    lines = []
    for row in cells:
        parts = [
            cell.rjust(width) if head in numbers else cell.ljust(width)
            for cell, width, head in zip(row, widths, heads)
        ]
        lines.append("  ".join(parts).rstrip())
    return "\n".join(lines)


def size_text(size_bytes: int) -> str:
    """`1.5 MiB`."""
    size, unit = float(size_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size_bytes} B" if unit == "B" else f"{size:.1f} {unit}"


def age_text(age_s: float) -> str:
    """`12s`, `3m`, `5h`, `2d`: whole units, as kubectl's."""
    for unit_s, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if age_s >= 2 * unit_s:
            return f"{int(age_s // unit_s)}{unit}"
    return f"{int(age_s)}s"
