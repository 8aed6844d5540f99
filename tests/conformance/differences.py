"""Where ours answers otherwise than upstream on purpose: rules by class, each with its reason. All else must be alike.

A rule looks at what was asked and at both answers, never at the name of a request. Views take one respect out of both
answers, and the rest is compared; verdicts explain what is left. `direction` says which way ours differs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import alike
from alike import Seen
from asking import Ask

Direction = Literal["stricter", "more lenient", "other words", "other bytes", "not served"]


@dataclass(frozen=True, slots=True)
class Rule:
    """`when` tells whether the rule speaks of these answers. `view` None: it explains all that is left."""

    name: str
    direction: Direction
    reason: str
    when: Callable[[Ask, Seen, Seen], bool]
    view: Callable[[Seen], Seen] | None = None


class Explained(NamedTuple):
    """`rules` that were needed; `left` is what differs beyond them, by aspect."""

    rules: list[str]
    left: dict[str, tuple[Any, Any]]


def explain(ask: Ask, theirs: Seen, mine: Seen) -> Explained:
    used: list[str] = []
    left = alike.differences(theirs, mine)
    for rule in RULES:
        if not left:
            break
        if not rule.when(ask, theirs, mine):
            continue
        if rule.view is None:
            return Explained([*used, rule.name], {})
        viewed = rule.view(theirs), rule.view(mine)
        less = alike.differences(*viewed)
        if less != left:
            used.append(rule.name)
            (theirs, mine), left = viewed, less
    return Explained(used, left)


def _trees(change: Callable[[alike.Tree], alike.Tree]) -> Callable[[Seen], Seen]:
    def view(found: Seen) -> Seen:
        return found if found.tree is None else found._replace(tree=change(found.tree), body=b"")

    return view


_CITED = re.compile(r'Invalid value: \\"map\[.*\]\\": ')
_DISCOVERY = ("APIResourceList", "APIGroupList", "APIVersions", "APIGroup", "APIGroupDiscoveryList")


def _kind(found: Seen) -> str:
    return found.tree.text("kind") if found.tree is not None else ""


def _has(found: Seen, member: str) -> bool:
    return found.tree is not None and found.tree.get(member) is not None


def _by_binding(found: Seen) -> bool:
    status = found.tree.get("status") if found.tree is not None else None
    if status is None or status.text("allowed") != "true":
        return False
    return status.text("reason").startswith("RBAC: allowed by ")


def _before_offer(message: bytes) -> bytes:
    return message.partition(b"Available representations")[0].partition(b"media types are accepted")[0]


def _always(ask: Ask, theirs: Seen, mine: Seen) -> bool:
    return True


_ESCAPED = re.compile(r"\\+(?:x[0-9a-f]{2}|u[0-9a-f]{4}|[abfnrtv])|[\x80-\x9f]")
_SENT_EMPTY = re.compile(rb"\{\s*\}|\[\s*\]|null")
_EMPTY = re.compile(r"(?<=: )(?:\{\}|\[\])|(?<=\":)(?:\{\}|\[\])")


def _before_diff(found: Seen) -> str:
    """A refusal that cites what changed, without that."""
    message, diff, _ = found.message.partition("\\n@@")
    return message if diff else found.tree_text


def _causes(found: Seen) -> list[alike.Tree]:
    causes = found.tree.get("details", "causes") if found.tree is not None else None
    return sorted(causes.members) if causes is not None else []


def _with_causes_sorted(tree: alike.Tree) -> alike.Tree:
    """Lists as sets, in their order as text: the causes of an apply's refusal."""
    if tree.kind != "object":
        return tree._replace(members=tuple(sorted(tree.members, key=repr)))
    return tree._replace(members=tuple((name, _with_causes_sorted(each)) for name, each in tree.members))


_UNLIMITED = "this server does not limit requests by them"

RULES: tuple[Rule, ...] = (
    Rule(
        "managedFields",
        "not served",
        "who owns which field is kept from a creation that names its manager, or from the first apply on (ADR 0024)",
        lambda ask, theirs, mine: b"managedFields" in theirs.body and b"managedFields" not in mine.body,
        _trees(lambda tree: tree.without("managedFields")),
    ),
    Rule(
        "order of members",
        "other bytes",
        "members of an object are in the order of its writer, not of Go's structs; JSON gives order no meaning",
        _always,
        _trees(lambda tree: tree.sorted()),
    ),
    Rule(
        "order of conflicts",
        "other bytes",
        "upstream names the managers of an apply's conflicts in the order of a Go map",
        lambda ask, theirs, mine: theirs.message.startswith("Apply failed with") and theirs.message == mine.message,
        _trees(_with_causes_sorted),
    ),
    Rule(
        "order of owners",
        "other bytes",
        "owners are in the order of the seconds of their writes, which fall differently on two servers",
        lambda ask, theirs, mine: "managedFields" in theirs.tree_text and "managedFields" in mine.tree_text,
        _trees(lambda tree: tree.sorted().with_sorted("managedFields")),
    ),
    Rule(
        "before the first apply",
        "other words",
        "who wrote what an object held before its first apply is kept from then on, under one name (ADR 0024)",
        lambda ask, theirs, mine: "before-first-apply" in mine.tree_text,
        _trees(lambda tree: alike.tree_of(tree.told().replace(b"before-first-apply", b"unknown")) or tree),
    ),
    Rule(
        "representations offered",
        "not served",
        "objects are not answered in protobuf, so it is not among the representations offered",
        lambda ask, theirs, mine: theirs.code == mine.code == 406,
        lambda found: found._replace(tree=found.tree and found.tree.with_message(_before_offer), body=b""),
    ),
    Rule(
        "what is served",
        "not served",
        "documents that list what is served list fewer kinds, groups and paths, and the server's own version",
        lambda ask, theirs, mine: theirs.code == mine.code == 200
        and (_has(mine, "paths") or _has(mine, "gitVersion") or _kind(mine) in _DISCOVERY),
    ),
    Rule(
        "descriptions of columns",
        "other bytes",
        "columns of tables are described in words of our own",
        lambda ask, theirs, mine: _kind(mine) == "Table" or '"kind":"Table"' in mine.tree_text,
        _trees(lambda tree: tree.without("description")),
    ),
    Rule(
        "quotes of YAML",
        "other bytes",
        "which strings are quoted in YAML, and how, follows PyYAML instead of go-yaml; the values are the same",
        lambda ask, theirs, mine: theirs.style == mine.style == "yaml",
        lambda found: found._replace(body=b""),
    ),
    Rule(
        "protobuf",
        "not served",
        "answers come in JSON and YAML, not in protobuf; where that is wanted first, in JSON where it is accepted too",
        lambda ask, theirs, mine: "protobuf" in theirs.header("content-type")
        and (theirs.code == mine.code or (theirs.code == 500 and 400 <= mine.code < 500)),
    ),
    Rule(
        "rules in any order",
        "other bytes",
        "upstream lists the rules of a user in the order of its caches, which is another at each start",
        lambda ask, theirs, mine: _kind(mine) == "SelfSubjectRulesReview",
        _trees(lambda tree: tree.unordered()),
    ),
    Rule(
        "one of several bindings",
        "other words",
        "of several bindings that allow a request upstream names one by the order of its caches, which changes",
        lambda ask, theirs, mine: _by_binding(theirs) and _by_binding(mine),
        _trees(lambda tree: tree.without("reason")),
    ),
    Rule(
        "managedFields in a message",
        "not served",
        "a refusal that cites the object cites managedFields, which few objects have here (ADR 0024)",
        lambda ask, theirs, mine: "managedFields" in theirs.message and theirs.code == mine.code,
    ),
    Rule(
        "depth",
        "stricter",
        "what is kept as it was sent (runtime.RawExtension), and YAML, may have 200 levels instead of 10,000",
        lambda ask, theirs, mine: "max depth (200)" in mine.message or "than 200 levels" in mine.message,
    ),
    Rule(
        "control characters in a refusal",
        "other words",
        "Go quotes texts of a named type as JSON and all others its own way; ours quotes all in Go's way",
        lambda ask, theirs, mine: theirs.code == mine.code == 422
        and _ESCAPED.sub("?", mine.message) == _ESCAPED.sub("?", theirs.message),
    ),
    Rule(
        "patch cited",
        "other words",
        "a refused strategic patch is cited without the directives that were followed before it was refused",
        lambda ask, theirs, mine: ask.content_type.startswith("application/strategic")
        and theirs.code == mine.code == 422
        and _CITED.sub("", theirs.message) == _CITED.sub("", mine.message),
    ),
    Rule(
        "control characters in YAML",
        "more lenient",
        "upstream's YAML cannot say them, and it answers 500; PyYAML escapes them",
        lambda ask, theirs, mine: "control characters are not allowed" in theirs.message,
    ),
    Rule(
        "alive without a store",
        "more lenient",
        "a server that waits for its store is alive: the whole of /livez does not ask for it",
        lambda ask, theirs, mine: ask.target.startswith("/livez?") and b"[+]etcd excluded: ok" in mine.body,
    ),
    Rule(
        "free columns",
        "more lenient",
        "a table of nodes has further columns: what each has free of its resources",
        lambda ask, theirs, mine: _kind(mine) == "Table" and '"name":"free.' in mine.tree_text,
    ),
    Rule(
        "lone surrogates",
        "other words",
        "half of a pair of surrogates in a name is cited by its code, where Go puts the replacement character",
        lambda ask, theirs, mine: theirs.code == mine.code and "\\\\ud" in mine.message,
    ),
    Rule(
        "directives in the wrong place",
        "other words",
        "which of several refusals a strategic patch with directives on a scalar meets may differ",
        lambda ask, theirs, mine: ask.content_type.startswith("application/strategic")
        and b"$" in (ask.payload() or b"")
        and 400 <= theirs.code < 500
        and 400 <= mine.code < 500,
    ),
    Rule(
        "watch in the form of lists",
        "more lenient",
        "a watch that accepts PartialObjectMetadataList alone gets its events, where upstream sends nothing",
        lambda ask, theirs, mine: "PartialObjectMetadataList" in ask.accept
        and not theirs.body
        and mine.code == theirs.code == 200,
    ),
    Rule(
        "Expect",
        "other words",
        "what is expected and not known is refused with the words of its status instead of none",
        lambda ask, theirs, mine: theirs.code == mine.code == 417,
    ),
    Rule(
        "keys of a map in any order",
        "other words",
        "upstream looks at the keys of a map in another order each time, and so tells what is wrong with them",
        lambda ask, theirs, mine: theirs.code == mine.code == 422
        and len(_causes(theirs)) > 1
        and _causes(theirs) == _causes(mine),
    ),
    Rule(
        "annotations of a version",
        "other bytes",
        "what v1 has no field for it shows as annotations; upstream's metadata alone is that of the stored version",
        lambda ask, theirs, mine: ask.target.startswith("/apis/autoscaling/v1/")
        and "as=PartialObjectMetadata" in ask.accept,
        _trees(lambda tree: tree.without("annotations")),
    ),
    Rule(
        "version of a dry run",
        "other bytes",
        "an object that was not stored has no version; upstream shows the zero that a PUT of what is not there named",
        lambda ask, theirs, mine: ask.method == "PUT"
        and "dryRun=All" in ask.target
        and theirs.code == mine.code == 201,
        _trees(lambda tree: tree.without("resourceVersion")),
    ),
    Rule(
        "flows are not enforced",
        "other words",
        "who writes flow schemas gets a warning that they limit nothing; upstream without fairness is silent",
        lambda ask, theirs, mine: _UNLIMITED in mine.header("warning"),
        lambda found: found._replace(headers=tuple(
            (name, kept) if name == "warning" else (name, values)
            for name, values in found.headers
            for kept in (tuple(each for each in values if _UNLIMITED not in each),)
            if name != "warning" or kept
        )),
    ),
    Rule(
        "metrics of autoscaling/v1",
        "other words",
        "v1 holds its CPU metric apart from the others, so its tables show that last, and without its status",
        lambda ask, theirs, mine: "/autoscaling/v1/" in ask.target and _kind(theirs) == _kind(mine) == "Table",
        _trees(lambda tree: tree.without("cells")),
    ),
    Rule(
        "cache of events",
        "other bytes",
        "events are cached as all kinds are; upstream asks its store, which does not say when to ask again",
        lambda ask, theirs, mine: "/events" in ask.target and theirs.code == mine.code == 504,
        lambda found: found._replace(
            headers=tuple(each for each in found.headers if each[0] != "retry-after"),
            tree=found.tree and found.tree.without("retryAfterSeconds"), body=b"",
        ),
    ),
    Rule(
        "empty map cited",
        "other words",
        "an empty map or list that was sent is the same as none, also where a refusal cites it",
        lambda ask, theirs, mine: theirs.code == mine.code == 422
        and (
            _EMPTY.sub("null", theirs.tree_text) == _EMPTY.sub("null", mine.tree_text)
            or b'"requests":{}' in (ask.payload() or b"")
            or (_SENT_EMPTY.search(ask.payload() or b"") is not None and _before_diff(theirs) == _before_diff(mine))
        ),
    ),
    Rule(
        "empty map or list as a change",
        "other bytes",
        "an empty map or list that was sent is the same as none; upstream counts it as a change of a NetworkPolicy",
        lambda ask, theirs, mine: theirs.code == mine.code == 200
        and _kind(mine) == "NetworkPolicy"
        and _SENT_EMPTY.search(ask.payload() or b"") is not None,
        _trees(lambda tree: tree.without("generation")),
    ),
    Rule(
        "empty lists count",
        "more lenient",
        "an empty list or map that was sent is the same as none, where upstream minds that it was sent",
        lambda ask, theirs, mine: theirs.code == 422
        and _SENT_EMPTY.search(ask.payload() or b"") is not None
        and any(
            text in theirs.message
            for text in ("Forbidden: cannot be set", "Forbidden: claims may not be set for Resources at pod-level")
        ),
    ),
    Rule(
        "version beyond all bounds",
        "other bytes",
        "upstream tells a dry run that creates by PUT the version that was sent, where it is beyond an int64",
        lambda ask, theirs, mine: ask.method == "PUT"
        and theirs.code == mine.code == 201
        and b'"9223372036854775808"' in (ask.payload() or b""),
        _trees(lambda tree: tree.without("resourceVersion")),
    ),
    Rule(
        "rules held in parts",
        "stricter",
        "a check for escalation walks at most 30,000 combinations of rules that are held in parts",
        lambda ask, theirs, mine: mine.code == 403 and "telling takes over 30,000 steps" in mine.message,
    ),
    Rule(
        "missing permissions",
        "other words",
        "a refusal for escalation lists at most 4,096 permissions in 256 KiB",
        lambda ask, theirs, mine: theirs.code == mine.code == 403
        and "and more: at most 4,096 in 256 KiB" in mine.message,
        lambda seen: seen._replace(message="", tree=None, body=b""),
    ),
    Rule(
        "length of a quantity",
        "stricter",
        "a quantity has at most 4,096 characters",
        lambda ask, theirs, mine: mine.code in (400, 422)
        and "quantities must match" in mine.message
        and re.search(rb'"[^"]{4097,}"', ask.payload() or b"") is not None,
    ),
    Rule(
        "status of an absent Service",
        "stricter",
        "upstream creates a Service whose status is written, without an address of its own; here it is not found",
        lambda ask, theirs, mine: re.search(r"/services/[^/?]+/status(\?|$)", ask.target) is not None
        and ask.method in ("PUT", "PATCH")
        and mine.code == 404
        and theirs.code in (201, 409, 422),
    ),
    Rule(
        "client's fault",
        "stricter",
        "upstream answers 500 to what is the client's fault; ours says 4xx, with the same words",
        lambda ask, theirs, mine: theirs.code == 500 and 400 <= mine.code < 500 and theirs.message in mine.message,
    ),
)

SCHEDULER: dict[str, str] = {
    "amounts": "from 2**56 on (72 PB; of cpu in milli-units) a request counts as that, and fits no node; a node has "
    "one less at most. Upstream fits them, with wrong scores, or an error, once a hundredfold is beyond an int64",
    "unprepared": "a profile that enables a plugin at filter or score but not at preFilter or preScore, whose "
    "results it reads, is refused; upstream accepts it, and then ends each pod's cycle with an error",
    "devices": "without the filter of DynamicResources, devices are found at Reserve, where upstream fails",
    "images": "when a node's images change, the share of nodes that have an image is new for all nodes; upstream keeps "
    "the old share on the others until they change",
    "counters": "counters of pools of devices with equal names and different drivers are separate",
    "search for devices": "it ends after it has examined 500,000 devices, not after filterTimeout",
    "retries for nothing": "a waiting pod is not tried again after a change that cannot help it, as a cordon: its "
    "condition and event keep the words of the last attempt. Upstream tries it: `1 node(s) were unschedulable`",
    "no special claim": "a pod with claims whose extended resources the node provides itself is bound; upstream makes "
    "an empty special claim for it, and fails in PreBind again and again",
}
"""What the twins of schedulers do not draw, since it differs on purpose."""

_SHORTER_BACKOFF = "ours tries the less important pod less often for nothing: its backoff is shorter, and it goes first"
SCHEDULER_SCRIPTS = {
    "preemption 50080": _SHORTER_BACKOFF,
    "preemption 70010": _SHORTER_BACKOFF,
    "lives that preempt 70009": "an attempt for nothing gives up a nomination that ours keeps until the pod is tried",
    "points 70060": "a VolumeBinding that is disabled at Reserve alone fails for every pod upstream",
    "lives that preempt 107": "one victim is gone before the others are asked to go: ours is tried once more",
}
"""Drawn scripts (theme and seed) on which the schedulers differ, and why that stays."""

ADMISSION: dict[str, str] = {
    "ServiceAccount": "off unless `--enable-admission-plugins=ServiceAccount` says so: pods grow by 60 % (ADR 0045)",
    "NodeRestriction": "always on; upstream has it off by default, and kubeadm turns it on",
    "TaintNodesByCondition": "off unless `--enable-admission-plugins=TaintNodesByCondition` says so: a node takes "
    "pods from its creation on, so clusters without controllers schedule, too",
    "ClusterTrustBundleAttest": "does nothing upstream either: ClusterTrustBundle is behind a gate that is off",
}
"""Plugins that are on by default on one side alone; comparisons of other things run upstream without them."""

CONTROLLERS: dict[str, str] = {
    "ttl-controller": "off unless `--enable-controllers=ttl-controller` says so: it writes each node once more, with "
    "an annotation that only kubelets read",
    "legacy-serviceaccount-token-cleaner-controller": "unused tokens in Secrets are never removed: upstream does so "
    "after a year in which its server has noted uses, and ours keeps no note of when it began",
    "node-ipam-controller": "does nothing upstream either: its flag allocate-node-cidrs is off",
    "storage-version-migrator-controller": "does nothing upstream either: its gate StorageVersionMigrator is off",
    "simulated-volume-provisioner": "only here: it provisions volumes for the StorageClass of [simulated volumes]"
    "(../faq.md#do-statefulsets-and-volumes-work)",
    "simulated-volume-attacher": "only here: it says of VolumeAttachments of those volumes that they are attached",
}
"""Controllers that run by default on one side alone."""

OPENAPI: dict[str, str] = {
    "texts": "operations and parameters have none; those of fields come from a package that need not be installed",
    "untold members": "a member without a text is a bare reference upstream, and the only one of `allOf` here: the "
    "documents must not depend on the package of the texts",
    "shared parameters": "in version 2 each operation has its own parameters, where upstream refers to shared ones; "
    "they are in order of their names, as upstream's are in version 3",
    "groups that do not use it": "options and events that all groups have name as kinds those of groups whose paths "
    "take or send them; upstream in version 2 those of all groups that it knows, unserved ones as well",
}
"""What documents of OpenAPI tell otherwise; all else is alike: paths, operations, schemas."""

KUBECTL: dict[str, str] = {
    "describe pod": "our kubelets report a host IP and container ids, as real ones do; KWOK's do not",
    "logs": "our kubelets answer with an empty log; upstream cannot reach KWOK's",
    "get nodes wide": "free.<resource> columns are shown, and our kubelets report an address and an OS",
    "node leases": "a lease is held by its node's name, as real kubelets hold it; KWOK's by the process",
    "raw namespace": "who owns which field is kept from the first apply on, not from the creation",
}
"""Steps of the kubectl session, whose commands are listed one by one and not drawn."""
