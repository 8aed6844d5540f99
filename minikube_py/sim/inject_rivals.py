"""Leaders that return after being superseded, with their last writes still in flight to their disks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from minikube_py.env import Rng
from minikube_py.sim.faults import MS, Fault, Injection, Plan, S, everyone, lasting
from minikube_py.sim.inject_machines import slow_down
from minikube_py.sim.loop import shuffle

if TYPE_CHECKING:
    from minikube_py.sim.fault_player import FaultPlayer


def _draw_supersede(rng: Rng, plan: Plan, at_us: int) -> Iterator[Fault]:
    if plan.members > 2:
        slow = rng.choice((0.5, 1.0, 1.5, 2.5, 4.0))
        yield Fault(at_us, "supersede", everyone(plan), (), lasting(rng, plan, 3 * S, 8 * S), slow)


def _supersede(player: FaultPlayer, fault: Fault) -> bool:
    """Entries that another leader replaces are still in flight to the disk: promises about them are void, and their
    replacements are not durable with them."""
    cluster, rng, old = player.cluster, player.rng_of(fault), player.cluster.leader()
    others = [each.number for each in cluster.places if each.opened and each is not old and not each.gone]
    if old is None or len(others) < 2:
        return False
    shuffle(others, rng)
    few = (len(others) - 1) // 2
    island, rest = (old.number, *others[:few]), tuple(others[few:])
    slow_s = fault.amount * cluster.election_s
    slow_down(player, fault._replace(places=island, amount=slow_s * S))
    join = _part(player, fault, island, rest)

    def strike(then: tuple[int, Callable[[], None]]) -> None:
        """Cuts the power of the members that hold the latest committed entry; its leader is not notified."""
        if not player.lasts(number):
            return
        new, gather = then
        gather()
        _part(player, fault, (new,), tuple([place for place in (*island, *rest) if place != new]))
        player.take_down(fault._replace(places=island, duration_us=rng.randint(1, 100) * MS), power=True)

    def elected(place: int) -> None:
        if cluster.elected is not elected or place in island or not player.lasts(number):
            return
        cluster.elected = None
        join()
        gather = _part(player, fault, tuple([each for each in rest if each != place]), (*island, place))
        player.world.scheduler.after(2 * slow_s * rng.random() ** 2, strike, (place, gather))

    cluster.elected = elected
    number = player.begun(fault, lambda: None)
    return True


def _part(player: FaultPlayer, fault: Fault, ones: tuple[int, ...], others: tuple[int, ...]) -> Callable[[], None]:
    """Partitions the members until the fault is over, or the returned function is called."""
    network, here, there = player.world.network, player.hosts(ones), player.hosts(others)
    network.clog(here, there)
    network.clog(there, here)

    def join() -> None:
        network.unclog(here, there)
        network.unclog(there, here)

    return partial(player.end, player.begun(fault, join))


SUPERSEDE: Final = Injection(
    "supersede",
    "syncs of the leader and of as many others as are not a majority take `amount` election timeouts; they are "
    "cut off until another leads, join it as its majority, and lose their power",
    _draw_supersede,
    _supersede,
)
