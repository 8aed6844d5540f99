"""Implements `minikube-py plugin check`: laws on drawn clusters, processes with other hash seeds, and cost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from inspect import getmodule
from typing import Any, Final

from hypothesis.strategies import randoms

from minikube_py.lab.conformance.check import Failure, Part
from minikube_py.lab.conformance.laws import FLAKY, failing
from minikube_py.lab.conformance.program import Broken
from minikube_py.lab.plugins import bench, laws
from minikube_py.lab.plugins.drawn import Case, Words, drawn_case, least, listing, words_of
from minikube_py.lab.plugins.world import Subject, World
from minikube_py.own_code import RAISED, module_of, told
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

Say = Callable[[str], None]

PARTS: Final[Mapping[str, tuple[str, laws.Law]]] = {
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
    for name, (what, _) in PARTS.items():
        say(what.format(examples))
        verdict.parts.append(judge(name, subject, words, examples, seed))
        if name == "raises" and not verdict.holds:
            # All the others would find the same.
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
    part = Part(name, what.format(examples))
    drawn = randoms(use_true_random=False).map(lambda rng: drawn_case(rng, words))
    found = failing(drawn, lambda case: _run(law, subject, case), examples, seed, least=False)
    if found is not None:
        case, broken = found
        if broken.law != FLAKY:
            case, broken = _least(case, broken, lambda each: _run(law, subject, each))
        part.failure = Failure(broken.law, broken.wanted, f"{listing(case)}\n# {broken.law}:\n#   {broken.wanted}")
    return part


def _run(law: laws.Law, subject: Subject, case: Case) -> None:
    """Raises: Broken, also if the scheduler cannot run the plugin at all."""
    try:
        law(subject, case)
    except Broken:
        raise
    except RAISED as error:
        raise Broken("the scheduler can run it", told(error)) from error


def _least(case: Case, broken: Broken, judged: Callable[[Case], None]) -> tuple[Case, Broken]:
    found = [broken]

    def breaks(each: Case) -> bool:
        try:
            judged(each)
        except Broken as again:
            if again.law == broken.law:
                found.append(again)
                return True
        return False

    return least(case, breaks), found[-1]


def in_other_processes(module: str, target: str, args: Mapping[str, Any], seed: int) -> Part:
    """`module`: prints a digest of the answers, given the target, its args as JSON and the seed."""
    part = Part(
        "processes", f"{DIGESTED} generated clusters in two processes with different hash seeds: the same answers"
    )
    words = [sys.executable, "-m", module, target, json.dumps(dict(args)), str(seed)]
    answers = []
    for hash_seed in HASH_SEEDS:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        ran = subprocess.run(
            words, env=environment, capture_output=True, text=True, timeout=PROCESS_LIMIT_S, check=False
        )
        answers.append(ran.stdout.strip() if ran.returncode == 0 else (ran.stderr.strip().splitlines() or ["?"])[-1])
        if ran.returncode:
            part.failure = Failure("it answers in any process", answers[-1])
    if part.failure is None and answers[0] != answers[1]:
        text = "look for the order of a set, for hash(), id(), time or random"
        part.failure = Failure(
            "equal clusters have equal answers in any process", f"{answers[0]} and {answers[1]}; {text}"
        )
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


def main(target: str, args: str, seed: str) -> None:
    """Runs in a separate process: the digest of the plugin's results."""
    with redirect_stdout(sys.stderr):  # What the plugin prints is no part of it.
        subject, words = subject_of(target, json.loads(args))
        found = laws.digest(subject, words, int(seed), DIGESTED)
    print(found)


if __name__ == "__main__":
    main(*sys.argv[1:])
