"""Run the fake kubelet: a process that registers many nodes and simulates their pods. Prints `ready` when the nodes are
registered. With --claim-share several processes simulate different nodes: the first node-0 to node-499 (with
--nodes 500), the second node-500 to node-999; a process that starts after another died takes over its nodes."""

from __future__ import annotations

import argparse

from minikube_py.cli import flags, forms, input_files

CLAIMED, FIXED = "--claim-share", "a fixed share"
HONOURED = {
    "share": (FIXED,),
    **dict.fromkeys(
        ("claim_prefix", "claim_identity", "claim_lease_duration", "claim_renew_deadline", "claim_retry_period"),
        (CLAIMED,),
    ),
}


def configure(parser: argparse.ArgumentParser) -> None:
    flags.add_kubeconfig(parser)
    flags.add_nodes(parser, 1, "how many nodes of the default shape; with --claim-share, how many each process plays")
    shapes_help = "a JSON list of nodes to register instead: {name, capacity: {resource: quantity}, labels}"
    parser.add_argument("--shapes", type=input_files.file, metavar="F", help=shapes_help)
    flags.add_stages(parser)
    share_help = "play only this share of the nodes (by name), as one of several such processes (default: 0/1)"
    share = flags.checked("control_plane.role_clients:parse_share")
    parser.add_argument("--share", type=share, metavar="INDEX/COUNT", help=share_help)
    group = parser.add_argument_group(
        "claimed shares", "Processes that claim their share by a Lease each: no two play the same nodes."
    )
    claim_help = "play the next nodes that no other process has claimed: slot k is node-(k x N) to node-(k x N + N - 1)"
    group.add_argument("--claim-share", action="store_true", help=claim_help)
    name_help = (
        "the slots' Leases are kube-system/PREFIX0, PREFIX1, ... (default: minikube-py-kubelet-); with a kubelet's "
        "token it must begin with that prefix"
    )
    group.add_argument("--claim-prefix", default="minikube-py-kubelet-", metavar="PREFIX", help=name_help)
    flags.add_lease_timing(group, "claim")
    identity_help = (
        "who this process is; a process of the same name takes its slot over at once, so give one only where no two "
        "can ever run under it (default: host name and a random number)"
    )
    group.add_argument("--claim-identity", metavar="NAME", help=identity_help)
    flags.add_process(parser, "kubelet")
    forms.watch(parser)


def run(arguments: argparse.Namespace) -> int:
    from minikube_py.client.lease_lock import Timing
    from minikube_py.control_plane.process import run_role
    from minikube_py.control_plane.role_clients import Claim, KubeletRole, read_shapes

    given = getattr(arguments, "claim_share", False)
    if hasattr(arguments, "shapes") and not given:
        forms.refuse(arguments, "--shapes", {"nodes": ("nodes of the default shape", CLAIMED)})
    forms.require(arguments, CLAIMED if given else FIXED, HONOURED)
    claim = None
    if arguments.claim_share:
        timing = Timing(arguments.claim_lease_duration, arguments.claim_renew_deadline, arguments.claim_retry_period)
        claim = Claim(arguments.claim_prefix, arguments.claim_identity, timing)
    nodes, shapes, share = arguments.nodes, arguments.shapes, arguments.share or "0/1"
    stages = flags.stages(arguments)
    if shapes is not None:
        with input_files.wrong_value("--shapes"):
            read_shapes(shapes)
    return run_role(
        "kubelet",
        lambda: KubeletRole(arguments.kubeconfig, nodes, shapes, share, claim, stages),
        flags.process(arguments, "kubelet"),
    )
