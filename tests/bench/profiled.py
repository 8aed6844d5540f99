"""One row of `beside.py` on ours alone, with the server under the sampler: where its time goes.

usage: PYTHONPATH=tests/support python tests/bench/profiled.py ROW [--lines N]
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import beside
import ours
from servers import Server


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("row", choices=beside.ROWS)
    parser.add_argument("--lines", type=int, default=150, help="how much of the report")
    args = parser.parse_args()
    sampler = Path(__file__).with_name("sampler.py")
    with tempfile.TemporaryDirectory() as folder:
        count = 0

        @contextlib.contextmanager
        def sampled(*parts: str) -> Iterator[Server]:
            nonlocal count
            count += 1
            report = f"{folder}/{count}"
            started = [sys.executable, str(sampler), report, "-c", ours.SERVE]
            names = tuple("kubelet" if part == "kubelets" else part for part in parts)
            with ours.serve(names, started) as ready:
                yield Server("ours", ready["url"], ready["token"], {"minikube-py": ready["pid"]})
            sys.stdout.writelines(Path(report).read_text().splitlines(keepends=True)[: args.lines])

        for figure, value in beside.ROWS[args.row](sampled).items():
            print(f"  {figure:<34} {value:>12,.2f}")


if __name__ == "__main__":
    main()
