"""How long no leader exists after a kill: `PYTHONPATH=tests/support python tests/bench/bench_elections.py`.

In virtual time, from seeds: the same figures on every machine.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from elections import KILLS, WORLDS, ElectionWorld, Interregna


def one(case: tuple[str, int]) -> Interregna:
    name, seed = case
    return ElectionWorld(seed, WORLDS[name]).go()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="of each world")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    seeds = range(-(-arguments.kills // KILLS))
    print("| two survivors | kills | p50 | p99 | longest | within two | elections it took |")
    print("|---|---|---|---|---|---|---|")
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for name in WORLDS:
            found = Interregna()
            for each in pool.map(one, [(name, seed) for seed in seeds]):
                found.add(each)
            terms = ", ".join(f"{count:,} x {number}" for number, count in sorted(Counter(found.terms).items()))
            print(
                f"| {name} | {len(found.timeouts):,} | {found.percentile(50):.2f} | {found.percentile(99):.2f} "
                f"| {max(found.timeouts):.2f} | {found.share_within(2.0):.1%} | {terms} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
