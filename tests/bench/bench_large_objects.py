"""Large objects of every stored kind, drawn by the schema: each list, map and text filled to a size, with items that
validation accepts and with others, sent in every way to a whole control plane in virtual time.

Printed: what took longer than LIMIT_MS of CPU in one step of the loop, while it was answered or in what components did
next. All fields of all kinds take hours; KIND... and --fields draw some.

    python tests/bench/bench_large_objects.py [--fields 7] [--seed 1] [--bytes 250000] [KIND...]
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/support"), str(ROOT / "tests/conformance")]

from large_fields import OBJECTS, Place, places  # noqa: E402
from large_requests import Sender, Step  # noqa: E402

from minikube_py.cluster.virtual import VirtualCluster  # noqa: E402

LIMIT_MS = 20.0


def drawn(plural: str, count: int, rng: random.Random) -> list[Place]:
    found = places(plural)
    return rng.sample(found, count) if 0 < count < len(found) else found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fields", type=int, default=0, help="of each kind; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bytes", type=int, default=250_000)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(OBJECTS)}")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    print("| | answer | bytes | longest step, ms of CPU | afterwards |\n|---|---|---|---|---|", flush=True)
    for plural in options.kinds or OBJECTS:
        with VirtualCluster(seed=plural, nodes=2) as cluster:
            sender = Sender(cluster)
            cluster.run(sender.set_up)
            cluster.advance(20)
            for number, place in enumerate(drawn(plural, options.fields, rng)):

                async def steps(
                    sender: Sender = sender, place: Place = place, name: str = f"big{number}"
                ) -> list[Step]:
                    return [step async for step in sender.steps_of(place, name, options.bytes)]

                gc.collect()
                gc.disable()
                try:
                    found = cluster.run(steps)
                finally:
                    gc.enable()
                for step in found:
                    if max(step.longest_ms, step.after_ms) > LIMIT_MS or not step.status:
                        took = f"{step.longest_ms:.0f} | {step.after_ms:.0f}"
                        print(f"| {step.what} | {step.status} | {step.sent_bytes} | {took} |", flush=True)


if __name__ == "__main__":
    main()
