"""The bugs that are planted: one change of one file each, of the kind that a tired author or a merge makes.

`checker` names the test that must find it, which was written for a property and not for the bug: models, laws,
differential and durability tests. A checker is named by its node ids below tests/.
"""

# ruff: noqa: E501

from __future__ import annotations

from typing import NamedTuple

MVCC = "property/test_property_mvcc.py"
INDEX = "property/test_property_index.py"
INDEX_MANY = "property/test_index_many_rows.py"
WAL = "property/test_wal_damage.py"
DURABILITY = "property/test_store_durability.py"
INCOMING = "property/test_store_incoming.py"
TWO_SNAPSHOTS = "property/test_store_two_snapshots.py"
PATCHES = "property/test_api_typed.py"
WORK_QUEUE = "property/test_client_workqueue_model.py"
ROLLOUT = "property/test_controllers_rollout.py"
INFORMER = "property/test_client_informer_model.py"
DECISIONS = "property/test_scheduler_decisions.py"
BOOKS = "property/test_scheduler_books.py"
API_WRITES = "property/test_apiserver_list_model.py"
API_WATCHES = "property/test_apiserver_watch_model.py"


class Mutant(NamedTuple):
    """`old` stands exactly once in `minikube_py/<file>`; `why` says how such a bug comes about."""

    name: str
    checker: str
    file: str
    old: str
    new: str
    why: str
    seed: int = 1
    """The first to try: which one finds it soon."""


MUTANTS: tuple[Mutant, ...] = (
    # --- mvcc -------------------------------------------------------------------------------------------------------
    Mutant(
        "mvcc: the revision grows per op of a txn", MVCC, "mvcc/state.py",
        "            self.commit(self.revision + 1, events, rows)",
        "            self.commit(self.revision + len(events), events, rows)",
        "revisions counted per event, as a log would",
    ),
    Mutant(
        "mvcc: nested compares see the txn's own writes", MVCC, "mvcc/state.py",
        "        return self._run(cast(Txn, op), next(nested), revision, events)",
        "        return self._run(cast(Txn, op), path(cast(Txn, op), self.index), revision, events)",
        "compares run after the first write: worked out where they are needed, not in advance",
    ),
    Mutant(
        "mvcc: deleting nothing is a revision", MVCC, "mvcc/state.py",
        "        if events:\n            self.commit(",
        "        if events is not None:\n            self.commit(",
        "the list is asked for, and not what is in it",
    ),
    Mutant(
        "mvcc: a range of the past sees newer values", MVCC, "mvcc/key_index.py",
        "        if kv is not None and kv.mod_revision <= revision:\n            return kv",
        "        if kv is not None and kv.create_revision <= revision:\n            return kv",
        "create_revision taken for mod_revision",
        seed=3,
    ),
    Mutant(
        "mvcc: a revoked lease leaves a key", MVCC, "mvcc/state.py",
        "        if old_lease != lease:\n            self.lessor.move(key, old_lease, lease)",
        "        if old_lease and old_lease != lease:\n            self.lessor.move(key, old_lease, lease)",
        "attaching to a first lease forgotten where moving from one to another was added",
    ),
    Mutant(
        "mvcc: compaction drops a surviving version", MVCC, "mvcc/key_index.py",
        "            if kv is not None and kv.mod_revision <= revision:\n                drop = len(older)",
        "            if kv is not None:\n                drop = len(older)",
        "all but the present version of a live key dropped, though one stands at the compacted revision",
    ),
    Mutant(
        "mvcc: a refused txn is half applied", MVCC, "mvcc/state.py",
        "        for op in ops:\n            if type(op) is Put:\n                self._check_put(op)",
        "        for op in ops[:1]:\n            if type(op) is Put:\n                self._check_put(op)",
        "only the first op checked before anything is written",
    ),
    Mutant(
        "mvcc: a count in the past forgets what died since", MVCC, "mvcc/reads.py",
        '                    if kind == "DELETE":\n                        count += 1\n                    elif kv.version == 1:',
        "                    if kv.version == 1:",
        "births since then subtracted, deaths not added",
    ),
    Mutant(
        "mvcc: a read in a txn does not see its writes", MVCC, "mvcc/state.py",
        "            return self._reads.range(op, revision if events else self.revision, events)",
        "            return self._reads.range(op, self.revision, events)",
        "the revision before the txn used within it",
    ),
    # --- index and fields -------------------------------------------------------------------------------------------
    Mutant(
        "index: the entry of a deleted object stays", INDEX, "index/columns.py",
        "                self._cells[:, slot] = MISSING\n                self._gone.append",
        "                self._cells[EXISTS, slot] = MISSING\n                self._gone.append",
        "the row is marked as gone, its values still match",
    ),
    Mutant(
        "index: an undo entry is lost on delete", INDEX, "index/columns.py",
        "            self._remember(revision, slot)\n            if row is None:",
        "            if row is not None:\n                self._remember(revision, slot)\n            if row is None:",
        "only overwritten rows are kept for queries of the past",
    ),
    Mutant(
        "index: a sum is not updated on re-bind", INDEX, "index/table.py",
        "        if old == new:\n            return []",
        "        if old == new or (old is not None and new is not None and old.members == new.members):\n            return []",
        "a pod that asks for the same counts as unchanged, though its node changed",
    ),
    Mutant(
        "index: a finished pod is still counted", INDEX, "fields/pod_requests.py",
        'FINISHED_PHASES = frozenset(("Succeeded", "Failed"))',
        'FINISHED_PHASES = frozenset(("Succeeded",))',
        "failed pods forgotten beside those that succeeded",
    ),
    Mutant(
        "index: the undo log skips a column", INDEX, "index/columns.py",
        "        chunk.cells[:columns, entry] = self._cells[:columns, slot]",
        "        chunk.cells[: columns - 1, entry] = self._cells[: columns - 1, slot]",
        "off by one in the number of columns",
    ),
    Mutant(
        "index: >= leaves out the boundary", INDEX, "index/cells.py",
        '    if op == ">=":\n        result = values >= operand',
        '    if op == ">=":\n        result = values > operand',
        "the boundary of an inequality",
    ),
    Mutant(
        "index: the page after a cursor repeats it", INDEX_MANY, "index/contract.py",
        'first = start if cursor is None else max(start, cursor + b"\\0")',
        "first = start if cursor is None else max(start, cursor)",
        "an exclusive bound taken as inclusive",
    ),
    Mutant(
        "index: a reused slot is listed twice", INDEX_MANY, "index/columns.py",
        "                self.key_order.removed.append(self._keys[slot])\n",
        "",
        "the key order is not told that an object is gone before its slot is used again",
    ),
    # --- watch ------------------------------------------------------------------------------------------------------
    Mutant(
        "watch: an event is dropped at the sync boundary", MVCC, "mvcc/watch.py",
        "        elif next_revision > self.revision:\n            self._join(watcher)\n        else",
        "        elif next_revision >= self.revision:\n            self._join(watcher)\n        else",
        "a watch from the last revision handed out counts as in step, and misses that revision",
    ),
    Mutant(
        "watch: events are doubled at the sync boundary", MVCC, "mvcc/watch.py",
        "            if watcher.next_revision <= after + 1:\n                self._tell(watcher, batch)",
        "            if watcher.next_revision <= until:\n                self._tell(watcher, batch)",
        "a watch that starts ahead of the hub gets the whole batch, and with it what came before its start",
    ),
    Mutant(
        "watch: prev_kv is missing", MVCC, "mvcc/state.py",
        "            self.lessor.move(key, old_lease, lease)\n        events.append(event)\n",
        "            self.lessor.move(key, old_lease, lease)\n        events.append(event if prev_kv else event._replace(prev_kv=None))\n",
        "the put's own prev_kv flag taken for the watchers'",
    ),
    Mutant(
        "watch: events come out of order", INDEX, "mvcc/transitions.py",
        "    for revision in sorted(moved.keys() | written.keys()):",
        "    for revision in {**moved, **written}:",
        "two sources of changes put one after the other instead of merged",
    ),
    Mutant(
        "watch: an object leaves a where-watch untold", INDEX, "mvcc/transitions.py",
        "            if now != was:",
        "            if now != was and now:",
        "a node that a bind takes under the line gives no DELETED",
    ),
    # --- log and store ----------------------------------------------------------------------------------------------
    Mutant(
        "store: fsync is skipped", DURABILITY, "store/log_files.py",
        "= [segment.file.sync, partial(segment.writer.mark_synced, end)]",
        "= [partial(segment.writer.mark_synced, end)]",
        "the bytes are written, and stay in the page cache",
    ),
    Mutant(
        "store: a full segment is left unsynced", DURABILITY, "store/log_files.py",
        "            steps += self._sync_steps(segment, segment.writer.end)\n",
        "            steps += self._sync_steps(segment, segment.writer.end)[1:]\n",
        "a batch runs over into the next segment, and only that one is synced",
    ),
    Mutant(
        "wal: a torn tail is not cut", WAL, "store/log_files.py",
        "tail.unsure + bytes(tail.dirty_end - tail.end))",
        "tail.unsure)",
        "remains of a torn write stay behind the end, and are read as part of the log later",
    ),
    Mutant(
        "wal: damage is taken for a torn tail", WAL, "wal/recovery.py",
        "        if witness.synced > offset:",
        "        if witness.synced > witness.offset:",
        "the witness compared with itself: acknowledged entries are cut off without a word",
    ),
    Mutant(
        "store: a segment goes that the snapshot needs", TWO_SNAPSHOTS, "store/log_files.py",
        "self._heads[1].first_index <= self._durable[1] + 1",
        "self._heads[0].first_index <= self._durable[1] + 1",
        "the log after the snapshot removed with the log before it",
    ),
    Mutant(
        "store: a removal goes by a snapshot without a durable name", INCOMING, "store/log_files.py",
        "other < self._durable[0] and other not in self._durable:",
        "other < self._newest_index and other != self._newest_index:",
        "what is in force goes while another snapshot is being installed",
    ),
    Mutant(
        "store: a start removes before the names that it found are durable", INCOMING, "store/log_files.py",
        "        sync_folder(self.disk)\n        for name in self.disk.names():\n",
        "        for name in self.disk.names():\n",
        "the process ended between a snapshot's name and its sync, and the power goes during the next start",
    ),
    Mutant(
        "store: all incoming snapshots are written to one file", INCOMING, "store/log_files.py",
        '        name = f"incoming-{self._incoming_files}{PART_SUFFIX}"\n',
        '        name = "incoming" + PART_SUFFIX\n'
        "        if name in self.disk.names():\n            self.disk.remove(name)\n",
        "the next offer takes the file of a snapshot that is still to be named",
    ),
    Mutant(
        "store: what Raft accepted gives way to an offer", INCOMING, "store/replica.py",
        "        if accepted is not None:\n            raise TransferRefused",
        "        if accepted is not None and self._snapshots.arrived(accepted) is None:\n            raise TransferRefused",
        "only an accepted snapshot that is not here is looked after",
    ),
    Mutant(
        "store: a snapshot claims entries it has not", DURABILITY, "store/replica.py",
        "        raft, index = self.raft, self.raft.log.applied\n",
        "        raft, index = self.raft, self.raft.log.last_index\n",
        "the log's end taken for what is applied: entries between are skipped at the next start",
    ),
    Mutant(
        "store: a txn is half applied on restore", DURABILITY, "mvcc/snapshot.py",
        "[_slim(event) for event in events]] for events in later)",
        "[_slim(event) for event in events[:1]]] for events in later)",
        "one event per revision assumed, which holds for all but txns",
    ),
    Mutant(
        "store: a txn is half applied on replay", DURABILITY, "store/applying.py",
        "                    command = self._check_of_entries.command(index, data)\n",
        "                    command = self._check_of_entries.command(index, data)\n"
        "                    command = getattr(command, \"success\", (command,))[0]  # type: ignore[assignment]\n",
        "a shortcut at replay for txns of one op, which are nearly all",
    ),
    Mutant(
        "store: the term is not persisted", DURABILITY, "store/replica.py",
        "            self.files.write(entries, hard_state)",
        "            self.files.write(entries, None)",
        "hard state written with the commit only: a vote is given twice in one term",
    ),
    # --- patches ----------------------------------------------------------------------------------------------------
    Mutant(
        "api: a strategic merge loses a list entry", PATCHES, "api/strategic_merge.py",
        "    return [*woven, *left[i:], *right[j:]]",
        "    return [*woven, *right[j:]]",
        "what is left of one list after the merge loop is forgotten",
    ),
    Mutant(
        "api: a JSON patch's test is ignored", PATCHES, "api/json_patch.py",
        "    if not equal(found, expected):\n        raise",
        "    if not equal(found, found):\n        raise",
        "the value compared with itself",
    ),
    # --- client -----------------------------------------------------------------------------------------------------
    Mutant(
        "client: a key is processed twice at once", WORK_QUEUE, "client/workqueue.py",
        "        if item not in self._processing:\n            self._enqueue(item)",
        "        self._enqueue(item)",
        "an item added while it is worked on goes to a second worker",
    ),
    Mutant(
        "client: deletes are missed at a relist", INFORMER, "client/informer.py",
        "enumerate([key for key in known if key not in found], start=1)",
        "enumerate(list[str](), start=1)",
        "a list taken as updates only: what went in the gap stays",
    ),
    Mutant(
        "client: a remade object is an update", INFORMER, "client/informer.py",
        "        if old is not None and old.uid != item.uid:",
        "        if old is not None and old is item:",
        "names taken for identities",
    ),
    # --- controllers ------------------------------------------------------------------------------------------------
    Mutant(
        "controllers: a rolling update forgets maxUnavailable", ROLLOUT, "controllers/rollout.py",
        "    least = deployment.replicas - max_unavailable(deployment)\n    missing",
        "    least = 0\n    missing",
        "old pods go before new ones are available",
    ),
    Mutant(
        "controllers: a rolling update forgets maxSurge", ROLLOUT, "controllers/rollout.py",
        "    room = max_size(deployment) - size(everything)",
        "    room = deployment.replicas",
        "the new ReplicaSet has its full size at once",
    ),
    Mutant(
        "controllers: what is left of a scaling is lost", ROLLOUT, "controllers/rollout.py",
        "        sizes[0] = max(sizes[0] + to_add - added, 0)",
        "        sizes[0] = max(sizes[0], 0)",
        "proportions rounded, and their sum forgotten",
    ),
    # --- scheduler --------------------------------------------------------------------------------------------------
    Mutant(
        "scheduler: Fit refuses what just fits", DECISIONS, "scheduler/plugins/node_resources.py",
        "            enough = nodes.free(resource) >= amount",
        "            enough = nodes.free(resource) > amount",
        "< instead of <=",
    ),
    Mutant(
        "scheduler: a failed bind stays charged", BOOKS, "scheduler/cache.py",
        "        if counted is None or not counted.assumed:\n            return False\n        del self._pods[uid]",
        "        return False\n        del self._pods[uid]",
        "assume without forget: the node is smaller from then on",
    ),
    # --- API server -------------------------------------------------------------------------------------------------
    Mutant(
        "apiserver: a stale resourceVersion is accepted", API_WRITES, "apiserver/checks.py",
        '    if wanted == before["resourceVersion"]:',
        '    if not wanted or int(wanted) <= int(before["resourceVersion"]):',
        "only versions from the future refused: an update of an old state overwrites a new one",
    ),
    Mutant(
        "apiserver: of two writers at once one is lost", API_WRITES, "mvcc/txn.py",
        '(_new(Compare, (key, "MOD", "=", revision, b"")),)',
        '(_new(Compare, (key, "MOD", ">", 0, b"")),)',
        "the write checks that the object is there, not that it is as it was read",
    ),
    Mutant(
        "apiserver: a page is not of the first page's version", API_WRITES, "apiserver/lists.py",
        "            revision = max(revision, 0)\n",
        "            revision = 0\n",
        "the token's key used, its revision not",
    ),
    Mutant(
        "apiserver: a watch repeats the version it begins at", API_WATCHES, "apiserver/watch_cache.py",
        "            if change.revision <= revision:\n                break",
        "            if change.revision < revision:\n                break",
        "an exclusive start taken as inclusive",
    ),
    Mutant(
        "apiserver: an object leaves a selector untold", API_WATCHES, "apiserver/watch.py",
        '        return WatchEvent("DELETED", self.encoder.of_change(change, True)) if before else None',
        '        return WatchEvent("DELETED", self.encoder.of_change(change, True)) if before and entry is None else None',
        "a pod that is relabelled stays with those that watch the old label",
    ),
)  # fmt: skip
