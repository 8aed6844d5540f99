"""Bugs that are planted in structures, in how they are hosted, and in how the past is kept: one change of one file each.

What finds them are the laws of `minikube_py.lab.conformance`, as `tests/property/test_index_laws.py` puts them to every
structure; they know what an index promises, and nothing of these.
"""

# ruff: noqa: E501

from __future__ import annotations

from typing import NamedTuple


class IndexMutant(NamedTuple):
    """`old` stands exactly once in `minikube_py/<file>`; `why` says how such a bug comes about. `structures`: those
    that are put to the laws, by name."""

    name: str
    structures: str
    file: str
    old: str
    new: str
    why: str


MUTANTS: tuple[IndexMutant, ...] = (
    # --- comparisons as boxes ----------------------------------------------------------------------------------------
    IndexMutant(
        "box: < holds its bound", "columns", "index/box.py",
        "        return LOW, bound - 1, True",
        "        return LOW, bound, True",
        "the boundary of an inequality",
    ),
    IndexMutant(
        "box: of two bounds the last one counts", "columns", "index/box.py",
        "        lows[place] = max(lows[place], low)",
        "        lows[place] = low",
        "one comparison of each field is thought of",
    ),
    IndexMutant(
        "box: != is taken to be said by the box", "columns", "index/box.py",
        "        return MISSING, HIGH, False",
        "        return MISSING, HIGH, True",
        "no test is left for what the box does not say",
    ),
    IndexMutant(
        "box: in is taken for a range", "columns", "index/box.py",
        "        return min(bounds), max(bounds), min(bounds) == max(bounds)",
        "        return min(bounds), max(bounds), True",
        "what lies between the least and the greatest passes",
    ),
    IndexMutant(
        "box: a missing field exists", "columns", "index/box.py",
        '    if op == "exists":\n        return LOW, HIGH, True',
        '    if op == "exists":\n        return MISSING, HIGH, True',
        "the least value is confused with none",
    ),
    # --- a structure and its host -------------------------------------------------------------------------------------
    IndexMutant(
        "hosted: what waits is not put in before a question", "columns", "index/hosted.py",
        "        self._follow_up()\n        if self.host.unchanged_since(revision):",
        "        if self.host.unchanged_since(revision):",
        "changes are put off, and the question does not wait for them",
    ),
    IndexMutant(
        "hosted: may_match is asked before what waits is put in", "columns", "index/hosted.py",
        "        self._follow_up()\n        if self.structure.may_match(box):",
        "        if self.structure.may_match(box):",
        "one of two ways to ask is forgotten",
    ),
    IndexMutant(
        "hosted: the past is answered by the present", "columns", "index/hosted.py",
        "        if self.host.unchanged_since(revision):",
        "        if self.host.unchanged_since(revision) or not limit:",
        "a short cut for the present is taken for any revision",
    ),
    IndexMutant(
        "hosted: a row that has changed since is still a candidate", "columns", "index/hosted.py",
        "            passed = found.slots[~_among(found.slots, changed.slots)]",
        "            passed = found.slots",
        "what the structure says of the present is added to what the log says of the past",
    ),
    IndexMutant(
        "hosted: in the past the tests left over are not applied", "columns", "index/hosted.py",
        "                passed = passed[self.host.passing(residual, passed)]\n            if found.complete or len(then)",
        "                pass\n            if found.complete or len(then)",
        "the present has them, the past was written later",
    ),
    IndexMutant(
        "hosted: may_match forgets what passed only then", "columns", "index/hosted.py",
        "        return changed is not None and bool(changed.held.any())",
        "        return False",
        "the structure knows the present alone, and is taken at its word",
    ),
    IndexMutant(
        "hosted: an object that is gone stays in the structure", "columns", "index/hosted.py",
        "            else:\n                structure.remove(slot)",
        "            else:\n                pass",
        "only rows that stand are followed",
    ),
    IndexMutant(
        "hosted: the state of the next revision answers", "bitmaps,cow-max-tree", "index/hosted.py",
        "        place = bisect_right(self._frozen, revision, key=_revision_of) - 1\n",
        "        place = min(bisect_right(self._frozen, revision, key=_revision_of), len(self._frozen) - 1)\n",
        "off by one among the states that are kept",
    ),
    IndexMutant(
        "hosted: a kept state answers tests that it cannot say", "bitmaps,cow-max-tree", "index/hosted.py",
        "        frozen = None if residual else self._frozen_at(revision)",
        "        frozen = self._frozen_at(revision)",
        "what is left of the question after the box is lost",
    ),
    IndexMutant(
        "hosted: a page after a cursor repeats it", "columns", "index/contract.py",
        'first = start if cursor is None else max(start, cursor + b"\\0")',
        "first = start if cursor is None else max(start, cursor)",
        "an exclusive bound taken as inclusive",
    ),
    # --- structures ---------------------------------------------------------------------------------------------------
    IndexMutant(
        "scan: owns up only to what it found", "scan", "index/structures/scan.py",
        "        return found_of(slots, examined == len(self._points), examined)",
        "        return found_of(slots, examined == len(self._points), len(slots))",
        "a scan passes for an index",
    ),
    IndexMutant(
        "columns: owns up only to what it found", "columns", "index/structures/columns.py",
        "            return Found(self.among_range(asked, 0, end), True, end)",
        "            slots = self.among_range(asked, 0, end)\n            return Found(slots, True, len(slots))",
        "a scan passes for an index",
    ),
    IndexMutant(
        "columns: a vacated slot still counts as taken", "columns", "index/structures/columns.py",
        "            self._taken_cells[slot] = False",
        "            pass",
        "the values are cleared, which is enough wherever a field is asked about",
    ),
    IndexMutant(
        "columns: each block begins one slot late", "columns", "index/structures/columns.py",
        "            start, block = stop, block * 4",
        "            start, block = stop + 1, block * 4",
        "a half-open range taken as closed",
    ),
    IndexMutant(
        "max-tree: gives up and shows what it has", "max-tree", "index/structures/max_tree.py",
        "        return (None if pending else slots), visits",
        "        return slots, visits",
        "the visits are used up, and that is taken for the end",
    ),
    IndexMutant(
        "max-tree: a maximum is never lowered", "max-tree", "index/structures/max_tree.py",
        "            while maxima[node] != greatest:",
        "            while maxima[node] < greatest:",
        "only what grows is thought of",
    ),
    IndexMutant(
        "max-tree: the maximum of the wrong neighbour", "max-tree", "index/structures/max_tree.py",
        "                beside = maxima[node ^ 1]",
        "                beside = maxima[node | 1]",
        "a node is taken for its own sibling",
    ),
    IndexMutant(
        "bitmaps: a kept state is written to", "bitmaps", "studies/bloom/structures/bitmaps.py",
        "        if chunk.epoch != self._epoch:",
        "        if chunk.epoch > self._epoch:",
        "the copy before a write is left out",
    ),
    IndexMutant(
        "bitmaps: the boundary bucket is not rechecked", "bitmaps", "studies/bloom/structures/bitmaps.py",
        "        sure = may if levels[may] == low else may + 1",
        "        sure = may",
        "a threshold below the bound is taken for the bound",
    ),
    IndexMutant(
        "bitmaps: a threshold at the high bound is taken to be above it", "bitmaps", "studies/bloom/structures/bitmaps.py",
        "levels[may] == high + 1",
        "levels[may - 1] == high",
        "a closed end taken as half-open",
    ),
    IndexMutant(
        "shards: a row that moved up is not found again", "sharded", "index/structures/shard_reader.py",
        "            self.rows[moved] = row\n",
        "",
        "the last row takes the place of one that left, and its place is not noted",
    ),
    IndexMutant(
        "shards: a point that changes shards stays in the old one", "sharded", "index/structures/sharded.py",
        "        elif old >= 0:\n            self.remove(slot)",
        "        elif old > self._shards:\n            self.remove(slot)",
        "shards by slot never see it",
    ),
    IndexMutant(
        "shards: a point is not added to the filter", "sharded", "index/structures/sharded.py",
        "        self._summaries[shard].put(point)\n",
        "        if old != shard:\n            self._summaries[shard].put(point)\n",
        "a slot that stays in its shard is taken to be unchanged",
    ),
    IndexMutant(
        "sorted-runs: a merge keeps the old place of what has changed", "sorted-runs", "index/structures/sorted_runs.py",
        "        kept = ~fresh[self.slots]\n",
        "        kept = np.ones(len(self.slots), dtype=np.bool_)\n",
        "new places are put in, old ones are not taken out",
    ),
    IndexMutant(
        "sorted-runs: what is fresh is found in the runs as well", "sorted-runs", "index/structures/sorted_runs.py",
        "slots[~self._is_fresh[slots]]",
        "slots",
        "a row that has changed since the last merge is in two places",
    ),
    IndexMutant(
        "cow-max-tree: it grows by one level at most", "cow-max-tree", "index/structures/cow_max_tree.py",
        "        while slot >> _BITS * self._root.height:",
        "        if slot >> _BITS * self._root.height:",
        "slots are taken to come one after the other",
    ),
    IndexMutant(
        "kd-tree: what changes while it is being ordered is lost", "kd-tree", "index/structures/kd_tree.py",
        "        for slot, point in before:\n",
        "        for slot, point in before[:0]:\n",
        "the new tree is that of the points it was begun with",
    ),
    IndexMutant(
        "kd-tree: what leaves while it is being ordered stays", "kd-tree", "index/structures/kd_tree.py",
        "            elif place >= 0:\n                self._give_place(slot, place)",
        "            elif place < -1:\n                self._give_place(slot, place)",
        "only what was put is followed up",
    ),
    IndexMutant(
        "zones: a last zone that is not full is not asked", "zones", "index/structures/zones.py",
        "        zones = -(-self._columns.end >> self._shift)\n        promising",
        "        zones = self._columns.end >> self._shift\n        promising",
        "a division rounded down",
    ),
    IndexMutant(
        "zones: with the limit just met, the zones left are forgotten", "zones", "index/structures/zones.py",
        "        complete = not limit or (count <= limit and first == len(promising))",
        "        complete = not limit or count <= limit",
        "enough is taken for all",
    ),
    IndexMutant(
        "joint-zones: a cell is empty when the first of its points leaves", "joint-zones", "studies/bloom/structures/joint_zones.py",
        "        if not count:",
        "        if change < 0:",
        "points are counted, and the count is not asked",
    ),
    IndexMutant(
        "joint-zones: the bucket of the low bound is left out", "joint-zones", "studies/bloom/structures/joint_zones.py",
        "~up_to[first - 1] if first",
        "~up_to[first] if first",
        "off by one among the buckets",
    ),
    IndexMutant(
        "shapes: what no longer lies in the box stays in its result", "shapes", "index/structures/shapes.py",
        "        for slot in gone:\n            del members[slot]\n",
        "        for slot in gone:\n            if not self._columns.has(slot):\n                del members[slot]\n",
        "what is removed is thought of, what moves away is not",
    ),
    IndexMutant(
        "shapes: the last answer outlives a change", "shapes", "index/structures/shapes.py",
        "        if gone or new:\n            shape.answer = None\n",
        "",
        "the members are kept right, the array made of them is not",
    ),
    IndexMutant(
        "shapes: the journal forgets, and nobody notices", "shapes", "index/structures/shapes.py",
        "            self._forgotten += _JOURNAL_NOTES\n",
        "",
        "a limit that only a long run reaches",
    ),
    IndexMutant(
        "shards: a joint bitset holds the last point alone", "sharded", "index/filters/joint_bitset.py",
        "        self.cells |= 1 << cell",
        "        self.cells = 1 << cell",
        "set for added",
    ),
)
