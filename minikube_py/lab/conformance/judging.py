"""Laws of code of one's own, judged on drawn cases: the first case that breaks one, as small as it can be made."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from minikube_py import own_code
from minikube_py.lab.conformance.program import Broken

C = TypeVar("C")
Say = Callable[[str], None]
FLAKY: Final = "equal programs have equal answers"
Laws = Mapping[str, tuple[str, Callable[..., None]]]
"""By name: what is judged, with {} for the number of cases; and the law, which raises Broken."""


class Failure(NamedTuple):
    """`shown`: the minimal program or history that demonstrates it, or ""."""

    law: str
    wanted: str
    shown: str = ""


@dataclass(slots=True)
class Part:
    """One part of a check; `failure` None: passed."""

    name: str
    what: str
    failure: Failure | None = None

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "what": self.what, "failure": self.failure._asdict() if self.failure else None}


class Drawing(NamedTuple):
    """How cases are drawn, made smaller while they still break the same law, and printed."""

    draw: Callable[[random.Random], Any]
    least: Callable[[Any, Callable[[Any], bool]], Any]
    listing: Callable[[Any], str]


def all_parts(laws: Laws, examples: int, judge: Callable[[str], Part], say: Say) -> list[Part]:
    """Of each law; of the first alone if that is broken: all the others would find the same."""
    parts: list[Part] = []
    for name, (what, _) in laws.items():
        say(what.format(examples))
        parts.append(judge(name))
        if parts[0].failure is not None:
            break
    return parts


def judged(
    part: Part,
    law: Callable[[C], None],
    drawing: Drawing,
    examples: int,
    seed: int,
    raised: Callable[[BaseException], Broken] = lambda error: Broken("it answers", own_code.told(error)),
) -> Part:
    """`part`, with its failure if a drawn case breaks the law. `raised`: what an exception breaks."""

    def broken(case: C) -> Broken | None:
        try:
            law(case)
        except Broken as found:
            return found
        except own_code.raised() as error:
            return raised(error)
        return None

    for number in range(examples):
        case: C = drawing.draw(random.Random(f"{seed}/{number}"))
        if (found := broken(case)) is None:
            continue
        if (again := broken(case)) is None:
            found = Broken(FLAKY, f"this failed once and not again ({found.law}: {found.wanted})")
        else:
            case = drawing.least(case, lambda each: (of := broken(each)) is not None and of.law == again.law)
            found = broken(case) or again
        shown = f"{drawing.listing(case)}\n# {found.law}:\n#   {found.wanted}"
        part.failure = Failure(found.law, found.wanted, shown)
        break
    return part
