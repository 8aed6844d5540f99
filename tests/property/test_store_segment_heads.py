"""The head of each segment says which entry comes next, where the one before ends, and the hard state comes with it:
whatever was written, in whatever order, and however often the log was started again."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minikube_py.raft.message import Entry, HardState
from minikube_py.sim.disk import SimDisk
from minikube_py.store.log_files import LogFiles, Origin
from minikube_py.wal.segment import HEAD_BYTES, SegmentHead, decode_head, segment_name, segment_sequence

SEGMENT_BYTES = 8 << 10
ORIGINS = (Origin(5, 7), Origin(5, 7, joined=True), Origin(5, 7, Entry(1, 1, b"members", 1)))
STEP = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 4), st.sampled_from((1, 300, 1500))),
    st.tuples(st.just("overwrite"), st.integers(1, 6), st.sampled_from((1, 900))),
    st.tuples(st.just("vote"), st.sampled_from((1, 5, 250)), st.just(0)),
    st.tuples(st.just("start"), st.just(1), st.just(0)),
)


class Written:
    """The log beside a list of what is in it."""

    def __init__(self, origin: Origin) -> None:
        self.disk = SimDisk()
        self.rng = random.Random(1)
        self.entries = [origin.first] if origin.first is not None else []
        self.term = 1
        self.expected: dict[int, int] = {}
        """Sequence of a segment to the index that comes next when it begins."""
        self.files = LogFiles(self.disk, self.rng, SEGMENT_BYTES)
        self.files.begin(self.files.load(), origin)
        self.expected[1] = 1

    @property
    def next_index(self) -> int:
        return len(self.entries) + 1

    def write(self, entries: list[Entry], state: HardState | None) -> None:
        """One at a time, so that a segment ends between two of them."""
        for entry in entries or [None]:
            before = self.sequence()
            self.files.write([entry] if entry else [], state if entry is None else None)
            self.files.sync()
            after = self.sequence()
            if after != before:
                self.expected[after] = self.next_index
            if entry is not None:
                self.entries[entry.index - 1 :] = [entry]

    def sequence(self) -> int:
        return max(self.heads())

    def heads(self) -> dict[int, SegmentHead]:
        found = {}
        for name in self.disk.names():
            sequence = segment_sequence(name)
            if sequence is not None:
                found[sequence] = decode_head(name, self.disk.open(name).read_all()[:HEAD_BYTES], whole=False)
        return found

    def run(self, kind: str, count: int, size: int) -> None:
        if kind == "append":
            first = self.next_index
            self.write([Entry(self.term, first + n, bytes(size)) for n in range(count)], None)
        elif kind == "overwrite" and len(self.entries) > 1:
            self.term += 1
            first = max(2, self.next_index - count)
            self.write([Entry(self.term, first, b"%d" % self.term + bytes(size))], None)
        elif kind == "vote":
            for _ in range(count):
                self.term += 1
                self.write([], HardState(self.term, 1, 0))
        elif kind == "start":
            self.files.close()
            self.files = LogFiles(self.disk, self.rng, SEGMENT_BYTES)
            self.files.begin(self.files.load())


@pytest.mark.parametrize("origin", ORIGINS, ids=["alone", "joined", "with a first entry"])
@settings(max_examples=40, deadline=None)
@given(steps=st.lists(STEP, min_size=1, max_size=12), seed=st.integers(0, 99))
def test_a_segment_begins_where_the_log_before_it_ends(origin: Origin, steps: list, seed: int) -> None:
    log = Written(origin)
    for step in steps:
        log.run(*step)
    heads = log.heads()
    assert sorted(heads) == list(range(1, len(heads) + 1))
    for sequence, head in heads.items():
        assert (head.cluster_id, head.member_id, head.sequence) == (5, 7, sequence)
        assert head.first_index == log.expected[sequence], f"{segment_name(sequence)}: {heads}"
    again = LogFiles(log.disk, random.Random(seed), SEGMENT_BYTES).load()
    assert [tuple(each) for each in again.log.entries] == [tuple(each) for each in log.entries]
