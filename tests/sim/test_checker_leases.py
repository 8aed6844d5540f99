"""The lease checker: what ended early, what did not end."""

from __future__ import annotations

import pytest
from correct_history import Recorder
from hypothesis import given, settings
from hypothesis import strategies as st

from minikube_py.errors import LeaseNotFound
from minikube_py.mvcc.types import (
    DeleteRange,
    Event,
    KeyValue,
    LeaseGrant,
    LeaseResult,
    LeaseRevoke,
    Put,
    PutResult,
    RangeRequest,
    RangeResult,
    Txn,
    WatchBatch,
)
from minikube_py.sim.checkers import leases, transactions
from minikube_py.sim.checkers.leases import Bounds
from minikube_py.sim.history import Delivery, History, KeepAlive, Operation, Watch, WatchPart

S = 1_000_000
LEASE, TTL_S = 7, 5


def done(call_s, request, result):
    return Operation(1, round(call_s * S), round((call_s + 0.1) * S), request, "done", result)


def grant(call_s):
    return done(call_s, LeaseGrant(LEASE, TTL_S), LeaseResult(1, LEASE, TTL_S))


def attach(call_s):
    return done(call_s, Put(b"a", b"1", LEASE), PutResult(2))


def renew(call_s, ttl_s=TTL_S):
    return done(call_s, KeepAlive(LEASE), LeaseResult(0, LEASE, ttl_s))


def there(call_s):
    return done(call_s, RangeRequest(b"a"), RangeResult([KeyValue(b"a", b"1", 2, 2, 1, LEASE)], 1, False, 2))


def gone(call_s):
    return done(call_s, RangeRequest(b"a"), RangeResult([], 0, False, 3))


def unknown(call_s, request):
    return Operation(2, round(call_s * S), None, request, "unknown")


def not_found(call_s):
    return renew(call_s)._replace(status="refused", result=None, error=LeaseNotFound())


GOOD = {
    "gone after its TTL": [grant(0), attach(1), gone(5)],
    "there until it is gone": [grant(0), attach(1), there(4.8), gone(6)],
    "renewed, and gone a TTL later": [grant(0), attach(1), renew(3), there(7.5), gone(8.1)],
    "revoked at once": [grant(0), attach(1), done(2, LeaseRevoke(LEASE), LeaseResult(3, LEASE, TTL_S)), gone(3)],
    "perhaps revoked": [grant(0), attach(1), unknown(2, LeaseRevoke(LEASE)), gone(3)],
    "perhaps deleted by somebody": [grant(0), attach(1), unknown(2, DeleteRange(b"a")), gone(3), renew(4)],
    "perhaps deleted in a txn": [grant(0), attach(1), unknown(2, Txn((), (DeleteRange(b"", b"b"),))), gone(3)],
    "a renewal that may not have been": [grant(0), attach(1), unknown(4, KeepAlive(LEASE)), gone(5)],
    "renewing what is gone": [grant(0), attach(1), gone(5), renew(6, 0)],
    "not there before it was granted": [not_found(0), grant(1), attach(2), there(3)],
}
BAD = {
    "gone before its TTL": ([grant(0), attach(1), gone(4)], "promised to live until 5.0"),
    "gone though renewed": ([grant(0), attach(1), renew(3), gone(6)], "promised to live until 8.0"),
    "no such lease, too early": ([grant(0), renew(2, 0)], "promised to live until 5.0"),
    "refused, too early": ([grant(0), attach(1), not_found(3)], "promised to live until 5.0"),
    "renewed after its end": ([grant(0), attach(1), gone(6), renew(7)], "promised to live"),
}


SOUND = Bounds(settled_us=0, grace_us=S)


def verdict(operations, bounds=SOUND):
    history = History(operations)
    checked = transactions.check(history)
    assert checked.verdict.ok, checked.verdict.text
    return leases.check(history, checked, bounds)


@pytest.mark.parametrize("name", GOOD)
def test_a_good_lease_passes(name):
    found = verdict(GOOD[name])
    assert found.ok, found.text


@pytest.mark.parametrize("name", BAD)
def test_a_lease_that_ended_early_is_found(name):
    operations, said = BAD[name]
    found = verdict(operations)
    assert found.outcome == "violation" and said in found.text, found


def of_two(short, shown=(), *more):
    """Two leases with a key each, of which `short` is to end first. By revision 4 one of them has ended, by revision 5
    the other; which, only a watch saw, if one did: those `shown`, in their order."""
    ttls_s = {lease: 3 if lease == short else 6 for lease in (7, 8)}
    keys = {7: (b"a", 2), 8: (b"b", 3)}
    operations = [
        done(0, LeaseGrant(7, ttls_s[7]), LeaseResult(1, 7, ttls_s[7])),
        done(0.2, LeaseGrant(8, ttls_s[8]), LeaseResult(1, 8, ttls_s[8])),
        done(0.4, Put(b"a", b"1", 7), PutResult(2)),
        done(0.6, Put(b"b", b"1", 8), PutResult(3)),
        done(3.5, RangeRequest(b"c"), RangeResult([], 0, False, 4)),
        done(7, RangeRequest(b"c"), RangeResult([], 0, False, 5)),
        *more,
    ]
    watch = Watch(3, b"a", b"c", live=True)
    if shown:
        part = WatchPart(4, 1 * S)
        for revision, at_s, lease in zip((4, 5), (3.4, 6.9), shown):
            key, mod = keys[lease]
            gone_kv, before = KeyValue(key, b"", 0, revision, 0, 0), KeyValue(key, b"1", mod, mod, 1, lease)
            batch = WatchBatch([Event("DELETE", gone_kv, before)], revision)
            part.deliveries.append(Delivery(round(at_s * S), batch))
        watch.parts.append(part)
    history = History(operations, [watch])
    checked = transactions.check(history)
    assert checked.verdict.ok, checked.verdict.text
    return leases.check(history, checked, Bounds(settled_us=0, grace_us=S))


@pytest.mark.parametrize("short", [7, 8])
def test_of_two_that_ended_the_right_one_may_have_been_first(short):
    other = 15 - short
    assert of_two(short).ok and of_two(short, (short, other)).ok
    assert f"lease {other} had ended by 3.4" in of_two(short, (other, short)).text


def test_what_somebody_may_have_deleted_is_no_end():
    deleted = unknown(1, DeleteRange(b"b"))
    assert of_two(7, (8, 7), deleted).ok, "who saw the key go cannot tell why"
    assert "lease 8 had ended by 3.4" in of_two(7, (8, 7), unknown(1, DeleteRange(b"x", b"z"))).text


def test_clocks_may_run_fast_by_what_is_allowed():
    early = [grant(0), attach(1), gone(4)]
    assert verdict(early, Bounds(fast=1.3)).ok
    assert not verdict(early, Bounds(fast=1.1)).ok


def test_a_lease_that_does_not_end_is_found():
    late = [grant(0), attach(1), there(6.5)]
    assert "should have ended by 6.1" in verdict(late).text
    assert verdict(late, Bounds(settled_us=1 * S, grace_us=S)).ok, "faults may hold it up"
    assert verdict(late, Bounds(slow=0.8, settled_us=0, grace_us=S)).ok, "so may a slow clock"
    assert verdict([*late[:2], unknown(3, KeepAlive(LEASE)), late[2]]).ok, "it may have been renewed at any time"
    assert not verdict([grant(0), attach(1), renew(1.5), there(8)]).ok


@settings(max_examples=60)
@given(st.integers(0, 1 << 32))
def test_what_a_right_store_did_passes(seed):
    history = Recorder(seed).run()
    found = leases.check(history, transactions.check(history), Bounds(settled_us=0, grace_us=1000))
    assert found.ok, found.text
