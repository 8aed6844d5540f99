"""Nothing reads time, randomness, identity or an order that nothing decides but by Clock and Rng: what does is listed
here, with the reason why no history can depend on it."""

from __future__ import annotations

from pathlib import Path

import pytest
from nondeterminism import COMPARED, IDENTITY, ORDER, RANDOM, THREAD, TIES, TIME, TURNS, WAIT, findings
from shapes import Known

PRODUCT = Path(__file__).resolve().parents[2] / "minikube_py"

ALLOWED: dict[tuple[str, str], str] = {
    # The doors themselves, and those who open them.
    ("env.py", TIME): "SystemClock is the door",
    ("env.py", WAIT): "SystemClock is the door",
    ("sim/clock.py", WAIT): "SimClock is the other door: its loop's time is virtual",
    ("sim/", WAIT): "stories run on the simulated loop, whose timers are virtual",
    ("cli/", TIME): "says to people how long a start took",
    ("cli/", RANDOM): "a command hands out the generators; it has no seed to draw from where none was given",
    ("cli/", WAIT): "a command of its own process looks again after a while",
    ("cli/", IDENTITY): "a process of its own: what the user set, on which machine it runs, temporary folders",
    ("cluster/loop_thread.py", THREAD): "a cluster in real time has a thread of its own, and so has a gateway",
    ("cluster/owner.py", IDENTITY): "a forked child is refused; compared, and shown to nobody",
    ("cluster/door.py", THREAD): "a real kubectl, from the loop that it asks",
    ("cluster/gateway.py", THREAD): "real sockets, in front of virtual time",
    ("cluster/program_kopf.py", THREAD): "the longest that a plain handler can wait",
    ("cluster/program_plain.py", THREAD): "a plain function under test: it and the simulation take turns",
    ("cluster/program_plain.py", TIME): "what sleeps by `time` there lets virtual time pass",
    ("cluster/program_plain.py", WAIT): "on a simulated loop, whose timers are virtual",
    ("cluster/webhooks.py", THREAD): "a test's function answers on a thread in real time, inline in virtual time",
    ("cluster/virtual_engine.py", THREAD): "a lock: one request at a time, from whichever thread",
    ("cluster/real.py", RANDOM): "a cluster in real time; its uids must not repeat",
    ("cluster/explore.py", RANDOM): "what the test under exploration draws by itself is made the seed's",
    ("cluster/explore.py", THREAD): "a lock: a process has one `random`, and so one explored run at a time",
    ("cluster/surroundings.py", RANDOM): "what a program under test draws by itself is made the seed's",
    ("cluster/surroundings.py", THREAD): "which thread a program runs on",
    ("cluster/surroundings.py", IDENTITY): "a file that a client of a program left is deleted",
    ("cluster/no_cluster.py", IDENTITY): "what leads an explored test to the user's own cluster is hidden from it",
    ("sim/loop_base.py", THREAD): "a call from another thread is refused by its name",
    ("sim/replaced.py", THREAD): "what is replaced in the process tells threads apart",
    ("cluster/folder.py", IDENTITY): "a temporary folder",
    ("cluster/folder.py", ORDER): "a forked child lets each folder go",
    ("cluster/door.py", IDENTITY): "a real kubectl has the user's environment",
    ("cluster/outside.py", IDENTITY): "which cluster outside the user means",
    # Processes, sockets and credentials, which no virtual run has.
    ("control_plane/role_", RANDOM): "a role as a process of its own hands out the generators",
    ("control_plane/role_store.py", WAIT): "a role as a process of its own",
    ("control_plane/process.py", WAIT): "a real process waits for a signal",
    ("control_plane/supervisor.py", WAIT): "real child processes",
    ("control_plane/running.py", IDENTITY): "the note says which process runs",
    ("control_plane/store_access.py", IDENTITY): "which store the user means",
    ("control_plane/private_files.py", IDENTITY): "a name that lasts until the file is whole",
    ("client/kubeconfig.py", IDENTITY): "certificates become files for a moment, for ssl to read",
    ("client/outside.py", IDENTITY): "certificates become files for a moment, for ssl to read",
    ("apiserver/nonresource.py", IDENTITY): "/version says where the server runs; no history has it",
    ("control_plane/store_admin.py", WAIT): "asks real members over sockets",
    ("control_plane/store_layout.py", RANDOM): "ids of a new cluster on a real disk must never repeat",
    ("control_plane/certificates.py", TIME): "real certificates, for real sockets",
    ("control_plane/certificates.py", IDENTITY): "real certificates, for real sockets",
    ("control_plane/secrets.py", TIME): "real certificates, for real sockets",
    ("control_plane/secrets.py", RANDOM): "secrets must not come from a seed",
    ("etcd/users.py", RANDOM): "secrets must not come from a seed",
    ("etcd/users.py", THREAD): "passwords are hashed beside the loop; virtual time has no gRPC",
    ("control_plane/tokens.py", RANDOM): "secrets must not come from a seed",
    ("apiserver/http", TIME): "the Date header of real HTTP; requests in virtual time have none",
    ("apiserver/http", TURNS): "real sockets",
    ("apiserver/http_server.py", THREAD): "long answers over real sockets are compressed beside the loop",
    ("apiserver/audit_log.py", THREAD): "writes the files of a real server in order; virtual time has no audit log",
    ("apiserver/workers.py", ORDER): "all real worker processes are stopped",
    ("apiserver/workers.py", THREAD): "real worker processes",
    ("ports/memory.py", THREAD): "a lock: servers of several loops share asyncio's TLS buffer size",
    ("ports/port.py", THREAD): "memory of real TLS connections goes back to the system",
    ("control_plane/split.py", TURNS): "real processes",
    ("client/leader_election.py", IDENTITY): "the identity of a process; in virtual time candidates are given theirs",
    ("store/data_dir.py", IDENTITY): "the lock of a real folder says who holds it",
    ("scheduler/extenders/asking.py", THREAD): "large answers of real servers; virtual time has none",
    ("store/fsync.py", THREAD): "syncs of a real disk; virtual time has SimSyncs",
    ("store/peers.py", ORDER): "removed members are looked up; senders that leave are all awaited",
    ("store/server.py", ORDER): "all of it is cancelled",
    ("sim/swarm.py", THREAD): "many seeds on all cores, each a process",
    ("sim/interrupts.py", THREAD): "a signal of a real process that has waited for a second",
    ("sim/", TIME): "says to people how long it took",
    # Identity that is compared, never ordered.
    ("api/json_patch.py", IDENTITY): "which parts of a document were touched, while it is held",
    ("api/merge_patch.py", IDENTITY): "which parts of a document were touched, while it is held",
    ("api/patch.py", IDENTITY): "which parts of a document were touched, while it is held",
    ("scheduler/owners.py", IDENTITY): "a cache, by labels that the cache holds",
    ("scheduler/topology.py", IDENTITY): "classes of pods, by labels that the class holds",
    ("fields/evaluate.py", IDENTITY): "a cache, by an object that the cache holds",
    ("scheduler/framework.py", IDENTITY): "__hash__ of a value, for equality",
    ("scheduler/objects.py", IDENTITY): "whether annotations changed: compared for equality alone",
    ("sim/", IDENTITY): "what is held is looked up; nothing is ordered by it",
    # Orders in which nothing differs.
    ("mvcc/auth.py", ORDER): "all keys are checked, whichever is first; refusals are alike",
    ("scheduler/devices/pools.py", ORDER): "what is forgotten is looked up again when it is asked for",
    ("scheduler/plugins/node_affinity.py", ORDER): "masks are joined by OR, and by AND",
    ("scheduler/queue.py", ORDER): "the strongest answer of all hints; each is a function of pod and change",
    ("sim/checkers/objects.py", ORDER): "sums by name, compared as mappings",
    ("sim/checkers/transactions.py", ORDER): "sorted afterwards; leases are numbers",
    ("controllers/ranking.py", COMPARED): "sorted by bisect, which compares the same pairs in each Python",
    ("cel/lists.py", COMPARED): "keys of one type, and no NaN: they are in one order",
    ("scheduler/volumes/finding.py", COMPARED): "quantities are in one order",
    ("scheduler/profile.py", COMPARED): "a heap's key, and heapq compares the same in each Python",
    ("index/structures/kd_tree.py", TIES): "no two ranks are equal, and halves are sorted afterwards",
    # The laboratory measures the machine.
    ("lab/", TIME): "measures wall and processor time, and names result folders by the date",
    ("lab/", RANDOM): "control planes in real time; those in virtual time are seeded",
    ("lab/", WAIT): "shows progress and looks again; in virtual time the loop's timers are virtual",
    ("lab/", IDENTITY): "a temporary folder",
    ("lab/", THREAD): "runs on all cores",
    ("studies/", TIME): "measures wall and processor time",
    ("studies/", IDENTITY): "which data the user named, and a temporary folder",
    ("lab/calls/story.py", ORDER): "sorted afterwards",
    ("lab/study/measured.py", ORDER): "the key is all there is of a level: no two are equal",
}


def all_findings() -> dict[str, list[tuple[str, str]]]:
    """Path to (rule, where and what)."""
    sources = {str(path.relative_to(PRODUCT)): path.read_text() for path in sorted(PRODUCT.rglob("*.py"))}
    known = Known(sources.values())
    return {
        name: [(each.what, f"{name}:{each.line}: {each.what}: {each.text}") for each in findings(source, known)]
        for name, source in sources.items()
    }


def test_nothing_differs_between_two_runs_but_by_clock_and_rng() -> None:
    unused = dict(ALLOWED)
    forbidden = []
    for name, found in all_findings().items():
        for rule, text in found:
            allowing = [entry for entry in ALLOWED if entry[1] == rule and name.startswith(entry[0])]
            if not allowing:
                forbidden.append(text)
            elif len(longest := max(allowing, key=lambda entry: len(entry[0]))):
                unused.pop(longest, None)
    assert not forbidden, "take the Clock or Rng that is handed in, or an order:\n" + "\n".join(forbidden)
    assert not unused, f"nothing needs these exceptions any more: {sorted(unused)}"


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ("import time", TIME),
        ("from time import monotonic", TIME),
        ("x = datetime.now(UTC)", TIME),
        ("x = random.random()", RANDOM),
        ("from random import choice", RANDOM),
        ("x = random.Random()", RANDOM),
        ("x = Rng()", RANDOM),
        ("x = np.random.rand(3)", RANDOM),
        ("import uuid", RANDOM),
        ("x = os.urandom(8)", RANDOM),
        ("heap.append((id(pod), pod))", IDENTITY),
        ("x = hash(name) % shards", IDENTITY),
        ("import threading", THREAD),
        ("await loop.run_in_executor(None, sync)", THREAD),
        ("await asyncio.sleep(delay_s)", WAIT),
        ("await asyncio.wait_for(work, 1)", WAIT),
        ("x = asyncio.get_running_loop().time()", WAIT),
        ("x = self._loop.time()", WAIT),
        ("await asyncio.gather(*tasks, return_exceptions=True)", TURNS),
        ("for each in {a, b}: pass", ORDER),
        ("names = set(x)\nfor each in names: pass", ORDER),
        ("names: set[str] = f()\nx = [each for each in names]", ORDER),
        ("names: set[str] = f()\nx = list(names)", ORDER),
        ("names: set[str] = f()\nx = names.pop()", ORDER),
        ("names: set[str] = f()\nx = ','.join(names)", ORDER),
        ("names: set[str] = f()\nx = [*names]", ORDER),
        ("x = [each for each in a.keys() - b.keys()]", ORDER),
        ("class A:\n def __init__(self): self.x = set()\n def f(self): return list(self.x)", ORDER),
        # A name counts under what it was imported as, and where it is handed on, too.
        ("import datetime\nx = datetime.datetime.now()", TIME),
        ("import datetime as dt\nx = dt.datetime.utcnow()", TIME),
        ("import datetime\nx = datetime.date.today()", TIME),
        ("from datetime import datetime as moment\nx = moment.now()", TIME),
        ("import datetime\nx = field(default_factory=datetime.datetime.now)", TIME),
        ("import time as t", TIME),
        ("from os import urandom\nx = urandom(8)", RANDOM),
        ("from os import urandom as noise\nx = noise(8)", RANDOM),
        ("import os as system\nx = system.urandom(8)", RANDOM),
        ("x = partial(os.urandom, 8)", RANDOM),
        ("from numpy import random\nx = random.rand(3)", RANDOM),
        ("import numpy as n\nx = n.random.default_rng()", RANDOM),
        ("from numpy.random import default_rng\nx = default_rng()", RANDOM),
        ("import random as chance\nx = chance.choice(names)", RANDOM),
        ("x = sorted(pods, key=lambda each: random.random())", RANDOM),
        ("from random import Random as R\nx = R()", RANDOM),
        ("from minikube_py.env import Rng as R\nx = R()", RANDOM),
        ("from asyncio import sleep\nawait sleep(1)", WAIT),
        ("from asyncio import sleep as rest\nawait rest(delay_s)", WAIT),
        ("import asyncio as a\nawait a.sleep(1)", WAIT),
        ("x = retry(asyncio.sleep)", WAIT),
        ("from asyncio import wait_for\nawait wait_for(work, 1)", WAIT),
        ("from asyncio import gather\nawait gather(*tasks)", TURNS),
        ("from asyncio import to_thread\nawait to_thread(sync)", THREAD),
        ("from concurrent import futures", THREAD),
        ("from concurrent.futures.thread import ThreadPoolExecutor", THREAD),
        ("x = os.environ['HOME']", IDENTITY),
        ("x = os.environ.get('HOME')", IDENTITY),
        ("x = {**os.environ}", IDENTITY),
        ("x = os.getenv('HOME')", IDENTITY),
        ("from os import environ\nx = environ['HOME']", IDENTITY),
        ("from os import getenv as setting\nx = setting('HOME')", IDENTITY),
        ("from os import getpid\nx = getpid()", IDENTITY),
        ("x = sorted(pods, key=id)", IDENTITY),
        ("x = list(map(hash, names))", IDENTITY),
        ("x = datetime.fromtimestamp(now_s)", IDENTITY),
        ("from functools import cmp_to_key\npods.sort(key=cmp_to_key(compare))", COMPARED),
        # Sets, wherever they lie.
        ("def f() -> set[str]: ...\nfor each in f(): pass", ORDER),
        ("async def f() -> frozenset[str]: ...\nasync def g(): return list(await f())", ORDER),
        ("class A:\n def f(self) -> set[str]: ...\n def g(self): return list(self.f())", ORDER),
        ("class A:\n @property\n def f(self) -> set[str]: ...\ndef g(a: A): return list(a.f)", ORDER),
        ("class A:\n x: set[str]\nclass B(A):\n def f(self): return list(self.x)", ORDER),
        ("class A:\n x: set[str]\nclass B:\n a: A\n def f(self): return list(self.a.x)", ORDER),
        ("def f() -> 'set[str]': ...\nx = list(f())", ORDER),
        ("def f() -> set[str] | None: ...\nfor each in f() or (): pass", ORDER),
        ("def f() -> tuple[int, set[str]]: ...\nnumber, names = f()\nx = list(names)", ORDER),
        ("x: dict[str, set[str]] = {}\nfor each in x['a']: pass", ORDER),
        ("x: dict[str, set[str]] = {}\nfor each in x.get('a', ()): pass", ORDER),
        ("x: dict[str, set[str]] = {}\nfor each in x.pop('a'): pass", ORDER),
        ("x: dict[str, set[str]] = {}\nfor names in x.values(): y = list(names)", ORDER),
        ("x: dict[str, set[str]] = {}\nfor key, names in x.items(): y = list(names)", ORDER),
        ("x: dict[str, dict[str, set[str]]] = {}\nfor each in x['a']['b']: pass", ORDER),
        ("x = defaultdict(set)\nfor each in x['a']: pass", ORDER),
        ("class A:\n def __init__(self): self.x: dict[str, set[str]] = {}\n def f(self): return [*self.x['a']]", ORDER),
        ("x: list[set[str]] = []\nfor names in x: y = list(names)", ORDER),
        ("names = {'a', 'b'} if x else set()\ny = list(names)", ORDER),
        ("NAMES: Final = frozenset(('a', 'b'))\ndef f(): return list(NAMES)", ORDER),
        ("names: set[str] = f()\ndef g(): return list(names)", ORDER),
        ("names: set[str] = f()\ny = list(names.copy())", ORDER),
        ("names: set[str] = f()\ny = list(names & other)", ORDER),
        ("done, waiting = await asyncio.wait(tasks)\nfor each in done: pass", ORDER),
        ("for each in asyncio.all_tasks(): pass", ORDER),
        ("kept: weakref.WeakSet[A] = weakref.WeakSet()\nfor each in kept: pass", ORDER),
        # Ways to walk them.
        ("names: set[str] = f()\nx = sorted(names, key=len)", ORDER),
        ("names: set[str] = f()\nx = min(names, key=len)", ORDER),
        ("names: set[str] = f()\nx = max((each for each in names), key=weights.get)", ORDER),
        ("names: set[str] = f()\nx = sorted(names, key=lambda each: each.weight)", ORDER),
        ("sizes: set[Fraction] = f()\nx = sum(sizes)", ORDER),
        ("names: set[str] = f()\nx = sum(weights[each] for each in names)", ORDER),
        ("names: set[str] = f()\nx = f'{names}'", ORDER),
        ("names: set[str] = f()\nx = str(names)", ORDER),
        ("names: set[str] = f()\none, other = names", ORDER),
        ("names: set[str] = f()\nx += names", ORDER),
        ("names: set[str] = f()\nx = Counter(names)", ORDER),
        ("names: set[str] = f()\nx.update(dict.fromkeys(names))", ORDER),
        ("def f(names: set[str]): yield from names", ORDER),
        ("for each in folder.iterdir(): pass", ORDER),
        ("from os import listdir\nfor each in listdir(folder): pass", ORDER),
        ("x = values.argsort()", TIES),
        ("x = np.argsort(values)", TIES),
    ],
)
def test_what_is_hunted_is_found(source: str, rule: str) -> None:
    assert [each.what for each in findings(source)] == [rule]


@pytest.mark.parametrize(
    "source",
    [
        "await asyncio.sleep(0)",
        "await asyncio.gather(*(one(each) for each in items))",
        "x = random.Random(seed)",
        "x = np.random.default_rng(seed)",
        "names: set[str] = f()\nx = sorted(names)",
        "names: set[str] = f()\nx = sorted(each for each in names)",
        "names: set[str] = f()\nx = {each for each in names}",
        "names: set[str] = f()\nx = any(each for each in names)",
        "numbers: set[int] = f()\nfor each in numbers: pass",
        "for each in sorted(folder.iterdir()): pass",
        "x = np.argsort(values, kind='stable')",
        "for each in {a: 1, b: 2}: pass",
        "class A:\n x: set[str]\nclass B:\n x: list[str]\n def f(self): return list(self.x)",
        "class A:\n x: set[str]\nclass B:\n x: list[str]\ndef f(b: B): return list(b.x)",
        "x: Callable[[Rng], Random] = f()",
        "from random import Random\nx = Random(seed)",
        "def f(id: str, hash: bytes): return id, hash.hex()",
        "from minikube_py.sim import random\nx = random.choice(names)",
        "x = datetime.fromtimestamp(now_s, UTC)",
        "names: set[str] = f()\nx = sorted(names, key=str)",
        "names: set[str] = f()\nx = min(names, key=lambda each: (weights[each], each))",
        "names: set[str] = f()\nx = sum(1 for each in names)",
        "names: set[str] = f()\nx = sum(len(each) for each in names)",
        "names: set[str] = f()\nx = math.fsum(weights[each] for each in names)",
        "numbers: set[NodeId] = f()\nx = list(numbers)\nNodeId = NewType('NodeId', int)",
        "numbers: set[tuple[int, int]] = f()\nx = list(numbers)",
        "x: list[int] = f()\ny = list(set(x) - {each + 1 for each in x})",
        "x = list({1, 2, 3})",
        "x: dict[str, set[str]] = {}\nfor names in x.values(): y = sorted(names)",
        "x: dict[str, set[str]] = {}\nfor key in x: pass",
        "names: set[str] = f()\nother: set[str] = f()\nother.update(each for each in names)",
    ],
)
def test_what_is_in_order_is_let_be(source: str) -> None:
    assert findings(source) == []
