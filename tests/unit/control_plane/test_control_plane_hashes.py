"""What `store hash` says of members whose revisions cannot both be right."""

from __future__ import annotations

import pytest

from minikube_py.control_plane.store_admin import MemberHash, MemberReport, compared

AT = [
    ([(262, 260), (262, 175), (262, 260)], {1}),
    ([(262, 175), (262, 260), (262, 260)], {0}),
    ([(270, 175), (262, 260), (255, 254)], {0}),
    # Whoever has applied less may be at any earlier revision.
    ([(262, 260), (180, 175), (262, 260)], set()),
    ([(262, 260), (265, 260), (270, 264)], set()),
    ([(262, 260), None, (262, 260)], set()),
]


@pytest.mark.parametrize(("at", "odd"), AT)
def test_a_member_that_is_behind_at_the_same_entry_has_no_hash_that_counts(
    at: list[tuple[int, int] | None], odd: set[int]
) -> None:
    reports = [
        MemberReport(f"h:{place}", f"m{place}", place, each and {"applied": each[0], "revision": each[1]})
        for place, each in enumerate(at)
    ]
    hashes = [MemberHash(each.address, each.name, 175, 0xAB if each.status else None) for each in reports]
    found = compared(reports, hashes)
    assert {place for place, each in enumerate(found) if each != hashes[place]} == odd
    for place in odd:
        assert found[place].hash is None
        assert "it is at revision 175 after entry" in found[place].error and "they have diverged" in found[place].error
