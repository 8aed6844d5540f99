"""How long requests for certificates stay: the cases of upstream's `cleaner_test.go`, and laws beside them."""

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
