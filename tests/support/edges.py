"""Edge cases of every type, as hypothesis strategies: whatever a client may send, well-behaved or not.

The values themselves are in `minikube_py/sim/edges.py`, which the swarm also uses; add data there. Each strategy mixes
typical values with edge cases, and draws keys, names and ids from small sets, so that they collide with earlier ones.

    ints, wire_ints             whole numbers: any size; what msgpack can carry
    texts, wild_texts           valid Unicode; with lone surrogates, which JSON and Python can hold and UTF-8 cannot
    quantities                  texts of Kubernetes quantities, of every suffix and size, and similar invalid ones
    json_values, deep_json      any JSON value; one as deep as it is long
    keys, ranges                store keys and [key, range_end)
    pods, nodes, objects        Kubernetes-like objects whose fields may be anything
    commands, requests          commands of every kind, nested and in sessions; range requests with and without `where`
    packed, mutated             commands as bytes; any bytes with bits, lengths and tags changed
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgpack
import orjson
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from minikube_py.errors import InvalidRequest
from minikube_py.fields.builtin import NODES, PODS
from minikube_py.fields.spec import FieldSet, FieldSpec, SumSpec
from minikube_py.fields.where import OPS, Comparison, Where
from minikube_py.index.declared import IndexSpec
from minikube_py.mvcc.auth import _CHANGES as AUTH_ACTIONS
from minikube_py.mvcc.auth import ROOT
from minikube_py.mvcc.codec import pack
from minikube_py.mvcc.types import (
    AsUser,
    ChangeAuth,
    CloseSession,
    Command,
    Compact,
    Compare,
    DeclareFields,
    DeclareIndex,
    DeleteRange,
    DropIndex,
    InSession,
    LeaseCheckpoint,
    LeaseGrant,
    LeaseRevoke,
    Op,
    OpenSession,
    Put,
    RangeRequest,
    Release,
    SessionCommand,
    Txn,
    prefix_end,
)
from minikube_py.sim.edges import (
    DEPTHS,
    EDGE_BYTES,
    EDGE_FLOATS,
    EDGE_INTS,
    EDGE_QUANTITIES,
    EDGE_TEXTS,
    INT64_EDGES,
    LONE_SURROGATES,
    NO_OBJECTS,
    SUFFIXES,
    WIRE_EDGES,
    deep_json,
)


def one_of_these(values: Sequence[Any]) -> SearchStrategy[Any]:
    """`sampled_from` with a description that omits the values."""
    return st.integers(0, len(values) - 1).map(lambda at: values[at])


def _brief(strategy: SearchStrategy[Any]) -> SearchStrategy[Any]:
    """`strategy` with a short description: those of nested ones contain all their parts."""

    @st.composite
    def drawn(draw: st.DrawFn) -> Any:
        return draw(strategy)

    return drawn()


# -- numbers -----------------------------------------------------------------------------------------------------------

small_ints = st.integers(-2, 40)
ints = st.one_of(small_ints, one_of_these(EDGE_INTS), st.integers())
int64s = st.one_of(small_ints, one_of_these(INT64_EDGES), st.integers(-(1 << 63), (1 << 63) - 1))
wire_ints = st.one_of(small_ints, small_ints, one_of_these(WIRE_EDGES), st.integers(-(1 << 63), (1 << 64) - 1))

# -- texts and bytes ---------------------------------------------------------------------------------------------------

texts = st.one_of(one_of_these(EDGE_TEXTS), st.text(max_size=12))
"""Valid Unicode: what UTF-8 can hold."""
wild_texts = st.one_of(texts, one_of_these(LONE_SURROGATES), st.text(st.characters(), max_size=6))
byte_strings = st.one_of(one_of_these(EDGE_BYTES), st.binary(max_size=24))

# -- quantities --------------------------------------------------------------------------------------------------------

_mantissas = st.one_of(
    st.integers(0, 2000).map(str),
    one_of_these([str(value) for value in EDGE_INTS if abs(value) < 1 << 130]),
    st.decimals(allow_nan=False, allow_infinity=False, places=9).map(str),
)
quantities = st.one_of(
    st.builds("".join, st.tuples(_mantissas, st.sampled_from(SUFFIXES))), one_of_these(EDGE_QUANTITIES)
)
usual_quantities = st.sampled_from(("100m", "250m", "1", "1500m", "4", "64Mi", "128Mi", "1Gi", "2Gi", "16Gi"))

# -- JSON --------------------------------------------------------------------------------------------------------------

floats = st.one_of(st.sampled_from(EDGE_FLOATS), st.floats())
scalars = st.one_of(st.none(), st.booleans(), ints, floats, texts, quantities)
json_values: SearchStrategy[Any] = _brief(
    st.recursive(
        scalars,
        lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
        max_leaves=12,
    )
)


def as_json(value: Any) -> bytes:
    """`value` as JSON bytes; values without a JSON form (numbers beyond 64 bits) as their text."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return _json_text(value).encode("utf-8", "surrogatepass")


def _json_text(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{_json_text(str(name))}:{_json_text(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_json_text, value)) + "]"
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return '"' + "".join(char if " " <= char < "\x7f" and char not in '"\\' else "?" for char in str(value)) + '"'


# -- keys and ranges ---------------------------------------------------------------------------------------------------

POD_KEYS: Final = tuple(b"/registry/pods/default/p%d" % at for at in range(5))
NODE_KEYS: Final = tuple(b"/registry/nodes/n%d" % at for at in range(3))
OTHER_KEYS: Final = (
    b"a",
    b"b",
    b"c",
    b"\0",
    b"\xff",
    b"k" * 300,
    b"/registry/pods/",
    b"/registry/nodes/\xff\xfe",
    b"/",
)
keys = st.one_of(st.sampled_from(POD_KEYS + NODE_KEYS), one_of_these(OTHER_KEYS), byte_strings)
real_keys = keys.filter(bool)
_PREFIXES: Final = (b"/registry/pods/", b"/registry/nodes/", b"/registry/", b"/minikube-py/indexes/", b"a")
ranges = st.one_of(
    st.tuples(keys, st.just(b"")),
    st.sampled_from([(prefix, prefix_end(prefix)) for prefix in _PREFIXES]),
    st.just((b"\0", b"\0")),
    st.tuples(keys, st.just(b"\0")),
    st.tuples(keys, keys),
)
"""(key, range_end), some empty or the wrong way round."""

# -- Kubernetes-like objects -------------------------------------------------------------------------------------------

RESOURCES: Final = ("cpu", "memory", "pods", "ephemeral-storage", "hugepages-2Mi", "nvidia.com/gpu", "")
_lists = st.dictionaries(
    st.one_of(st.sampled_from(RESOURCES), texts),
    st.one_of(usual_quantities, quantities, quantities, json_values),
    max_size=5,
)


def _or_anything(usual: SearchStrategy[Any]) -> SearchStrategy[Any]:
    """Usually what it should be, sometimes any JSON at all."""
    return st.one_of(usual, usual, usual, usual, usual, json_values)


def _with(required: dict[str, SearchStrategy[Any]], **optional: SearchStrategy[Any]) -> SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {name: _or_anything(each) for name, each in required.items()},
        optional={name: _or_anything(each) for name, each in optional.items()},
    )


_resources = _with({}, requests=_lists, limits=_lists)
_containers = st.lists(
    _or_anything(
        _with(
            {"name": st.sampled_from(("a", "b", "c"))},
            resources=_resources,
            restartPolicy=st.sampled_from(("Always", "Never", "")),
            image=texts,
        )
    ),
    max_size=4,
)
_statuses = st.lists(
    _or_anything(
        _with(
            {"name": st.sampled_from(("a", "b", "c"))},
            allocatedResources=_lists,
            resources=_resources,
        )
    ),
    max_size=4,
)
_conditions = st.lists(
    _or_anything(
        _with(
            {"type": st.sampled_from(("PodResizePending", "PodResizeInProgress", "Ready"))},
            status=st.sampled_from(("True", "False")),
            reason=st.sampled_from(("Infeasible", "Deferred", "Error")),
        )
    ),
    max_size=2,
)
_metadata = _with(
    {"name": st.sampled_from(("p0", "p1", "n0", "n1"))},
    uid=texts,
    labels=st.dictionaries(texts, _or_anything(texts), max_size=3),
    annotations=st.dictionaries(texts, texts, max_size=2),
    creationTimestamp=st.sampled_from(("2026-01-31T12:00:00Z", "0000-00-00T00:00:00Z", "9999-12-31T23:59:60Z", "")),
)
pods = _brief(
    _with(
        {"metadata": _metadata},
        spec=_with(
            {"containers": _containers},
            initContainers=_containers,
            nodeName=st.sampled_from(("n0", "n1", "n2", "", "a/../b")),
            overhead=_lists,
            resources=_resources,
            priority=ints,
        ),
        status=_with(
            {"phase": st.sampled_from(("Pending", "Running", "Succeeded", "Failed", ""))},
            containerStatuses=_statuses,
            initContainerStatuses=_statuses,
            conditions=_conditions,
            resources=_resources,
            allocatedResources=_lists,
        ),
    )
)
nodes = _brief(
    _with(
        {"metadata": _metadata},
        spec=_with({}, unschedulable=st.booleans(), podCIDR=texts),
        status=_with({"allocatable": _lists}, capacity=_lists),
    )
)
objects = st.one_of(pods, nodes, json_values)
stored_values = st.one_of(
    pods.map(as_json),
    nodes.map(as_json),
    json_values.map(as_json),
    one_of_these(NO_OBJECTS),
    st.sampled_from(DEPTHS).map(lambda depth: deep_json(depth).encode()),
    byte_strings,
)
"""Possible values of a key: objects, other JSON, and invalid data."""

puts_of_objects = st.one_of(
    st.builds(Put, st.sampled_from(POD_KEYS), pods.map(as_json)),
    st.builds(Put, st.sampled_from(NODE_KEYS), nodes.map(as_json)),
)

# -- declarations ------------------------------------------------------------------------------------------------------

EXTRACTORS: Final = ("path@1", "resources@1", "pod_requests@1", "hash32@1", "sum@1", "sum@2", "count@1", "path@9", "")
_fields = st.one_of(
    st.sampled_from((*NODES.fields, *PODS.fields)),
    st.builds(
        FieldSpec,
        st.sampled_from(("x", "y.*", "free.cpu", "spec.priority", "*", "", "labels.z")),
        st.sampled_from(("quantity", "int", "string", "time")),
        st.sampled_from(
            ("path@1", "resources@1", "pod_requests@1", "hash32@1", "sum@1", "sum@2", "count@1", "path@9", "")
        ),
        st.dictionaries(
            st.sampled_from(("path", "resource", "default", "sum", "over")),
            st.one_of(
                st.sampled_from(("spec.priority", "status.phase", "cpu", "requested.*", "a[0]", "a..b", "[")), texts
            ),
            max_size=2,
        ),
        st.sampled_from((None, None, "requested.*")),
    ),
)
_sums = st.one_of(
    st.just(NODES.sums[0]),
    st.builds(
        SumSpec,
        st.sampled_from(("requested.*", "tasks", "")),
        st.sampled_from((b"/registry/pods/", b"", b"\xff")),
        st.sampled_from(("spec.nodeName", "metadata.name", "a..b")),
        st.sampled_from(("pod_requests@1", "count@1", "path@1")),
        st.sampled_from(({}, {"path": "spec.priority"})),
    ),
)
field_sets = st.one_of(
    st.sampled_from((NODES, PODS)),
    st.builds(
        FieldSet,
        st.sampled_from(("pods", "nodes", "other", "")),
        st.sampled_from((b"/registry/pods/", b"/registry/nodes/", b"/", b"")),
        st.lists(_fields, max_size=4).map(tuple),
        st.lists(_sums, max_size=2).map(tuple),
    ),
)
index_specs = st.builds(
    IndexSpec,
    st.sampled_from(("i0", "i1", "i2", "Bad", "")),
    st.sampled_from(("nodes", "pods", "other")),
    st.lists(
        st.sampled_from(("free.cpu", "free.memory", "requests.cpu", "requests.memory", "hash.spec.nodeName", "x")),
        min_size=1,
        max_size=3,
        unique=True,
    ).map(tuple),
    st.sampled_from(("columns", "kd-tree", "max-tree", "sorted-runs", "zones", "sharded", "no-such")),
    st.dictionaries(st.sampled_from(("shards", "grid")), st.one_of(int64s, texts), max_size=1),
    st.one_of(st.just(256 << 20), int64s),
)

# -- requests ----------------------------------------------------------------------------------------------------------

_ASKED: Final = (
    "free.cpu", "free.memory", "requested.cpu", "allocatable.memory", "requests.cpu", "requests.memory",
    "metadata.name", "spec.unschedulable", "hash.spec.nodeName", "nope", "",
)  # fmt: skip
_operands = st.one_of(usual_quantities, quantities, ints.map(str), texts)
comparisons = st.one_of(
    st.builds(
        Comparison,
        st.sampled_from(_ASKED),
        st.sampled_from(sorted(OPS - {"in", "exists"})),
        _operands.map(lambda text: (text,)),
    ),
    st.builds(
        Comparison, st.sampled_from(_ASKED), st.sampled_from(sorted(OPS)), st.lists(_operands, max_size=3).map(tuple)
    ),
)
wheres = st.lists(comparisons, min_size=1, max_size=3).map(lambda found: Where(tuple(found)))


def requests(
    numbers: SearchStrategy[int] = wire_ints, where: SearchStrategy[Where | None] | None = None
) -> SearchStrategy[RangeRequest]:
    """Range requests with numbers from `numbers`; without `where` none has a where or fields."""
    fields = st.just(()) if where is None else st.lists(st.sampled_from(_ASKED), max_size=2).map(tuple)
    bounds = st.one_of(st.just(0), st.just(0), numbers)
    return st.builds(
        lambda bounds, *rest: RangeRequest(*bounds, *rest),
        ranges,
        st.one_of(st.just(0), numbers),
        st.one_of(st.just(0), numbers),
        st.booleans(),
        st.booleans(),
        st.none() if where is None else where,
        st.sampled_from(("KEY", "ANY")),
        fields,
        st.sampled_from(("KEY", "VERSION", "CREATE", "MOD", "VALUE")),
        st.sampled_from(("NONE", "NONE", "ASCEND", "DESCEND")),
        bounds,
        bounds,
        bounds,
        bounds,
    )


# -- commands ----------------------------------------------------------------------------------------------------------


def puts(numbers: SearchStrategy[int] = wire_ints) -> SearchStrategy[Put]:
    return st.builds(
        Put,
        keys,
        stored_values,
        st.one_of(st.just(0), st.just(0), numbers),
        st.booleans(),
        st.sampled_from((False, False, False, True)),
        st.sampled_from((False, False, False, True)),
    )


deletes = st.builds(lambda bounds, prev_kv: DeleteRange(*bounds, prev_kv), ranges, st.booleans())


def compares(numbers: SearchStrategy[int] = wire_ints) -> SearchStrategy[Compare]:
    """Some have an operand of the wrong type, or an invalid target or operator."""
    return st.builds(
        lambda bounds, target, op, operand: Compare(bounds[0], target, op, operand, bounds[1]),
        ranges,
        st.sampled_from(("VERSION", "CREATE", "MOD", "VALUE", "LEASE", "VERSION", "NONE")),
        st.sampled_from(("=", "!=", "<", ">", "<=")),
        st.one_of(numbers, numbers, byte_strings),
    )


def txns(numbers: SearchStrategy[int] = wire_ints) -> SearchStrategy[Txn]:
    """Including nested ones."""
    leaves: SearchStrategy[Op] = st.one_of(puts(numbers), puts_of_objects, deletes, requests(numbers))
    compared = st.lists(compares(numbers), max_size=2).map(tuple)

    def branch(op: SearchStrategy[Any]) -> SearchStrategy[Any]:
        return st.lists(op, max_size=3).map(tuple)

    inner = st.recursive(
        leaves, lambda op: st.one_of(leaves, st.builds(Txn, compared, branch(op), branch(op))), max_leaves=6
    )
    return _brief(st.builds(Txn, compared, branch(inner), branch(inner)))


def deep_txn(depth: int, op: Op | None = None) -> Txn:
    """Nested `depth` levels deep."""
    txn = Txn(success=() if op is None else (op,))
    for _ in range(depth):
        txn = Txn(success=(txn,))
    return txn


def wide_txn(nested: int, ops: int, key: bytes = b"k", value: bytes = b"") -> Txn:
    """`nested` txns side by side, each with `ops` puts and deletes of separate keys."""
    return Txn(
        success=tuple(
            Txn(
                success=tuple(
                    Put(b"%s/%d/%d" % (key, at, op), value)
                    if op % 2
                    else DeleteRange(b"%s/%d/%d" % (key, at, op), b"%s/%d/%d\0" % (key, at, op))
                    for op in range(ops)
                )
            )
            for at in range(nested)
        )
    )


def auth_changes(numbers: SearchStrategy[int] = wire_ints) -> SearchStrategy[ChangeAuth]:
    """With few names, so that users get roles and roles permissions."""
    names = one_of_these((ROOT, ROOT, "u", "r", "", "a" * 2000))
    kinds = st.one_of(st.integers(0, 2), numbers)
    return st.builds(
        lambda action, name, role, kind, bounds, *rest: ChangeAuth(action, name, role, kind, *bounds, *rest),
        one_of_these((*AUTH_ACTIONS, "", "user")), names, names, kinds, ranges, byte_strings, st.booleans(),
    )  # fmt: skip


def as_users(numbers: SearchStrategy[int] = wire_ints) -> SearchStrategy[AsUser]:
    """By a user with or without permission, an unknown one, or one looked up long ago."""
    inner = st.one_of(puts(numbers), deletes, txns(numbers), st.builds(LeaseRevoke, numbers), auth_changes(numbers))
    return st.builds(AsUser, one_of_these((ROOT, "u", "", "nobody")), st.one_of(st.integers(0, 9), numbers), inner)


def session_commands(numbers: SearchStrategy[int] = wire_ints) -> SearchStrategy[SessionCommand]:
    """Commands permitted in a session, with numbers from `numbers`."""
    return _brief(
        st.one_of(
            puts(numbers),
            puts_of_objects,
            puts_of_objects,
            deletes,
            txns(numbers),
            txns(numbers).map(Release),
            st.builds(LeaseGrant, numbers, numbers),
            st.builds(LeaseRevoke, numbers),
            st.builds(LeaseCheckpoint, numbers, numbers),
            st.builds(Compact, numbers),
            auth_changes(numbers),
            as_users(numbers),
            field_sets.map(DeclareFields),
            index_specs.map(DeclareIndex),
            one_of_these(("i0", "i1", "i2", "", "a" * 2000)).map(DropIndex),
        )
    )


def commands(numbers: SearchStrategy[int] = wire_ints) -> SearchStrategy[Command]:
    """Commands of every kind."""
    inner = session_commands(numbers)
    return st.one_of(
        inner,
        inner,
        inner,
        st.builds(OpenSession, numbers),
        st.builds(InSession, numbers, numbers, numbers, inner),
        st.builds(CloseSession, numbers),
    )


# -- bytes -------------------------------------------------------------------------------------------------------------

_TAGS: Final = (0x00, 0x7F, 0x80, 0x90, 0xA0, 0xC0, 0xC1, 0xC4, 0xC6, 0xCB, 0xCF, 0xD3, 0xDB, 0xDD)
"""Of msgpack: fixed and long lengths, numbers, nil, floats, and the one that is never used."""


@st.composite
def mutated(draw: st.DrawFn, source: SearchStrategy[bytes], changes: int = 3) -> bytes:
    """Bytes of `source` with up to `changes` bits flipped, bytes set, pieces cut, doubled or put in."""
    data = bytearray(draw(source))
    for _ in range(draw(st.integers(0, changes))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        kind = draw(st.sampled_from(("flip", "set", "cut", "double", "put", "end")))
        if kind == "flip" and data:
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "set" and data:
            data[at] = draw(
                st.sampled_from((0x00, 0x7F, 0x80, 0x90, 0xA0, 0xC0, 0xC1, 0xC4, 0xC6, 0xCB, 0xCF, 0xD3, 0xDB, 0xDD))
            )
        elif kind == "cut":
            del data[at : at + draw(st.integers(1, 8))]
        elif kind == "double":
            data[at:at] = data[at : at + draw(st.integers(1, 16))]
        elif kind == "put":
            data[at:at] = draw(byte_strings)
        else:
            del data[at:]
    return bytes(data)


def _packable(command: Command) -> bytes:
    try:
        return pack(command)
    except (InvalidRequest, ValueError):
        # What the packer refuses: a declaration in bytes of which no text can be made.
        return b"\x92\x01\x90"


packed = commands().map(_packable)
plain_values: SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), wire_ints, floats, texts, byte_strings),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=10,
)
"""What msgpack can carry, in any shape."""
AROUND_DEEP: Final = ((b"", b""), (b"\x92\x01", b""), (b"\x92", b"\x90"), (b"\x93\x91", b"\xc2\xc4\x00"))
"""Before and after a value: alone, as a message and as its version, in a change of members."""
deep_bytes = st.builds(
    lambda around, depth, of_map: around[0] + (b"\x81\x01" if of_map else b"\x91") * depth + b"\xc0" + around[1],
    st.sampled_from(AROUND_DEEP),
    st.sampled_from((2, 500, 900, 990, 1010, 1020, 1022, 1023, 1024, 3000)),
    st.booleans(),
)
"""Nested as deep as msgpack decodes, which is deeper than Python shows, and deeper."""
hostile_bytes = st.one_of(
    mutated(packed),
    deep_bytes,
    st.tuples(st.just(1), st.lists(plain_values, min_size=1, max_size=6)).map(
        lambda value: bytes(msgpack.packb(value))
    ),
    byte_strings,
)
"""Bytes that may pass for a command, or nearly."""
