"""How long requests for certificates stay, and certificates last: the cases of upstream's `cleaner_test.go` and
`authority_test.go`, and laws beside them."""

from __future__ import annotations

import base64
import datetime
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from minikube_py.api.meta import timestamp
from minikube_py.controllers.certificate_requests import is_over
from minikube_py.controllers.certificate_signing import LIFE, CannotSign, term

NOW_S = 1_700_000_000.0
HOUR_S = 3600.0
KEY = ec.derive_private_key(7, ec.SECP256R1())


def certificate(left_s: float) -> str:
    ends = datetime.datetime.fromtimestamp(NOW_S + left_s, datetime.UTC)
    built = x509.CertificateBuilder().subject_name(x509.Name([])).issuer_name(x509.Name([])).serial_number(1)
    built = built.public_key(KEY.public_key()).not_valid_before(ends - datetime.timedelta(days=900))
    pem = built.not_valid_after(ends).sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return base64.b64encode(pem).decode()


GOOD, EXPIRED = certificate(48 * HOUR_S), certificate(-60)


def request(created_ago_s: float, kind: str = "", ago_s: float = 0, held: str = "") -> dict[str, Any]:
    conditions = [{"type": kind, "lastUpdateTime": timestamp(NOW_S - ago_s)}] if kind else []
    created = timestamp(NOW_S - created_ago_s)
    return {"metadata": {"creationTimestamp": created}, "status": {"conditions": conditions, "certificate": held}}


@pytest.mark.parametrize(
    ("asked", "over"),
    [
        (request(60, "Approved", 60, GOOD), False),
        (request(2 * HOUR_S, "Approved", 30 * 60), False),
        (request(2 * HOUR_S, "Approved", 1.5 * HOUR_S, GOOD), True),
        (request(60, "Denied", 60), False),
        (request(2 * HOUR_S, "Denied", 1.5 * HOUR_S), True),
        (request(60), False),
        (request(25 * HOUR_S), True),
        (request(60, "Approved", 60), False),
        (request(26 * HOUR_S, "Approved", 25 * HOUR_S), True),
        (request(2 * HOUR_S, "Approved", 1.5 * HOUR_S), False),
        (request(60, "Approved", 60, EXPIRED), True),
        (request(60, "Failed", 60), False),
        (request(2 * HOUR_S, "Failed", 1.5 * HOUR_S), True),
    ],
)
def test_requests_go_when_nobody_needs_them(asked: dict[str, Any], over: bool) -> None:
    assert is_over(asked, NOW_S) is over


_ages_s = st.floats(0, 50 * HOUR_S)


_kinds = st.sampled_from(["", "Approved", "Denied", "Failed", "Odd"])


@given(_ages_s, _kinds, _ages_s, st.sampled_from(["", GOOD, EXPIRED]), _ages_s)
def test_what_is_over_stays_so(created_ago_s: float, kind: str, ago_s: float, held: str, later_s: float) -> None:
    asked = request(created_ago_s, kind, ago_s, held)
    assert not is_over(asked, NOW_S) or is_over(asked, NOW_S + later_s)


NOW = datetime.datetime.fromtimestamp(NOW_S, datetime.UTC)
MINUTE = datetime.timedelta(minutes=1)


@pytest.mark.parametrize(
    ("asked_s", "authority_ends", "ends"),
    [
        (3600, 24 * 60, 60),
        (60, 24 * 60, 10),
        (12 * 3600, 24 * 60, 12 * 60 - 5),
        (24 * 3600, 2 * 24 * 60, 24 * 60 - 5),
        (48 * 3600, 24 * 60, 24 * 60),
        (None, 2 * 365 * 24 * 60, 365 * 24 * 60 - 5),
    ],
)
def test_how_long_a_certificate_is_good(asked_s: int | None, authority_ends: int, ends: int) -> None:
    assert term(asked_s, NOW, NOW + authority_ends * MINUTE) == (NOW - 5 * MINUTE, NOW + ends * MINUTE)


@pytest.mark.parametrize(("authority_ends", "told"), [(-5, "the signer has expired"), (0, "expired in the past")])
def test_an_authority_that_has_ended_signs_nothing(authority_ends: int, told: str) -> None:
    with pytest.raises(CannotSign, match=told):
        term(3600, NOW, NOW + authority_ends * MINUTE)


@given(st.none() | st.integers(-(2**31), 2**31 - 1), st.integers(1, 20 * 365 * 24 * 60))
def test_no_certificate_outlives_its_authority_or_a_year(asked_s: int | None, authority_ends: int) -> None:
    found = term(asked_s, NOW, NOW + authority_ends * MINUTE)
    assert found.begins < NOW < found.ends <= min(NOW + authority_ends * MINUTE, NOW + LIFE)
    assert asked_s is None or asked_s > 600 or found.ends <= NOW + 10 * MINUTE
