"""The order in which several workers take the tests: the longest files first, and tests that wait beside those that
compute.

`--dist worksteal` gives each worker an equal part of the list, one after the other, and lets a worker that is done take
half of the rest of another. In the order of the folders one worker would wait for real processes for most of a run
while the others compute, and the last tests would be long ones, beside cores with nothing to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Protocol, TypeVar

TESTS = "tests"
WAITING = ("conformance", "e2e", "integration")
"""Folders whose tests mostly wait: for real processes, sockets and timers."""
LONG_S = {
    "conformance/test_differential.py": 330, "conformance/test_workloads_vs_original.py": 240,
    "conformance/test_controllers_vs_original.py": 190, "e2e/test_kube_apiserver_three_members.py": 190,
    "unit/cluster/test_explore.py": 180, "sim/test_every_python.py": 160, "planted/test_planted_bugs.py": 160,
    "e2e/test_compose.py": 150, "conformance/test_gangs_vs_original.py": 130, "unit/lab/test_model_check.py": 130,
    "sim/test_plane_histories.py": 110, "e2e/test_etcd_without_quorum.py": 110,
    "unit/lab_study/test_study_reproduces.py": 110, "unit/cluster/test_nothing_left.py": 100,
    "unit/lab/test_plugin_check.py": 100, "unit/cluster/test_local.py": 100, "unit/cluster/test_tutorial.py": 100,
    "integration/test_tutorials_typed.py": 100, "integration/test_lab_runs.py": 100,
    "planted/test_swarm_planted.py": 100, "unit/lab/test_compare.py": 90,
    "conformance/test_admission_vs_original.py": 90, "sim/test_swarm_replay.py": 90, "e2e/test_kill_nine.py": 80,
    "conformance/test_reviews_vs_original.py": 80, "property/test_door_arguments.py": 80,
    "conformance/test_drawn_workloads_vs_original.py": 80, "unit/lab_study/test_compiled_fronts.py": 80,
    "sim/test_swarm_histories.py": 80, "property/test_restored_life.py": 80, "integration/test_etcd_behind.py": 75,
    "unit/cluster/test_explored_item.py": 70, "unit/api/test_api_costs.py": 70, "unit/test_clock_and_rng.py": 70,
    "integration/test_cli_up.py": 70, "unit/cli/test_cli_own_code_ends.py": 70, "sim/test_virtual_digests.py": 60,
    "unit/cluster/test_isolation.py": 60, "e2e/test_etcdctl_three_members.py": 60,
    "unit/cluster/test_interrupted_anywhere.py": 60, "conformance/test_operator_vs_original.py": 60,
    "unit/cli/test_cli_front_check.py": 60, "unit/cli/test_front_how_to.py": 60,
    "unit/rivals/test_rivals_answer.py": 55, "unit/mvcc/test_mvcc_ahead.py": 50, "unit/cluster/test_plugin.py": 50,
    "unit/lab_study/test_titles_hold.py": 50, "conformance/test_conversion_vs_original.py": 50,
    "integration/test_up_members.py": 50, "unit/lab_study/test_lazy_skyline.py": 50,
    "property/test_store_durability.py": 50, "unit/lab_study/test_study_contest.py": 50, "sim/test_sim_peers.py": 50,
    "unit/controllers/test_controllers_jobs.py": 50, "unit/cluster/test_input_log.py": 50,
    "conformance/test_helm_vs_original.py": 45, "sim/test_sim_elections.py": 40,
    "unit/lab_study/test_study_fronts.py": 40, "unit/cluster/test_replaced.py": 40,
    "e2e/test_etcd_behind_torture.py": 38, "property/test_apiserver_index_model.py": 37,
    "integration/test_apiserver_intake.py": 32,
}  # fmt: skip
"""Seconds that a file took in a whole run. A wrong number costs time and nothing else; `run_report` prints new ones."""


class Item(Protocol):
    @property
    def path(self) -> PurePath: ...


T = TypeVar("T", bound=Item)


def spread(items: Sequence[T], workers: int) -> list[T]:
    """As many parts as workers, equal in length: each begins with its share of the long files; of the others, tests
    that wait lie evenly among those that compute. A file's tests stay together and in order, but where a part ends."""
    files: dict[PurePath, list[T]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    parts: list[list[T]] = [[] for _ in range(workers)]
    durations_s = [0] * workers
    for path in sorted(files, key=lambda path: -_long_s(path)):
        if not (long_s := _long_s(path)):
            break
        least = durations_s.index(min(durations_s))
        durations_s[least] += long_s
        parts[least] += files.pop(path)
    rest = list(_evenly([of for path, of in files.items() if _waits(path)],
                        [of for path, of in files.items() if not _waits(path)]))  # fmt: skip
    taken = 0
    for number, part in enumerate(parts):
        missing = max(0, _length(len(items), workers, number) - len(part))
        part += rest[taken : taken + missing]
        taken += missing
    return [item for part in parts for item in part] + rest[taken:]


def _evenly(some: list[list[T]], others: list[list[T]]) -> Iterable[T]:
    """Each of `others` in order, and as large a share of `some` before it as it is one of all of them."""
    total, wanted = sum(map(len, others)), sum(map(len, some))
    given = passed = 0
    left = iter(some)
    for other in others:
        while given * total < passed * wanted and (one := next(left, None)):
            given += len(one)
            yield from one
        passed += len(other)
        yield from other
    for one in left:
        yield from one


def _length(total: int, workers: int, number: int) -> int:
    """As xdist shares them out: what is left by those that are left."""
    return (total + number) // workers


def _long_s(path: PurePath) -> int:
    return LONG_S.get(_within(path), 0)


def _waits(path: PurePath) -> bool:
    return _within(path).startswith(tuple(f"{folder}/" for folder in WAITING))


def _within(path: PurePath) -> str:
    """The path below `tests`; "" outside of it."""
    parts = path.parts
    return "/".join(parts[parts.index(TESTS) + 1 :]) if TESTS in parts else ""
