"""Implements `minikube-py model check`: laws of a cost model, on drawn clusters."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from minikube_py.lab.conformance.judging import Laws, Part, Say, all_parts, judged
from minikube_py.lab.conformance.program import Broken
from minikube_py.lab.plugins.check import DIGESTED, clusters, in_other_processes
from minikube_py.lab.plugins.drawn import MANY_BOUND, MANY_NODES, Case, Words, drawn_case, words_of
from minikube_py.lab.plugins.laws import state_of
from minikube_py.lab.plugins.world import cache_of
from minikube_py.own_code import module_of, told
from minikube_py.scheduler.columns import NodeColumns
from minikube_py.scheduler.flow.checking import Asking
from minikube_py.scheduler.flow.exchange import displacing
from minikube_py.scheduler.flow.graph import Graph, TaskClass
from minikube_py.scheduler.flow.model import FORMS, CostModel, MachineClass, Machines, MinimumUnmet, ModelError, Task
from minikube_py.scheduler.flow.models import MODELS, model_named
from minikube_py.scheduler.flow.problem import COST_MAX, Problem, faults
from minikube_py.scheduler.flow.solvers import NUMPY, available
from minikube_py.scheduler.framework import IntArray
from minikube_py.scheduler.objects import PodInfo, project_pod
from minikube_py.scheduler.reads import ReadPod, Reads

COUNTS: Final = (1, 3, 40)
WAITED_S: Final = (0.0, 0.4, 30.0, 4000.0)


POINTS: Final = tuple(name for name, each in vars(CostModel).items() if callable(each) and not name.startswith("_"))
"""The methods of the interface."""


class Subject(NamedTuple):
    """`asked`: gathers the points that laws have called."""

    target: str
    args: Mapping[str, Any]
    asked: dict[str, None]

    def make(self, seed: int = 1) -> CostModel:
        """Raises: ConfigError."""
        return model_named(self.target, self.args, random.Random(seed))


def columns_of(case: Case) -> NodeColumns:
    return cache_of(case.nodes, case.bound).columns


class _Watched:
    """A model as the scheduler calls it, which notes the points that are called."""

    def __init__(self, model: CostModel, asked: dict[str, None]) -> None:
        self._model = model
        self._asked = asked

    def __getattr__(self, name: str) -> Any:
        self._asked[name] = None
        return getattr(self._model, name)


class _Reading:
    """A model that is given tasks which note what it reads of their pods."""

    def __init__(self, model: CostModel, reads: Reads) -> None:
        self._model = model
        self._reads = reads

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._model, name)
        return (lambda *given: found(*map(self._seen, given))) if callable(found) else found

    def _seen(self, given: Any) -> Any:
        if not isinstance(given, Task):
            return given
        return Task(ReadPod(given.pod, self._reads), given.count, given.waited_s, given.job, given.node, given.ran_s)


class World:
    """A drawn cluster, and a model initialised with it."""

    def __init__(self, subject: Subject, case: Case) -> None:
        self.columns = columns_of(case)
        slots = np.flatnonzero(self.columns.present[: self.columns.size])
        self.machines = Machines(self.columns.some(slots), slots)
        pods = [project_pod(pod) for pod in case.pods]
        self.tasks = [
            Task(pod, COUNTS[i % len(COUNTS)], WAITED_S[i % len(WAITED_S)], f"{pod.namespace}/job{i}")
            for i, pod in enumerate(pods)
        ]
        self._asked, self.kind = subject.asked, type(model := subject.make())
        self.model: CostModel = _Watched(model, subject.asked)  # type: ignore[assignment]
        self.running = [
            Task(project_pod(pod), 1, 0.0, "default/running", pod["spec"]["nodeName"], WAITED_S[i % len(WAITED_S)])
            for i, pod in enumerate(case.bound)
        ]
        self.asking = Asking(self.model.name, "all", self.tasks[0])
        self._add_machines()

    def _add_machines(self) -> None:
        for machine in self.machines:
            self.asking.tell(self.model, machine)

    def rounds(self) -> None:
        """As the scheduler's: the tasks join a round and leave it, running pods are priced, and all machines go and
        come back before the next round. Raises: ModelError, the first one."""
        for _ in range(2):
            for task in self.tasks:
                with Asking(self.model.name, "all", task).guarded("task_key"):
                    dict.fromkeys([self.model.task_key(task)])
            self.graph()
            for task in self.running:
                displacing(self.model, task, COST_MAX)
            for task in self.tasks:
                Asking(self.model.name, task.job, task).ask("remove_task", self.model.remove_task, task)
            for machine in self.machines:
                self.asking.ask(f"machine {machine.name}", self.model.remove_machine, machine.name)
            self._add_machines()

    def graph(self) -> tuple[Graph, Problem]:
        """Raises: ModelError, the first one."""
        graph = Graph(self.model, self.columns)
        classes = [TaskClass(task, self.machines.slots, self.machines.fit(task)) for task in self.tasks]
        problem = graph.build(classes)
        for error in graph.failed.values():
            if not isinstance(error, MinimumUnmet):
                raise error
            self._asked[PENDING] = None
        return graph, graph.solved(classes, problem, NUMPY)[0] if problem.lower is not None else problem


def answers(subject: Subject, case: Case) -> None:
    try:
        World(subject, case).rounds()
    except ModelError as error:
        raise Broken("every arc has an integer cost and capacity", str(error)) from error


def forms_agree(subject: Subject, case: Case) -> None:
    world = World(subject, case)
    # The model must know its tasks and classes first.
    world.graph()
    model, machines, kind = world.model, world.machines, world.kind
    ecs = [ec for task in world.tasks for ec in model.get_task_equiv_classes(task)]
    for one, many in FORMS.items():
        given: list[tuple[Any, ...]] = [(ec,) for ec in ecs] if one.startswith("equiv_class") else [()]
        for first in given if _has(kind, one) and _has(kind, many) else ():
            alone = [getattr(model, one)(*first, machine)[:2] for machine in machines]
            _compare(kind, one, many, machines, getattr(model, many)(*first, machines), alone)
    one, many = "equiv_class_to_equiv_class", "equiv_class_to_machine_classes"
    for ec in ecs if _has(kind, one) and _has(kind, many) else ():
        for number in range(min(3, model.machine_classes)):
            alone = [model.equiv_class_to_equiv_class(ec, MachineClass(m, number))[:2] for m in machines]
            found = model.equiv_class_to_machine_classes(ec, machines, number)
            _compare(kind, one, many, machines, found, alone)


def _has(kind: type, method: str) -> bool:
    """Whether it or a base defines it, other than the interface."""
    return getattr(kind, method) is not getattr(CostModel, method)


def _owner(kind: type, method: str) -> str:
    return next(each.__name__ for each in kind.__mro__ if method in vars(each))


def _compare(
    kind: type, one: str, many: str, machines: Machines, found: Any, alone: Sequence[tuple[int, int]]
) -> None:
    cost, capacity = (np.broadcast_to(part, len(machines)).tolist() for part in found)
    for i, (together, single) in enumerate(zip(zip(cost, capacity, strict=True), alone, strict=True)):
        # Without capacity a price is meaningless.
        if together != tuple(single) and (together[1] or single[1]):
            text = f"{many} says {together} of {machines[i].name}, {one} {tuple(single)}"
            owners = [_owner(kind, method) for method in (many, one)]
            if owners[0] != owners[1]:
                text += f"; the first is of {owners[0]}, the second of {owners[1]}"
            raise Broken("both forms give the same cost and capacity", text)


def waiting_never_helps(subject: Subject, case: Case) -> None:
    world = World(subject, case)
    world.graph()
    if issubclass(world.kind, MODELS["RANDOM"]):
        return
    for task in world.tasks:
        later = Task(task.pod, task.count, task.waited_s + 60, task.job)
        before, after = (world.model.task_to_unscheduled_agg(each).cost for each in (task, later))
        if after < before:
            text = f"pod {task.name}: {before} after {task.waited_s:g} s, {after} after {later.waited_s:g} s"
            raise Broken("leaving a pod unscheduled costs no less when it has waited longer", text)


def one_seed_one_answer(subject: Subject, case: Case) -> None:
    first, second = (World(subject, case).graph()[1] for _ in range(2))
    for name, one, other in _differing(first, second):
        raise Broken("equal clusters and seeds have equal graphs", f"{name}: {one.tolist()} and {other.tolist()}")


def solvers_agree(subject: Subject, case: Case) -> None:
    world = World(subject, case)
    graph, problem = world.graph()
    prices = {}
    for name, solver in available().items():
        flow = solver.solve(problem)
        wrong = faults(problem, flow)
        if wrong:
            raise Broken("a flow is the cheapest", f"{name}: {wrong[0]}")
        prices[name] = problem.price(flow)
        for number, task in enumerate(world.tasks):
            if len(list(graph.placements(number, flow, problem))) > task.count:
                raise Broken("no more pods are placed than there are", f"{name}: {task.name}")
    if len(set(prices.values())) > 1:
        raise Broken("all solvers find the same cost", str(prices))


def nothing_is_changed(subject: Subject, case: Case) -> None:
    """Nodes and pods are the scheduler's own, for all profiles."""
    before = state_of(columns_of(case), [project_pod(pod) for pod in case.pods])
    world = World(subject, case)
    world.graph()
    after = state_of(world.columns, [task.pod for task in world.tasks])
    for what, was in before.items():
        if after[what] != was:
            raise Broken("it changes no node and no pod", f"{what}: {was} before, {after[what]} after")


def digest_of(target: str, args: Mapping[str, Any], seed: int) -> str:
    """Of the graphs of drawn clusters: equal in every process."""
    subject, found, rng = Subject(target, args, {}), hashlib.sha256(), random.Random(seed)
    words = _words(subject)
    for _ in range(DIGESTED):
        try:
            problem = World(subject, drawn_case(rng, words)).graph()[1]
            found.update(b"".join(b"-" if part is None else part.tobytes() for part in problem))
        except ModelError as error:
            found.update(str(error).encode())
    return found.hexdigest()


def one_class_one_price(subject: Subject, case: Case) -> None:
    """The scheduler asks about one pod of those that are equal in `task_key`: what the model reads of a pod is changed,
    and another price needs another key."""
    world, reads = World(subject, case), Reads()
    world.model = _Reading(world.model, reads)  # type: ignore[assignment]
    world.graph()
    subject.asked.update((f"{OF_A_POD}{name}", None) for name in reads.told if not _is_varied(name))
    for task in world.tasks if reads.told.keys() - OF_A_CLASS else ():
        key, problem = _priced(subject, case, task)
        for what, pod in _siblings(task.pod, [each.pod for each in (*world.tasks, *world.running)], reads.told):
            other, others = _priced(subject, case, Task(pod, task.count, task.waited_s, task.job))
            if other == key and any(_differing(problem, others)):
                text = f"pod {task.name}: with {what} another price, and the task_key is {key!r}"
                raise Broken("pods with equal task_key have equal prices", text)


OF_A_CLASS: Final = frozenset(("namespace", "controller", "preemption_policy", "priority", "whether it has labels"))
"""In each class's key, or not seen by itself."""
IDENTITY: Final = frozenset(("name", "key", "uid"))
OF_A_POD: Final = "pod."


def _is_varied(read: str) -> bool:
    return read in OF_A_CLASS | IDENTITY | {"labels"} or read.startswith("label ")


def _siblings(pod: PodInfo, others: Sequence[PodInfo], told: Mapping[str, None]) -> Iterator[tuple[str, PodInfo]]:
    """Pods of the same class that differ from it in what was read, each with words for how."""
    names = [each.removeprefix("label ") for each in told if each.startswith("label ")]
    if "labels" in told:
        names += [name for each in (pod, *others) for name in each.labels]
        yield "its labels in another order", _with(pod, labels=dict(reversed([*pod.labels.items()])))
        yield "no labels", _with(pod, labels={})
    for name in dict.fromkeys(names):
        left = {each: value for each, value in pod.labels.items() if each != name}
        values = dict.fromkeys((None, "0", "7", *(each.labels.get(name) for each in others)))
        for value in values:
            labels = left if value is None else {**left, name: value}
            yield f"{value} as label {name}", _with(pod, labels=labels)
    for name in _names(pod, others) if IDENTITY & told.keys() else ():
        yield f"{name} as its name", _with(pod, name=name, key=f"{pod.namespace}/{name}", uid=f"uid-{name}")


def _names(pod: PodInfo, others: Sequence[PodInfo]) -> Mapping[str, None]:
    return dict.fromkeys([*(each.name for each in others), *(f"{pod.name}{digit}" for digit in range(10))])


def _with(pod: PodInfo, **fields: object) -> PodInfo:
    found = copy(pod)
    for name, value in fields.items():
        setattr(found, name, value)
    return found


def _priced(subject: Subject, case: Case, task: Task) -> tuple[object, Problem]:
    world = World(subject, case)
    world.tasks = [task]
    return world.model.task_key(task), world.graph()[1]


def _differing(one: Problem, other: Problem) -> Iterator[tuple[str, IntArray, IntArray]]:
    """The names and both values of the parts in which they differ. No lower bounds are those of 0."""
    for name, a, b in zip(Problem._fields, _bounded(one), _bounded(other), strict=True):
        if a is not None and b is not None and not np.array_equal(a, b):
            yield name, a, b


def _bounded(problem: Problem) -> Problem:
    return problem if problem.lower is not None else problem._replace(lower=np.zeros_like(problem.cost))


LARGEST: Final = f"{MANY_NODES} machines, {MANY_BOUND} running pods or {max(COUNTS)} pods of a class"
PENDING: Final = "classes whose min_flow cannot be met: these stay Pending, as in the scheduler"
NOT_ASKED: Final = f"clusters of more than {LARGEST}"
LAWS: Final[Laws] = {
    "answers": ("{} generated clusters: every arc has an integer cost and capacity", answers),
    "forms": ("{} generated clusters: arcs one by one and all at once", forms_agree),
    "waiting": (
        "{} generated clusters: leaving a pod unscheduled costs no less when it has waited longer",
        waiting_never_helps,
    ),
    "seed": ("{} generated clusters: a second run gives the same", one_seed_one_answer),
    "pure": ("{} generated clusters: no node and no pod is changed", nothing_is_changed),
    "task_key": ("{} generated clusters: pods with equal task_key have equal prices", one_class_one_price),
    "flow": ("{} generated clusters: all solvers find flows of equal cost", solvers_agree),
}


def check(
    target: str, args: Mapping[str, Any], examples: int, seed: int, say: Say = lambda _: None
) -> tuple[str, list[Part], list[str]]:
    """The model's name, the results, and which of its methods no law has called. Raises: ConfigError."""
    subject = Subject(target, args, {})
    model = subject.make()
    name = model.name
    words = _words(subject)
    parts = all_parts(LAWS, examples, lambda law: judge(law, subject, words, examples, seed), say)
    if len(parts) < len(LAWS):
        return name, parts, []
    say("two processes with different hash seeds")
    parts.append(in_other_processes(__name__, target, args, seed))
    return name, parts, [*_unjudged(type(model), subject.asked), NOT_ASKED, *filter(PENDING.__eq__, subject.asked)]


def _unjudged(kind: type, asked: Mapping[str, None]) -> list[str]:
    # The interface's form for many asks the one for a single machine.
    by_many = {**FORMS, "equiv_class_to_equiv_class": "equiv_class_to_machine_classes"}
    own = (point for point in POINTS if _has(kind, point) and point not in asked)
    found = [each for each in own if each not in by_many or _has(kind, by_many[each]) or by_many[each] not in asked]
    return found + [each for each in asked if each.startswith(OF_A_POD)]


def _words(subject: Subject) -> Words:
    place = subject.target.rpartition(":")[0]
    return words_of(module_of(place) if place else None, subject.args)


def judge(name: str, subject: Subject, words: Words, examples: int, seed: int) -> Part:
    """One of LAWS."""
    what, law = LAWS[name]

    def raised(error: BaseException) -> Broken:
        if isinstance(error, ModelError):
            return Broken("every arc has an integer cost and capacity", str(error))
        return Broken(f"{name}: it answers", told(error))

    return judged(Part(name, what.format(examples)), partial(law, subject), clusters(words), examples, seed, raised)
