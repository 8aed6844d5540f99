"""Implements `minikube-py predictor check`: laws of a predictor, on drawn usage histories of a node."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from typing import Any, Final, NamedTuple

import numpy as np

from minikube_py.lab.conformance.judging import Drawing, Laws, Part, Say, all_parts, judged
from minikube_py.lab.conformance.program import Broken
from minikube_py.own_code import told
from minikube_py.scheduler.prediction.predictor import FloatArray, Past, PredictionError, asked, predictor_named
from minikube_py.scheduler.prediction.predictors import Known
from minikube_py.sim.shrinking import Rounds, fewest

WHERE: Final = "a node"
RELATIVE: Final = 1e-6
RESERVED: Final = (0.0, 1.0, 100.0, 4000.0, 3 * 2.0**30, 2.0**55)
BEST_EFFORT: Final = 100.0
"""What shares are of if nothing is reserved."""
BURST: Final = 20.0
"""Times its request: a pod may use what its node has."""
SHRINKING: Final = 300
AHEAD: Final = 4
LONGER: Final = 3
PODS_MAX: Final = 110
"""Of a node, by the kubelet's default."""


class Subject(NamedTuple):
    target: str
    args: Mapping[str, Any]

    def make(self) -> Any:
        """Raises: ConfigError."""
        return predictor_named(self.target, self.args)


class Pod(NamedTuple):
    """`used`: shares of its reservation by sample, latest last, NaN if unknown; shorter if it started later."""

    reserved: float
    used: tuple[float, ...]
    ahead: tuple[float, ...]

    @property
    def amounts(self) -> FloatArray:
        return np.array(self.used, np.float64) * self.share_of

    @property
    def share_of(self) -> float:
        return self.reserved or BEST_EFFORT


Case = tuple[Pod, ...]


def past_of(case: Case, scale: float = 1.0) -> Past:
    samples = max((len(pod.used) for pod in case), default=0)
    usage = np.full((len(case), samples), np.nan)
    for row, pod in zip(usage, case, strict=True):
        if pod.used:
            row[samples - len(pod.used) :] = pod.amounts * scale
    reserved = np.array([pod.reserved * scale for pod in case], np.float64)
    ahead = np.array([np.array(pod.ahead) * pod.share_of * scale for pod in case]).reshape(len(case), AHEAD)
    return Past(reserved, usage, ahead)


def drawn(rng: random.Random, samples: int) -> Case:
    """Up to five pods, or as many as a node has: idle, full, above their requests or without any, steps, spikes, noise;
    some just started, or with samples of which nothing was reported; or none."""
    pods = []
    for _ in range(rng.choice((0, 1, 1, 2, 5, rng.randint(6, PODS_MAX)))):
        count = rng.choice((0, 1, samples - 1, samples, samples, samples + LONGER))
        level = rng.choice((0.0, 0.01, 0.5, 1.0, BURST))
        shape = rng.choice(("flat", "step", "spike", "noise"))
        used = [level] * max(0, count)
        if shape == "step":
            used = [0.0 if i < count // 2 else level for i in range(count)]
        elif shape == "spike" and used:
            used[rng.randrange(len(used))] = 1.0
        elif shape == "noise":
            used = [rng.random() for _ in used]
        for at in rng.sample(range(len(used)), min(len(used), rng.choice((0, 0, 1, 3)))):
            used[at] = math.nan
        ahead = tuple(rng.choice((0.0, level, 1.0)) for _ in range(AHEAD))
        pods.append(Pod(rng.choice(RESERVED), tuple(used), ahead))
    return tuple(pods)


def _peak(predictor: Any, past: Past) -> float:
    return asked(predictor, past, WHERE)


def _alike(law: str, one: float, other: float, text: str, limit: float) -> None:
    if abs(one - other) > RELATIVE * max(1.0, abs(one), limit):
        raise Broken(law, f"{text}: {one:g} and {other:g}")


def answers(subject: Subject, case: Case) -> None:
    _peak(subject.make(), past_of(case))


def same_again(subject: Subject, case: Case) -> None:
    predictor, past = subject.make(), past_of(case)
    first = _peak(predictor, past)
    _peak(predictor, past_of(case[:1], 3.0))
    law = "equal histories, equal answers"
    _alike(law, first, _peak(predictor, past_of(case)), "asked again", 0.0)
    _alike(law, first, _peak(subject.make(), past_of(case)), "a new predictor", 0.0)


def any_order(subject: Subject, case: Case) -> None:
    one, other = (_peak(subject.make(), past_of(each)) for each in (case, case[::-1]))
    _alike("the order of pods changes nothing", one, other, "forwards and backwards", past_of(case).limit)


def any_unit(subject: Subject, case: Case) -> None:
    past = past_of(case)
    one, other = _peak(subject.make(), past), _peak(subject.make(), past_of(case, 1024.0)) / 1024
    _alike("scaling all values by 1,024 scales the peak by 1,024", one, other, "in two units", past.limit)


def blind(subject: Subject, case: Case) -> None:
    if subject.make().looks_ahead:
        return
    one = _peak(subject.make(), past_of(case))
    other = _peak(subject.make(), past_of(tuple(pod._replace(ahead=(7.0,) * AHEAD) for pod in case)))
    _alike("the future is not used", one, other, "before two futures", 0.0)


def unchanged(subject: Subject, case: Case) -> None:
    predictor, past, before = subject.make(), past_of(case), past_of(case)
    _peak(predictor, past)
    for name in ("reserved", "usage", "total", "ahead"):
        if not np.array_equal(getattr(past, name), getattr(before, name), equal_nan=True):
            raise Broken("it changes nothing that it is given", f"past.{name}")


def unknown(subject: Subject, case: Case) -> None:
    """Of predictors that take it as an argument."""
    predictor = subject.make()
    of = getattr(predictor.peak, "__self__", None)
    if isinstance(of, Known):
        past = past_of(tuple(pod._replace(used=()) for pod in case))
        law = "a pod without samples counts `unknown` of what it reserves"
        _alike(law, _peak(predictor, past), of.unknown * past.limit, "the peak, and that share", past.limit)


def nobody(subject: Subject, case: Case) -> None:
    found = _peak(subject.make(), past_of(()))
    if found:
        raise Broken("no pods use nothing", f"{found:g} of a node without pods")


def more_of_them(subject: Subject, case: Case) -> None:
    """With as many as a node may have, so that an answer that holds for a few pods only is found."""
    copies = max(2, PODS_MAX // max(1, len(case)))
    one, many = (_peak(subject.make(), past_of(case * times)) for times in (1, copies))
    if many < one - RELATIVE * max(1.0, one):
        raise Broken("more of the same pods use no less", f"{one:g}, and {many:g} of {copies} times these pods")


def idle_one_more(subject: Subject, case: Case) -> None:
    """Its peak may be unknown to a predictor, but takes nothing from that of the others: their sum is the same."""
    samples = past_of(case).samples
    one = _peak(subject.make(), past_of(case))
    for reserved, (how, used) in product((0.0, 1.0), IDLE.items()):
        pod = Pod(reserved, used(samples), (0.0,) * AHEAD)
        more = _peak(subject.make(), past_of((*case, pod)))
        if more < one - RELATIVE * max(1.0, one):
            text = f"{one:g}, and {more:g} with a pod more that {how} and requests {reserved:g}"
            raise Broken("an idle pod more takes nothing from the peak", text)


IDLE: Final[Mapping[str, Callable[[int], tuple[float, ...]]]] = {
    "never ran": lambda samples: (),
    "used nothing": lambda samples: (0.0,) * samples,
    "used nothing, unknown in one sample": lambda samples: (
        *(0.0,) * (samples // 2),
        *(math.nan,) * min(samples, 1),
        *(0.0,) * (samples - samples // 2 - 1),
    ),
}


def more_used(subject: Subject, case: Case) -> None:
    one = _peak(subject.make(), past_of(case))
    busier = tuple(pod._replace(used=tuple(share * BURST for share in pod.used)) for pod in case)
    more = _peak(subject.make(), past_of(busier))
    if more < one - RELATIVE * max(1.0, one):
        text = f"{one:g}, and {more:g} if each had used {BURST:g} times as much in each sample"
        raise Broken("pods that used more use no less", text)


NOT_ASKED: Final = (
    f"nodes of more than {PODS_MAX} pods",
    f"histories of more than {LONGER} samples above those it keeps",
    f"usage above {BURST * BURST:g} times the request",
    "whether a peak is as high as what is used then",
)
LAWS: Final[Laws] = {
    "answers": ("{} generated histories: a number not below 0", answers),
    "again": ("{} generated histories: the same answer again, from the same predictor and a new one", same_again),
    "order": ("{} generated histories: pods in any order", any_order),
    "unit": ("{} generated histories: in any unit", any_unit),
    "more": ("{} generated histories: more of the same pods use no less", more_of_them),
    "idle": ("{} generated histories: an idle pod more takes nothing from the peak", idle_one_more),
    "busier": ("{} generated histories: pods that used more use no less", more_used),
    "blind": ("{} generated histories: any future", blind),
    "unchanged": ("{} generated histories: nothing that it is given changes", unchanged),
    "unknown": ("{} generated histories without samples: the argument `unknown`, if it has one", unknown),
    "nobody": ("no pods use nothing", nobody),
}


def check(
    target: str, args: Mapping[str, Any], examples: int, seed: int, say: Say = lambda _: None
) -> tuple[str, list[Part], list[str]]:
    """The predictor's name, the results, and what no law looks at. Raises: ConfigError."""
    subject = Subject(target, args)
    name = subject.make().name
    return name, all_parts(LAWS, examples, lambda law: judge(law, subject, examples, seed), say), [*NOT_ASKED]


def judge(name: str, subject: Subject, examples: int, seed: int) -> Part:
    """One of LAWS."""
    what, law = LAWS[name]
    samples = int(subject.make().samples)

    def raised(error: BaseException) -> Broken:
        of_values = isinstance(error, PredictionError)
        return Broken("a number not below 0", str(error)) if of_values else Broken("it answers", told(error))

    drawing = Drawing(lambda rng: drawn(rng, samples), _least, listing)
    return judged(Part(name, what.format(examples)), partial(law, subject), drawing, examples, seed, raised)


def _least(case: Case, breaks: Callable[[Case], bool]) -> Case:
    return fewest(case, Rounds(SHRINKING).limited(lambda fewer: breaks(fewer) or None))


def listing(case: Case) -> str:
    lines = [f"pod  reserved={pod.reserved:g} used={_short(pod.amounts)}" for pod in case]
    return "\n".join(lines or ["no pods"])


def _short(values: FloatArray) -> str:
    told = [f"{value:g}" for value in values[-4:]]
    return f"[{'... ' if len(values) > 4 else ''}{' '.join(told)}] ({len(values)} samples)"
