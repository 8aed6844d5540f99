"""Hosts a structure as an index of its own, and as one declared on others and built while rows change."""

from __future__ import annotations

from collections.abc import Iterable

from minikube_py.index.contract import RowChange
from minikube_py.index.hosted import HostedIndex
from minikube_py.lab.conformance.history import THINGS
from minikube_py.lab.conformance.program import Build


class Hosting:
    """`BuildIndex` of histories, for one structure."""

    def __init__(self, build: Build) -> None:
        self._build = build

    def alone(
        self, fields: tuple[str, ...], oldest_revision: int, rows: Iterable[RowChange], frozen_max: int
    ) -> HostedIndex:
        structure = self._build(len(fields))
        return HostedIndex.alone(THINGS, structure, fields, oldest_revision, rows, frozen_max=frozen_max)

    def beside(self, index: HostedIndex, fields: tuple[str, ...], frozen_max: int) -> HostedIndex:
        return HostedIndex(index.host, fields, self._build(len(fields)), built=False, frozen_max=frozen_max)
