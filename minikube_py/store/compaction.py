"""Chooses the revisions to compact: those older than an age, and the oldest once their writes take too much space."""

from __future__ import annotations

from collections import deque

SAMPLES = 60


class CompactionPolicy:
    """Remembers which revision was current when, and how many bytes had been written by then.

    Written bytes approximate retained ones: each retained write is held once, so the bytes written since the compacted
    revision bound the size of the history."""

    def __init__(self, retain_s: float, retain_bytes: int) -> None:
        self._retain_s = retain_s
        self._retain_bytes = retain_bytes
        self._samples: deque[tuple[float, int, int]] = deque()
        self._compacted_bytes = 0

    def due(self, now_s: float, revision: int, written_bytes: int) -> int:
        """The revision to compact now, 0 for none. Call this regularly."""
        samples = self._samples
        aged = self._retain_s and samples and now_s - samples[-1][0] >= self._retain_s / SAMPLES
        if not samples or aged or self._grew(written_bytes):
            samples.append((now_s, revision, written_bytes))
        target = 0
        excess = self._retain_bytes and written_bytes - self._compacted_bytes > self._retain_bytes
        while samples and (
            (self._retain_s and now_s - samples[0][0] >= self._retain_s)
            or (excess and written_bytes - samples[0][2] >= self._retain_bytes // 2)
        ):
            _, target, self._compacted_bytes = samples.popleft()
        return target

    def _grew(self, written_bytes: int) -> bool:
        return bool(self._retain_bytes) and written_bytes - self._samples[-1][2] >= self._retain_bytes // SAMPLES
