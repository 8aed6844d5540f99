"""Ctrl-C at any instruction of start, body and stop, once and twice: the thread ends and the folder goes, by itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.real_time("real processes")
PROGRAM = """
import _thread, gc, itertools, os, random, sys, tempfile
from minikube_py import Cluster

clock, rounds = sys.argv[1], int(sys.argv[2])
FOLDER = tempfile.gettempdir()
FILES = tuple('local.py real.py loop_thread.py virtual_engine.py gateway.py clients.py folder.py methods.py'.split())


class Interrupts:
    '''KeyboardInterrupt before the `first`-th instruction of the main thread, and at the `more`-th call or return after
    it. Tracing ends with the first exception of a tracer, as does profiling: so one of each.'''

    def __init__(self, first, more):
        self.seen, self.first, self.left, self.came = 0, first, more, 0

    def trace(self, frame, event, argument):
        # Signals are held while the simulation runs, which takes most of the time.
        if frame.f_code.co_filename.rpartition('/')[2] not in FILES:
            return None
        frame.f_trace_opcodes = True
        if event == 'opcode':
            self.seen += 1
            if self.seen == self.first:
                self.came += 1
                if self.left:
                    sys.setprofile(self.profile)
                raise KeyboardInterrupt
        return self.trace

    def profile(self, frame, event, argument):
        self.left -= frame.f_code is not interrupted.__code__
        if self.left <= 0 and frame.f_code is not interrupted.__code__:
            self.came += 1
            raise KeyboardInterrupt


def life():
    with Cluster(nodes=1, clock=clock) as cluster:
        if clock == 'virtual':
            # Its HTTPS has a thread and a folder.
            cluster.url
        cluster.objects('nodes')


def interrupted(first, more):
    interrupts = Interrupts(first, more)
    sys.settrace(interrupts.trace)
    try:
        life()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
        sys.setprofile(None)
    return interrupts


def settled(said):
    # A cluster that nobody stops lives until it is collected.
    gc.collect()
    while _thread._count() > threads:
        os.sched_yield()
    left = os.listdir(FOLDER)
    assert not left, (said, left)


life()
threads = _thread._count()
count = interrupted(-1, 0).seen
settled('none')
assert count > 300
drawn, twice = random.Random(clock), 0
for number in range(rounds):
    # Evenly over all of them.
    first = 1 + int((number + drawn.random()) * count / rounds)
    came = interrupted(first, drawn.choice((0, 1, 2, 3, 5, 8, 20, 60))).came
    twice += came == 2
    settled((first, came))
assert twice > rounds // 4, twice
print('nothing left')
"""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("clock", "rounds"), [("real", 80), ("virtual", 30)])
def test_an_interrupt_at_any_instruction_leaves_nothing(clock: str, rounds: int, tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", PROGRAM, clock, str(rounds)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "nothing left"), done.stderr
    assert not list(tmp_path.iterdir())
