"""All checkers over one run, simulated or real: its verdicts."""

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
    """A verdict of each applicable checker. `views`: the members' final contents, once all was healthy and all had
    caught up; without them delivery need not be complete. `bounds`: for leases."""
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
