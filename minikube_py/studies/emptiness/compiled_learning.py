"""Loops of fronts that learn, from requests or from openings in vain, and of a copy of all nodes in columns.

Each is what the numpy front of its name does, in the same order, so that what takes another's place is the same.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from minikube_py.index.filters.front import Bools
from minikube_py.index.structure import LOW, IntArray
from minikube_py.studies.emptiness.by_request import NEVER
from minikube_py.studies.emptiness.compiled_rows import Jit, Loops


@cache
def _within(jit: Jit) -> Any:
    def within(row: Any, point: Any) -> Any:
        """Whether a request asks for no more than a node, or another request, has."""
        for each in range(len(row)):  # noqa: SIM110  A generator is no loop of machine code.
            if row[each] > point[each]:
                return False
        return True

    return jit(within)


# -- requests that are known -----------------------------------------------------------------------------------


@cache
def _learn(jit: Jit) -> Any:
    within = _within(jit)

    def learn(points: Any, rows: Any, fitting: Any, held: Any, place: Any) -> Any:
        """Compares the request at a place with all nodes; returns how many those are."""
        fitting[place] = 0
        for slot in range(len(points)):
            fitting[place, slot % fitting.shape[1]] += within(rows[place], points[slot])
        return len(points)

    return jit(learn)


@cache
def _suppose(jit: Jit) -> Any:
    within = _within(jit)

    def suppose(points: Any, rows: Any, fitting: Any, held: Any, place: Any) -> Any:
        """Lets the request at a place pass, unless one that asks for no more is known to fail. No node is read."""
        fitting[place] = 1
        for row in range(held):
            if row != place and within(rows[row], rows[place]):
                for shard in range(fitting.shape[1]):
                    fitting[place, shard] = min(fitting[place, shard], fitting[row, shard])
        return 0

    return jit(suppose)


@cache
def _ask_known(jit: Jit, learn: Any) -> Any:
    def ask_known(points: Any, rows: Any, fitting: Any, last: Any, count: Any, asked: Any, says: Any) -> Any:
        """Looks each request up, row by row, and learns it if it is not there; returns how many nodes were read."""
        read, dimensions = 0, rows.shape[1]
        for request in range(len(asked)):
            place, oldest = -1, 0
            for row in range(count[0]):
                each = 0
                while each < dimensions and rows[row, each] == asked[request, each]:
                    each += 1
                if each == dimensions:
                    place = row
                    break
                if last[row] < last[oldest]:
                    oldest = row
            if place < 0:
                place = oldest
                if count[0] < len(rows):
                    place = count[0]
                    count[0] += 1
                rows[place] = asked[request]
                read += learn(points, rows, fitting, count[0], place)
            count[1] += 1
            last[place] = count[1]
            for shard in range(fitting.shape[1]):
                says[request, shard] = fitting[place, shard] > 0
        return read

    return jit(ask_known)


@cache
def _take_known(jit: Jit) -> Any:
    within = _within(jit)

    def take_known(points: Any, rows: Any, fitting: Any, held: Any, slots: Any, news: Any) -> Any:
        for change in range(len(slots)):
            slot = slots[change]
            for row in range(held):
                more = within(rows[row], news[change]) - within(rows[row], points[slot])
                fitting[row, slot % fitting.shape[1]] += more
            points[slot] = news[change]
        return 0

    return jit(take_known)


def by_request(held: Any, jit: Jit) -> Loops:
    """The table of numpy's keys is left as it was built: a row is found by its amounts."""
    ask_known, take_known = _ask_known(jit, _learn(jit)), _take_known(jit)
    rows, fitting, count = held._rows, held._fitting, held._count

    def ask(asked: IntArray, says: Bools) -> None:
        read = int(ask_known(held.points, rows, fitting, held._asked, count, asked, says))
        held.rows_read += read
        held.visited |= read > 0

    return Loops(ask, lambda slots, news: take_known(held.points, rows, fitting, count[0], slots, news))


@cache
def _take_supposed(jit: Jit) -> Any:
    within = _within(jit)

    def take_supposed(points: Any, rows: Any, fitting: Any, held: Any, slots: Any, news: Any) -> Any:
        for change in range(len(slots)):
            slot = slots[change]
            points[slot] = news[change]
            for row in range(held):
                if within(rows[row], news[change]):
                    fitting[row, slot % fitting.shape[1]] = 1
        return 0

    return jit(take_supposed)


@cache
def _compare(jit: Jit) -> Any:
    within = _within(jit)

    def compare(points: Any, rows: Any, fitting: Any, held: Any, shard: Any) -> Any:
        """Of the requests that may pass: whether a node of the shard has all; returns how many nodes it has."""
        shards = fitting.shape[1]
        for row in range(held):
            if not fitting[row, shard]:
                continue
            fitting[row, shard] = 0
            for slot in range(shard, len(points), shards):
                if within(rows[row], points[slot]):
                    fitting[row, shard] = 1
                    break
        return (len(points) - shard + shards - 1) // shards

    return jit(compare)


def lazy_by_request(held: Any, jit: Jit) -> Loops:
    ask_known, take, compare = _ask_known(jit, _suppose(jit)), _take_supposed(jit), _compare(jit)
    rows, fitting, count = held._rows, held._fitting, held._count

    def in_vain(shard: int, asked: IntArray) -> None:
        held.rows_read += int(compare(held.points, rows, fitting, count[0], shard))
        held.visited[shard] = True

    return Loops(
        lambda asked, says: ask_known(held.points, rows, fitting, held._asked, count, asked, says),
        lambda slots, news: take(held.points, rows, fitting, count[0], slots, news),
        in_vain,
    )


# -- what was refused, and why ---------------------------------------------------------------------------------


@cache
def _refuse(jit: Jit) -> Any:
    within = _within(jit)

    def refuse(rows: Any, used: Any, asked: Any, says: Any) -> None:
        """Rules out the shards that refused a request which asks for no more."""
        for request in range(len(asked)):
            for shard in range(len(rows)):
                for place in range(used):
                    if within(rows[shard, place], asked[request]):
                        says[request, shard] = False
                        break

    return jit(refuse)


@cache
def _hold(jit: Jit) -> Any:
    within = _within(jit)

    def hold(rows: Any, learned: Any, row: Any) -> Any:
        """Of one shard; returns the place. Those that ask for as much are held no longer."""
        place = newest = 0
        for other in range(len(rows)):
            if within(row, rows[other]):
                rows[other] = NEVER
            if rows[other, 0] == NEVER:
                learned[other] = 0
            newest = max(newest, learned[other])
            if learned[other] < learned[place]:
                place = other
        rows[place] = row
        learned[place] = newest + 1
        return place

    return jit(hold)


@cache
def _least(jit: Jit) -> Any:
    def least(points: Any, shard: Any, shards: Any, row: Any) -> Any:
        """As `by_request.least`, of a shard's nodes."""
        asked, there, found = np.flatnonzero(row > LOW), points[shard::shards], row.copy()
        lacks = np.zeros((len(there), len(asked)), dtype=np.bool_)
        number, alone = np.zeros(len(there), dtype=np.int64), np.zeros(len(asked), dtype=np.int64)
        for node in range(len(there)):
            for each in range(len(asked)):
                lacks[node, each] = there[node, asked[each]] < row[asked[each]]
                number[node] += lacks[node, each]
            if number[node] == 1:
                for each in range(len(asked)):
                    alone[each] += lacks[node, each]
        for each in np.argsort(alone, kind="mergesort"):
            amount = LOW
            for node in range(len(there)):
                if number[node] == lacks[node, each]:
                    amount = max(amount, there[node, asked[each]] + 1)
            found[asked[each]] = amount
            if amount < row[asked[each]]:
                for node in range(len(there)):
                    if lacks[node, each] and there[node, asked[each]] >= amount:
                        lacks[node, each] = False
                        number[node] -= 1
        return found

    return jit(least)


@cache
def _allow(jit: Jit) -> Any:
    within = _within(jit)

    def allow(points: Any, rows: Any, requests: Any, used: Any, slots: Any, news: Any) -> Any:
        """A row that a node has all of is raised above it, while its request is, too; else it ends."""
        dimensions = rows.shape[2]
        for change in range(len(slots)):
            slot = slots[change]
            shard = slot % len(rows)
            points[slot] = news[change]
            for place in range(used):
                if not within(rows[shard, place], news[change]):
                    continue
                each = 0
                while each < dimensions and requests[shard, place, each] <= news[change, each]:
                    each += 1
                if each < dimensions:
                    rows[shard, place, each] = news[change, each] + 1
                else:
                    rows[shard, place] = NEVER
        return 0

    return jit(allow)


def refused(held: Any, jit: Jit) -> Loops:
    """Its rows are the requests themselves."""
    hold, rows = _hold(jit), held._rows

    def in_vain(shard: int, asked: IntArray) -> None:
        place = hold(rows[shard], held._learned[shard], np.maximum(asked, LOW))
        held._used = max(held._used, place + 1)

    return _refusing(held, jit, rows, in_vain)


def reasons(held: Any, jit: Jit) -> Loops:
    hold, least = _hold(jit), _least(jit)

    def in_vain(shard: int, asked: IntArray) -> None:
        request = np.maximum(asked, LOW)
        row = least(held.points, shard, held.shards, request)
        place = hold(held._rows[shard], held._learned[shard], row)
        held._used = max(held._used, place + 1)
        held._requests[shard, place] = request
        held.rows_read += -(-(len(held.points) - shard) // held.shards)
        held.visited[shard] = True

    return _refusing(held, jit, held._requests, in_vain)


def _refusing(held: Any, jit: Jit, requests: IntArray, in_vain: Any) -> Loops:
    refuse, allow = _refuse(jit), _allow(jit)
    return Loops(
        lambda asked, says: refuse(held._rows, held._used, asked, says),
        lambda slots, news: allow(held.points, held._rows, requests, held._used, slots, news),
        in_vain,
    )


# -- a copy in columns -----------------------------------------------------------------------------------------


@cache
def _find(jit: Jit) -> Any:
    def find(columns: Any, rows: Any, wanted: Any, begin: Any, end: Any) -> Any:
        """The first of the shards from `begin` to `end` with a node that has all that is wanted; -1 for none."""
        asked = np.flatnonzero(wanted > LOW)
        for row in range(begin * rows, end * rows):
            each = 0 if columns[0, row] >= LOW else len(asked) + 1
            while each < len(asked) and columns[asked[each], row] >= wanted[asked[each]]:
                each += 1
            if each == len(asked):
                return row // rows
        return -1

    return jit(find)


@cache
def _copies(jit: Jit) -> Any:
    find = _find(jit)

    def copies(columns: Any, rows: Any, asked: Any, says: Any) -> None:
        for request in range(len(asked)):
            for shard in range(says.shape[1]):
                says[request, shard] = find(columns, rows, asked[request], shard, shard + 1) >= 0

    return jit(copies)


@cache
def _write(jit: Jit) -> Any:
    def write(points: Any, columns: Any, rows: Any, shards: Any, slots: Any, news: Any) -> Any:
        for change in range(len(slots)):
            slot = slots[change]
            for each in range(len(columns)):
                points[slot, each] = news[change, each]
                columns[each, slot % shards * rows + slot // shards] = news[change, each]
        return 0

    return jit(write)


def copied(held: Any, jit: Jit) -> Loops:
    """A search compares nodes up to the first shard that has room."""
    copies, write, find, columns, rows = _copies(jit), _write(jit), _find(jit), held._columns, held._rows

    def ask(asked: IntArray, says: Bools) -> None:
        copies(columns, rows, asked, says)

    def take(slots: IntArray, news: IntArray) -> Any:
        return write(held.points, columns, rows, held.shards, slots, news)

    return Loops(ask, take, find=lambda wanted, begin, end: int(find(columns, rows, wanted, begin, end)))
