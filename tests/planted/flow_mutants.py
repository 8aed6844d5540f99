"""Bugs planted in what places pods in rounds, and in the devices of the packing policies.

Most of them change no placement that a filter would not mend: they are found by laws of the parts, or by counted work.
"""

from __future__ import annotations

from scheduler_mutants import FLOW, PACKING, SchedulerMutant

MUTANTS: tuple[SchedulerMutant, ...] = (
    SchedulerMutant(
        "flow: more pods of a class than fit go through machine classes", FLOW, "flow/graph.py",
        "np.minimum(capacity, room > index)",
        "np.minimum(capacity, 1)",
        "repair hides it",
    ),
    SchedulerMutant(
        "flow: more pods of a class than fit go to a machine", FLOW, "flow/graph.py",
        "tiers.append(_Tier(1, places, np.minimum(capacity, room), cost))",
        "tiers.append(_Tier(1, places, capacity, cost))",
        "repair hides it",
    ),
    SchedulerMutant(
        "flow: more pods of a class than fit go where they prefer", FLOW, "flow/graph.py",
        "min(arc.capacity * task.count, int(of.room[position]))",
        "arc.capacity * task.count",
        "repair hides it",
    ),
    SchedulerMutant(
        "flow: a least flow is lowered to what the arc carries", FLOW, "flow/graph.py",
        "        if of.min_flow > of.capacity:\n",
        "        of = of._replace(min_flow=min(of.min_flow, of.capacity))\n        if of.min_flow > of.capacity:\n",
        "a model says a number once, for classes of any size",
    ),
    SchedulerMutant(
        "flow: the place of victims is sold twice", FLOW, "flow/graph.py",
        "            self._leaf_room[place] = min(1, self._leaf_room[place])\n",
        "",
        "what a machine has room for without its victims",
    ),
    SchedulerMutant(
        "flow: arcs from machine classes have no limit", FLOW, "flow/graph.py",
        "min(model.machine_classes, total, max(1, self._arcs_max // max(1, pairs)))",
        "min(model.machine_classes, total)",
        "large clusters alone come near it",
    ),
    SchedulerMutant(
        "flow: the limit of arcs is not passed on", FLOW, "flow/rounds.py",
        "self._columns, self._plugin.args.max_arcs)",
        "self._columns)",
        "an argument that is read, checked and dropped",
    ),
    SchedulerMutant(
        "flow: machines without victims still run them", FLOW, "flow/exchange.py",
        "return super().running - self._released(PODS)",
        "return super().running",
        "a price by the number of pods",
    ),
    SchedulerMutant(
        "flow: victims free their place alone", FLOW, "flow/exchange.py",
        "return super().free(resource) + self._released(resource)",
        "return super().free(resource) + (self._released(resource) if resource == PODS else 0)",
        "a price by what is free",
    ),
    SchedulerMutant(
        "flow: one machine by itself still has its victims", FLOW, "flow/exchange.py",
        "        if offer is None:\n            return machine\n        node",
        "        return machine\n        node",
        "the form for many machines was written first",
    ),
    SchedulerMutant(
        "flow: places of victims are priced as they are", FLOW, "flow/rounds.py",
        "self._columns, plugin.args.max_arcs, lambda machines: Relieved(machines, found), extra",
        "self._columns, plugin.args.max_arcs, None, extra",
        "nodes are full of pods that cost something",
    ),
    SchedulerMutant(
        "flow: no model hears that a machine goes", FLOW, "flow/rounds.py",
        '                asking.ask(f"machine {name}", model.remove_machine, name)\n',
        "",
        "the same name may come again",
    ),
    SchedulerMutant(
        "flow: a model hears twice that a machine comes", FLOW, "flow/rounds.py",
        "asking.tell(model, Machine(info), slot not in self._known)",
        "asking.tell(model, Machine(info))",
        "a change taken for an arrival",
    ),
    SchedulerMutant(
        "flow: pods that others select are one class whatever their labels", FLOW, "flow/rounds.py",
        "                labels = labels_that_matter(pod, topology, self._by_labels)",
        "                labels = None",
        "equal specifications fit equally, mostly",
    ),
    SchedulerMutant(
        "flow: what a full graph leaves gets a condition", FLOW, "flow/rounds.py",
        "                if placements and len(placements) * AGAIN_SHARE >= len(rest):",
        "                if not rest:",
        "a write for each pod that is placed in a moment",
    ),
    SchedulerMutant(
        "flow: a round has all pods", FLOW, "flow/rounds.py",
        "                await self._round(alike[:most])",
        "                await self._round(alike)",
        "an argument that is read, checked and dropped",
    ),
    SchedulerMutant(
        "flow: a machine named twice is two", FLOW, "flow/checking.py",
        "        return np.unique(positions.astype(np.int64))",
        "        return positions.astype(np.int64)",
        "a model may draw the same one twice",
    ),
    SchedulerMutant(
        "devices: those of pods that are gone are remembered", PACKING, "packing/devices.py",
        "            self.chosen.pop(uid, None)\n        self._placed",
        "            pass\n        self._placed",
        "it only grows",
    ),
    SchedulerMutant(
        "devices: a pod that comes and goes unseen is remembered", PACKING, "packing/devices.py",
        "        self._placed[slot] = self._placed.get(slot, frozenset()) | {pod.uid}\n",
        "",
        "rows are worked out when somebody asks",
    ),
)
