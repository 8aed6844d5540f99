"""What may be forgotten, by age and by size."""

from __future__ import annotations

from minikube_py.store.compaction import CompactionPolicy


def run(policy: CompactionPolicy, seconds: range, writes_per_s: int, bytes_per_write: int) -> list[tuple[int, int]]:
    """(second, revision) of each compaction, under steady writes."""
    done = []
    for second in seconds:
        revision = second * writes_per_s
        if target := policy.due(float(second), revision, revision * bytes_per_write):
            done.append((second, target))
    return done


def test_by_age_the_history_of_the_last_minutes_stays():
    done = run(CompactionPolicy(300, 0), range(1, 1000), 10, 100)
    assert done[0] == (301, 10)
    assert all(290 <= second - revision / 10 <= 310 for second, revision in done)
    assert len(done) > 100


def test_by_size_the_retained_bytes_stay_bounded():
    policy = CompactionPolicy(0, 1_000_000)
    done = run(policy, range(1, 2000), 10, 1000)
    compacted = 0
    for second in range(1, 2000):
        compacted = max([compacted] + [revision for at, revision in done if at == second])
        assert second * 10 * 1000 - compacted * 1000 <= 1_050_000, f"at {second} s"
    assert 20 < len(done) < 300, "in steps, not with each write"


def test_idle_history_is_compacted_once_and_then_left():
    policy = CompactionPolicy(300, 0)
    policy.due(0, 50, 5000)
    assert policy.due(300, 50, 5000) == 50
    assert {policy.due(float(second), 50, 5000) for second in range(301, 3000)} <= {0, 50}


def test_without_bounds_nothing_is_compacted():
    assert run(CompactionPolicy(0, 0), range(1, 2000), 100, 1000) == []


def test_memory_of_samples_is_bounded():
    policy = CompactionPolicy(300, 1 << 20)
    for tick in range(100_000):
        policy.due(tick / 10, tick * 100, tick * 10_000)
    assert len(policy._samples) < 200


def test_what_is_remembered_stays_bounded_whatever_is_switched_off():
    for policy in (CompactionPolicy(0, 1_000_000), CompactionPolicy(0, 0), CompactionPolicy(300, 0)):
        for tick in range(20_000):
            policy.due(tick / 10, tick, tick)
        assert len(policy._samples) < 200
