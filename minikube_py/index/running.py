"""A declared index at one member: from its declaration to the first answer, and its handling of failures.

None of its state is replicated. Queries always have the same answers: from the structure once it holds all rows, from
the host's columns before and after."""

from __future__ import annotations

from typing import Final

from minikube_py.errors import InvalidRequest, MinikubeError
from minikube_py.index import catalogue
from minikube_py.index.columns import ColumnIndex
from minikube_py.index.declared import IndexSpec, check_spec
from minikube_py.index.hosted import HostedIndex
from minikube_py.index.reports import IndexReport, IndexState
from minikube_py.own_code import raised, words_of

REVISION_BYTES: Final = 16
"""Memory of the host's log per row change beyond its cells: revision and slot."""
CELL_BYTES: Final = 8
CATCH_UP_ROWS: Final = 128
"""Changed rows put in at once; indexes that catch up in turn differ in the time per row."""


class Counts:
    """There were `queries` for the objects of an index, of which it answered `hits`."""

    __slots__ = ("hits", "queries")

    def __init__(self) -> None:
        self.queries = 0
        self.hits = 0


def check_buildable(spec: IndexSpec) -> None:
    """Raises: InvalidRequest if the declaration is invalid, this process has no such structure, or the structure does
    not support the options or dimensions."""
    check_spec(spec)
    try:
        catalogue.build(spec.structure, len(spec.fields), spec.options)
    except MinikubeError:
        raise
    except raised() as error:
        raise InvalidRequest(f"structure {spec.structure} cannot be built: {error}") from None


class Running:
    """`hosted` is None before the build begins and once the index is degraded."""

    def __init__(self, spec: IndexSpec, host: ColumnIndex, counts: Counts) -> None:
        self.spec = spec
        self.counts = counts
        self.state: IndexState = "building"
        self.reason = ""
        self.hosted: HostedIndex | None = None
        self._host = host
        missing = [name for name in spec.fields if host.field_set.find(name) is None]
        if missing:
            self.degrade(f"field {missing[0]} is not declared on {spec.on} any more")
            return
        try:
            structure = catalogue.build(spec.structure, len(spec.fields), spec.options)
        except raised() as error:
            self.degrade(f"{spec.structure} cannot be built here: {error}")
            return
        # Past states would be kept for each revision even without queries; the log has them.
        self.hosted = HostedIndex(host, spec.fields, structure, built=False, frozen_max=0, failed=self._failed)

    @property
    def ready(self) -> bool:
        return self.state == "ready"

    @property
    def progress(self) -> float:
        return self.hosted.progress if self.hosted is not None else 0.0

    def build(self, rows: int) -> None:
        """Adds about `rows` more rows."""
        if self.hosted is None or self.state != "building":
            return
        try:
            done = self.hosted.build(rows)
        except raised() as error:
            self._failed(error)
            return
        self.check_memory()
        if done and self.state == "building":
            self.state = "ready"

    @property
    def behind(self) -> bool:
        """A query needs it, and it has to catch up first."""
        return self.hosted is not None and self.hosted.wanted

    def catch_up(self, rows: int) -> None:
        """Puts in about `rows` of the queued changes."""
        if self.hosted is None:
            return
        try:
            self.hosted.catch_up(min(rows, CATCH_UP_ROWS))
        except raised() as error:
            self._failed(error)

    def check_memory(self) -> None:
        if self.hosted is None:
            return
        try:
            size_bytes = self.hosted.size_bytes()
        except raised() as error:
            self._failed(error)
            return
        if size_bytes > self.spec.memory_limit_bytes:
            self.degrade(
                f"it takes {size_bytes} bytes, its limit is {self.spec.memory_limit_bytes}; "
                "drop it and declare it again with a higher one"
            )

    def failed(self, error: BaseException) -> None:
        """The structure raised an exception during a query."""
        self._failed(error)

    def _failed(self, error: BaseException) -> None:
        self.degrade(f"{self.spec.structure} has failed: {type(error).__name__}: {words_of(error)}")

    def degrade(self, reason: str) -> None:
        """Drops the structure; its queries are answered without it."""
        self.close()
        self.state = "degraded"
        self.reason = reason

    def close(self) -> None:
        if self.hosted is not None:
            self.hosted.close()
            self.hosted = None

    def report(self) -> IndexReport:
        self.check_memory()
        hosted = self.hosted
        cells = len(self._host.field_set.fields) if hosted is None else self._host.column_count
        return IndexReport(
            self.spec,
            self.state,
            1.0 if self.ready else self.progress,
            self._host.live if self.ready else 0,
            0 if hosted is None else hosted.size_bytes(),
            float(REVISION_BYTES + CELL_BYTES * cells),
            self.counts.queries,
            self.counts.hits,
            self.reason,
        )
