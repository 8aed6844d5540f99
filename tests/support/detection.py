"""How many seeds exploring needs to find each of the known bugs: the table of docs/how-to/explore.md.

    PYTHONPATH=tests/support python tests/support/detection.py [SEEDS]

runs each of the wrong operators under so many seeds (200), without shrinking."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Final

from site_operator import (
    BelievesItsList,
    NeedsTheEvent,
    SiteOperator,
    TakesOneForBoth,
    a_site_comes_changes_and_goes,
)

from minikube_py.cluster.aimed_faults import drawn
from minikube_py.cluster.explore import run_once

NODES: Final = 1
DEFAULT: Final = 50
"""Seeds of a run, where nothing else is said."""
STARTS: Final = (1, 51, 101, 151)
BUGS: Final = {
    TakesOneForBoth: "takes one of two objects for both: wrong after a crash between two writes",
    BelievesItsList: "deletes what is not in its list: wrong where the list is stale",
    NeedsTheEvent: "cleans up by the event of a deletion: wrong where it is never seen",
}


class Detection:
    """Runs the test of one wrong operator, seed by seed."""

    def __init__(self, operator: type[SiteOperator]) -> None:
        self._test = partial(a_site_comes_changes_and_goes, operator=operator)
        calm = run_once(self._test, "calm", (), NODES)
        assert calm.passed, calm.error
        self._calm = calm.calm

    def fails(self, seed: int) -> bool:
        return not run_once(self._test, seed, drawn(f"explore {seed}", self._calm, NODES), NODES).passed

    def needed(self, start: int, most: int = DEFAULT) -> int | None:
        """How many seeds from there until the bug is found; None if none of `most` finds it."""
        return next((seed - start + 1 for seed in range(start, start + most) if self.fails(seed)), None)


def row(said: str, found: Sequence[int], seeds: int) -> str:
    """Of the table. `found`: the seeds that fail."""
    needed = [next((seed - start + 1 for seed in found if seed >= start), None) for start in STARTS if start <= seeds]
    worst = max(later - earlier for earlier, later in pairwise([0, *found, seeds + 1]))
    cells = [said, f"{len(found)} of {seeds}", ", ".join(str(each) for each in needed), str(worst)]
    return f"| {' | '.join(cells)} |"


def main(seeds: int = 200) -> None:
    print(f"| Bug | Seeds that find it | Needed from seed {', '.join(map(str, STARTS))} | From the worst |", flush=True)
    print("|---|---|---|---|")
    for operator, said in BUGS.items():
        detection = Detection(operator)
        print(row(said, [seed for seed in range(1, seeds + 1) if detection.fails(seed)], seeds), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
