"""All checkers over one run, simulated or real: what is said of it in the end."""

from __future__ import annotations

from collections.abc import Sequence

from minikube_py.sim.checkers import convergence, leases, linearizability, transactions, watches
from minikube_py.sim.checkers.convergence import Agreement, MemberView
from minikube_py.sim.checkers.leases import Bounds
from minikube_py.sim.checkers.verdict import Verdict
from minikube_py.sim.history import History


def judge(
    history: History,
    views: Sequence[MemberView] = (),
    agreement: Agreement | None = None,
    bounds: Bounds | None = None,
) -> dict[str, Verdict]:
    """A verdict by each checker that could be asked. `views`: what the members held in the end, once all was well and
    everybody had heard of everything; without them nobody need have. `bounds`: for leases."""
    verdicts: dict[str, Verdict] = {}
    checked = transactions.check(history)
    verdicts["transactions"] = checked.verdict
    verdicts["registers"] = linearizability.check(history.operations)
    if agreement is not None:
        verdicts["log"] = agreement.verdict()
    if not views:
        for watch in history.watches:
            watch.live = False
    else:
        verdicts["members"] = convergence.check_members(views)
    if checked.verdict.ok:
        verdicts["watches"] = watches.check(history, checked)
        verdicts["leases"] = leases.check(history, checked, bounds or Bounds())
        if views:
            verdicts["durability"] = convergence.check_durability(checked, views)
    return verdicts
