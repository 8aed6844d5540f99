"""Implements `minikube-py plugin check`: laws on drawn clusters, processes with other hash seeds, and cost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from inspect import getmodule
from typing import Any, Final

from minikube_py.lab.conformance.judging import Drawing, Failure, Laws, Part, Say, all_parts, judged
from minikube_py.lab.conformance.program import Broken
from minikube_py.lab.plugins import bench, laws
from minikube_py.lab.plugins.drawn import Words, drawn_case, least, listing, words_of
from minikube_py.lab.plugins.world import Subject, World
from minikube_py.own_code import module_of, told
from minikube_py.scheduler.configuration.checking import NoCluster
from minikube_py.scheduler.configuration.files import own_plugins
from minikube_py.scheduler.own import Scope
from minikube_py.scheduler.profile import takes_part

EXAMPLES: Final = 100
HASH_SEEDS: Final = ("1", "2")
DIGESTED: Final = 40
ERRORS_MAX: Final = 10
PROCESS_LIMIT_S: Final = 600
UNJUDGED: Final = (
    *("less", "sort_key", "gate_key", "bounds", "add_pod", "remove_pod", "post_filter", "post_filter_through"),
    *("pre_bind", "bind", "post_bind"),
)

PARTS: Final[Laws] = {
    "raises": ("{} generated clusters: it answers even if a node or pod lacks fields", laws.raises_nothing),
    "forms": ("{} generated clusters: one node at a time and all at once", laws.forms_agree),
    "range": ("{} generated clusters: scores of nodes that fit are 0 to 100", laws.scores_are_in_range),
    "scope": (
        "{} generated clusters: a node's result does not depend on anything beyond the scope",
        laws.what_is_local_is_local,
    ),
    "signature": (
        "{} generated clusters: pods with equal signatures get equal results",
        laws.equal_signatures_fare_alike,
    ),
    "kept": ("{} runs of cached decisions against the same recomputed", laws.what_is_kept_is_right),
    "pure": (
        "{} generated clusters: nothing is changed, and a second call gives the same answer",
        laws.nothing_is_changed,
    ),
    "errors": ("{} generated clusters: an exception of each method becomes that pod's Error", laws.errors_are_the_pods),
}


@dataclass(slots=True)
class Verdict:
    """`costs` is empty unless all laws hold: the speed of wrong results is meaningless."""

    plugin: str
    scope: Scope
    parts: list[Part] = field(default_factory=list)
    costs: list[bench.Cost] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unjudged: list[str] = field(default_factory=list)
    """Its methods that no law calls: they wait, write, order the queue or need a pod that fits nowhere."""

    @property
    def holds(self) -> bool:
        return all(part.failure is None for part in self.parts)


def subject_of(target: str, args: Mapping[str, Any]) -> tuple[Subject, Words]:
    """Raises: ConfigError."""
    (own,) = own_plugins([target]).values()
    place = target.rpartition(":")[0]
    # Constructed once, so that construction errors are reported first.
    guarded: Any = own.make(args, NoCluster())
    made, subject = guarded.plugin, Subject(own, args, sorts=takes_part(guarded, "queueSort"))
    World(subject, ())
    return subject, words_of(module_of(place) if place else getmodule(type(made)), args)


def check(
    target: str,
    args: Mapping[str, Any],
    examples: int = EXAMPLES,
    seed: int = 0,
    with_bench: bool = True,
    say: Say = lambda _: None,
) -> Verdict:
    """Raises: ConfigError."""
    subject, words = subject_of(target, args)
    verdict = Verdict(subject.own.name, World(subject, ()).plugin.scope)
    own = World(subject, ()).plugin.plugin
    verdict.unjudged = [method for method in UNJUDGED if callable(getattr(own, method, None))]
    verdict.parts = all_parts(PARTS, examples, lambda name: judge(name, subject, words, examples, seed), say)
    if len(verdict.parts) < len(PARTS):
        return verdict
    say("two processes with different hash seeds")
    verdict.parts.append(in_other_processes(__name__, target, args, seed))
    if verdict.holds and with_bench:
        say("cost beside the built-in plugins")
        verdict.costs = bench.beside_the_others(subject, words, seed)
        verdict.notes = bench.notes(verdict.costs, subject, words, seed)
    return verdict


def judge(name: str, subject: Subject, words: Words, examples: int, seed: int) -> Part:
    """One of PARTS."""
    what, law = PARTS[name]
    examples = min(examples, ERRORS_MAX) if law is laws.errors_are_the_pods else examples

    def raised(error: BaseException) -> Broken:
        return Broken("the scheduler can run it", told(error))

    part = Part(name, what.format(examples))
    return judged(part, partial(law, subject), clusters(words), examples, seed, raised)


def clusters(words: Words) -> Drawing:
    return Drawing(partial(drawn_case, words=words), least, listing)


def in_other_processes(module: str, target: str, args: Mapping[str, Any], seed: int) -> Part:
    """`module`: has `digest_of(target, args, seed)`, a digest of the answers."""
    part = Part(
        "processes", f"{DIGESTED} generated clusters in two processes with different hash seeds: the same answers"
    )
    words = [sys.executable, "-m", check.__module__, module, target, json.dumps(dict(args)), str(seed)]
    answers = []
    for hash_seed in HASH_SEEDS:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        ran = subprocess.run(
            words, env=environment, capture_output=True, text=True, timeout=PROCESS_LIMIT_S, check=False
        )
        answers.append(ran.stdout.strip() if ran.returncode == 0 else (ran.stderr.strip().splitlines() or ["?"])[-1])
        if ran.returncode:
            part.failure = Failure("it answers in any process", answers[-1])
            return part
    if answers[0] != answers[1]:
        text = f"{answers[0]} and {answers[1]}; look for the order of a set, for hash(), id(), time or random"
        part.failure = Failure("equal clusters have equal answers in any process", text)
    return part


def as_json(verdict: Verdict) -> dict[str, Any]:
    return {
        "plugin": verdict.plugin,
        "scope": verdict.scope.value,
        "holds": verdict.holds,
        "parts": [part.as_json() for part in verdict.parts],
        "costs": [cost._asdict() for cost in verdict.costs],
        "notes": verdict.notes,
        "unjudged": verdict.unjudged,
    }


def digest_of(target: str, args: Mapping[str, Any], seed: int) -> str:
    return laws.digest(*subject_of(target, args), seed, DIGESTED)


def main(module: str, target: str, args: str, seed: str) -> None:
    """Runs in a separate process."""
    with redirect_stdout(sys.stderr):  # What the code prints is no part of it.
        found = import_module(module).digest_of(target, json.loads(args), int(seed))
    print(found)


if __name__ == "__main__":
    main(*sys.argv[1:])
