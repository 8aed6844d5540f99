"""Faults between an API server and its clients, and of nodes: rows of the registry (`sim.fault_schedule`).

They act on a whole control plane (`ApiPlayer`), in real and in virtual time. `subject` is a plural, as "pods", or ""
for all; of nodes, a name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, Protocol, cast

from minikube_py.api.errors import StatusError, expired
from minikube_py.env import Rng
from minikube_py.sim.faults import Fault, Injection, Plan, S, lasting

READS: Final = ("get", "list")
UPDATES: Final = ("update", "patch")
WRITES: Final = ("create", *UPDATES, "delete", "deletecollection")


def too_old(since: str, last: int) -> StatusError | None:
    """Of a watch that is asked for from `since` on, where history has expired up to `last`."""
    if since.isascii() and since.isdigit() and 0 < int(since) <= last:
        return expired(f"too old resource version: {since} ({last + 1})")
    return None


def unnoticed() -> None:
    """Nobody counts the effects."""


class Rule(NamedTuple):
    """Applies to the next `times` requests of these verbs: they are answered by `status` at once, or if `done` after
    execution, `delay_s` later. `retry_after_s`: clients are asked to wait so long. `met` is called for each."""

    verbs: tuple[str, ...]
    subject: str
    times: float = 1
    status: int = 0
    done: bool = False
    delay_s: float = 0.0
    retry_after_s: int = 0
    met: Callable[[], object] = unnoticed


class ApiPlayer(Protocol):
    """The target of a row."""

    def rule(self, rule: Rule, duration_us: int) -> None: ...
    def expire(self, subject: str) -> None: ...
    def cut(self, subject: str) -> None: ...
    def stall(self, subject: str, duration_us: int, expire: bool) -> None: ...
    def repeat(self, subject: str) -> None: ...
    def stale(self, subject: str, revisions: int, duration_us: int) -> None: ...
    def node(self, name: str, up: bool, duration_us: int) -> None: ...
    def crash(self, writes: int) -> None: ...


def _row(
    kind: str, about: str, low: float, high: float, act: Any, duration_s: tuple[float, float] | None = None
) -> Injection:
    """`amount` is an integer from `low` to `high`."""

    def draw(rng: Rng, plan: Plan, at_us: int) -> Iterator[Fault]:
        long_us = 0 if duration_s is None else lasting(rng, plan, int(duration_s[0] * S), int(duration_s[1] * S))
        yield Fault(at_us, kind, (), (), long_us, float(rng.randint(int(low), int(high))))

    def begin(player: Any, fault: Fault) -> bool:
        act(cast(ApiPlayer, player), fault)
        return True

    return Injection(kind, about, draw, begin)


def _times(fault: Fault) -> float:
    return fault.amount or 1


INJECTIONS: Final = (
    _row("conflict", "the next `amount` updates of `subject` are refused with 409", 1, 3,
         lambda player, fault: player.rule(
             Rule(UPDATES, fault.subject, _times(fault), 409), fault.duration_us)),
    _row("fail", "the next `amount` requests for `subject` but watches are answered by 500, and not carried out", 1, 3,
         lambda player, fault: player.rule(
             Rule((*READS, *WRITES), fault.subject, _times(fault), 500), fault.duration_us)),
    _row("throttle", "the next `amount` requests for `subject` but watches are answered by 429, Retry-After: 1", 1, 5,
         lambda player, fault: player.rule(
             Rule((*READS, *WRITES), fault.subject, _times(fault), 429, retry_after_s=1),
             fault.duration_us)),
    _row("lost_answer", "the next `amount` writes of `subject` are carried out, and answered by 504", 1, 2,
         lambda player, fault: player.rule(
             Rule(WRITES, fault.subject, _times(fault), 504, done=True), fault.duration_us)),
    _row("no_leader", "the store has no leader meanwhile: every request but a watch is answered by 503", 1, 1,
         lambda player, fault: player.rule(
             Rule((*READS, *WRITES), "", float("inf"), 503), fault.duration_us), (0.5, 5)),
    _row("slow", "each request for `subject` but a watch takes `amount` ms longer", 10, 2000,
         lambda player, fault: player.rule(
             Rule((*READS, *WRITES), fault.subject, float("inf"), delay_s=fault.amount / 1000),
             fault.duration_us), (0.5, 5)),
    _row("expire", "watches of `subject` end with 410, and cannot be resumed", 1, 1,
         lambda player, fault: player.expire(fault.subject)),
    _row("cut_watch", "watches of `subject` end; they can be resumed", 1, 1,
         lambda player, fault: player.cut(fault.subject)),
    _row("slow_events", "watches of `subject` deliver nothing meanwhile", 1, 1,
         lambda player, fault: player.stall(fault.subject, fault.duration_us, False), (0.1, 10)),
    _row("unseen", "watches of `subject` deliver nothing meanwhile, and end with 410: what happens is never seen", 1, 1,
         lambda player, fault: player.stall(fault.subject, fault.duration_us, True), (0.1, 10)),
    _row("repeat", "watches of `subject` deliver their last events once more", 1, 1,
         lambda player, fault: player.repeat(fault.subject)),
    _row("stale", "watches of `subject` end, the next list is `amount` revisions old, watches wait meanwhile", 1, 60,
         lambda player, fault: player.stale(fault.subject, int(_times(fault)), fault.duration_us), (0.1, 5)),
    _row("node_down", "the node `subject` is silent meanwhile; forever where that is 0", 1, 1,
         lambda player, fault: player.node(fault.subject, False, fault.duration_us), (1, 400)),
    _row("node_up", "the node `subject` is there again", 1, 1,
         lambda player, fault: player.node(fault.subject, True, 0)),
    _row("crash_client", "the program under test ends before its `nth` write from then on, and is started again", 0, 12,
         lambda player, fault: player.crash(int(fault.amount))),
)  # fmt: skip
KINDS: Final = tuple(row.kind for row in INJECTIONS)
