"""Where a process's time goes: samples its main thread's stack, as often as the kernel's CPU timer ticks (4 ms).

usage: python tests/bench/sampler.py REPORT (-m MODULE | -c CODE) [ARGUMENT...]

Runs the module or code as `python` would, and writes REPORT when it ends: the share of each stage, of each function
alone, and of each function with what it called. Costs a few percent, where cProfile doubles what small functions take.
"""

from __future__ import annotations

import runpy
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from types import FrameType

INTERVAL_S = 0.001
"""The kernel rounds it to one of its ticks."""
SHOWN = 45
STACK_MAX = 60

STAGES = (
    ("scheduler/binding", "scheduler: bind and event"),
    ("client/events", "scheduler: bind and event"),
    ("scheduler/", "scheduler: queue, filter, score"),
    ("kubelet/", "kubelet"),
    ("controllers/", "controllers"),
    ("client/informer", "informers: decode and project"),
    ("client/", "client"),
    ("index/", "index"),
    ("fields/", "index"),
    ("mvcc/codec", "store: log and sync"),
    ("mvcc/watch", "store: watch"),
    ("mvcc/", "store: apply"),
    ("raft/", "store: log and sync"),
    ("wal/", "store: log and sync"),
    ("store/collector", "garbage collection"),
    ("store/", "store: log and sync"),
    ("apiserver/watch_cache", "watch cache and fan-out"),
    ("apiserver/watch", "watch cache and fan-out"),
    ("apiserver/http", "HTTP and TLS"),
    ("api/decode", "API: decode"),
    ("api/defaults", "API: default"),
    ("api/validation", "API: validate"),
    ("api/patch", "API: patch"),
    ("api/strategic_merge", "API: patch"),
    ("api/", "API: the rest of api"),
    ("apiserver/", "API: core"),
    ("lab/", "load and report"),
    ("aiohttp/", "HTTP and TLS"),
    ("asyncio/sslproto", "HTTP and TLS"),
    ("asyncio/selector_events", "HTTP and TLS"),
    ("asyncio/", "event loop"),
    ("selectors.py", "waiting and idle turns"),
)
"""The innermost frame whose file contains the first text decides; C functions count for their callers."""


class Sampler:
    def __init__(self) -> None:
        self.total = 0
        self.alone: Counter[str] = Counter()
        self.with_callees: Counter[str] = Counter()
        self.stages: Counter[str] = Counter()

    def take(self, signum: int, frame: FrameType | None) -> None:
        self.total += 1
        stage = ""
        seen: set[str] = set()
        place = ""
        while frame is not None and len(seen) < STACK_MAX:
            code = frame.f_code
            place = f"{_short(code.co_filename)}:{code.co_qualname}"
            # Generated code (a NamedTuple's `__new__`) is uninformative: use its caller.
            if not place.startswith("<string>"):
                if not seen:
                    self.alone[f"{place}:{frame.f_lineno}"] += 1
                seen.add(place)
            stage = stage or next((name for part, name in STAGES if part in place), "")
            frame = frame.f_back
        self.with_callees.update(seen)
        self.stages[stage or "other"] += 1

    def report(self) -> str:
        cpu_s = time.process_time()
        lines = [f"{cpu_s:.2f} s of CPU, {self.total} samples"]
        for title, counts in (("stage", self.stages), ("line alone", self.alone), ("with callees", self.with_callees)):
            lines += ["", title]
            each_s = cpu_s / max(1, self.total)
            lines += [
                f"{100 * n / max(1, self.total):6.2f} %  {n * each_s:7.2f} s  {what}"
                for what, n in counts.most_common(SHOWN)
            ]
        return "\n".join(lines) + "\n"


def _short(path: str) -> str:
    return "/".join(Path(path).parts[-2:])


def main() -> None:
    report, how, what, *arguments = sys.argv[1:]
    sampler = Sampler()
    signal.signal(signal.SIGPROF, sampler.take)
    signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)
    sys.argv = [what if how == "-m" else "-c", *arguments]
    try:
        if how == "-m":
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            exec(compile(what, "<code>", "exec"), {"__name__": "__main__"})
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        Path(report).write_text(sampler.report())


if __name__ == "__main__":
    main()
