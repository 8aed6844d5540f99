"""Secrets with a certificate and its key, capacities and services: the texts are those of a live upstream, which
`tests/conformance/test_objects_vs_original.py` asks for all cases."""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Any

import pytest
from api_core import Core

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "conformance"))

from warning_cases import CAPACITIES, HINTS, MODE, SERVICES, cases

SWITCHED = "but did find a private key; PEM inputs may have been switched"
WANTED = {
    "rsa rsa": "", "rsa rsa1": "", "ec sec1": "", "ed ed": "", "chain rsa": "",
    "rsa rsa2": "tls: private key does not match public key", "ec ec384": "tls: private key does not match public key",
    "rsa ec": "tls: private key type does not match public key type", "ed hidden": "tls: failed to parse private key",
    "rsa x25519": "tls: found unknown private key type in PKCS#8 wrapping",
    "rsa dsa": "tls: failed to parse private key",
    "rsa empty": "tls: failed to find any PEM data in key input", "ec garbled": "tls: failed to parse private key",
    "text rsa": "tls: failed to find any PEM data in certificate input", "garbage rsa": "x509: malformed certificate",
    "key rsa": f"tls: failed to find certificate PEM data in certificate input, {SWITCHED}",
    "rsa certificate": "tls: found a certificate rather than a key in the PEM for the private key",
    "two rsa": 'tls: failed to find "CERTIFICATE" PEM block in certificate input after skipping PEM blocks of the '
    "following types: [A B C]",
    "rsa two": 'tls: failed to find PEM block with type ending in "PRIVATE KEY" in key input after skipping PEM blocks '
    "of the following types: [A B C]",
}  # fmt: skip


def warning(text: str) -> str:
    escaped = text.replace('"', '\\"')
    return f'299 - "{escaped}"' if text else ""


async def test_a_secret_whose_key_is_not_the_certificates_is_warned_of(core: Core) -> None:
    told = {}
    for ask in cases():
        if (name := ask.name.removeprefix("pair ")) in WANTED:
            answer = await core.respond("POST", ask.target, ask.body)
            assert answer.status == 201
            told[name] = answer.headers.get("Warning") or ""
    assert told == {name: warning(text) for name, text in WANTED.items()}


@pytest.mark.parametrize("curve", ["Ed448", "X448"])
async def test_a_key_of_a_curve_that_nobody_knows_is_warned_of(core: Core, curve: str) -> None:
    """Its length is that of another curve, which the library refuses in its own way."""
    algorithm = bytes((0x30, 5, 6, 3, 0x2B, 0x65, 0x71 if curve == "Ed448" else 0x6F))
    key = bytes((0x30, 0x2E, 2, 1, 0)) + algorithm + bytes((4, 0x22, 4, 0x20)) + b"\1" * 32
    pem = b"-----BEGIN PRIVATE KEY-----\n" + base64.encodebytes(key) + b"-----END PRIVATE KEY-----\n"
    (fits,) = [each for each in cases() if each.name == "pair ec sec1"]
    secret = {**fits.body, "data": {**fits.body["data"], "tls.key": base64.b64encode(pem).decode()}}
    answer = await core.respond("POST", fits.target, secret)
    assert answer.status == 201
    assert answer.headers.get("Warning") == warning("tls: failed to parse private key")


async def test_a_capacity_of_nodes_by_a_deprecated_label_is_warned_of(core: Core) -> None:
    old = "failure-domain.beta.kubernetes.io/zone"
    why = 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead'
    for selector, text in (
        ({"matchLabels": {old: "x"}}, f"nodeTopology.matchLabels.{old}: {why}"),
        (
            {"matchExpressions": [{"key": old, "operator": "Exists"}]},
            f"nodeTopology.matchExpressions[0].key: {old} is {why}",
        ),
        ({"matchLabels": {"zone": "x"}}, ""),
    ):  # fmt: skip
        body = {"metadata": {"name": "c"}, "storageClassName": "c", "nodeTopology": selector}
        answer = await core.respond("POST", f"{CAPACITIES}?dryRun=All", body)
        assert (answer.status, answer.headers.get("Warning") or "") == (201, warning(text))


@pytest.mark.parametrize(("hints", "mode", "fits"), [
    ("auto", "Auto", False), ("Auto", "Auto", True), ("", "x", False), (None, "x", True), ("x", None, True),
])  # fmt: skip
async def test_the_two_annotations_of_topology_must_not_differ(core: Core, hints: Any, mode: Any, fits: bool) -> None:
    given = {name: value for name, value in ((HINTS, hints), (MODE, mode)) if value is not None}
    body = {"metadata": {"name": "s", "annotations": given}, "spec": {"ports": [{"port": 80}]}}
    code, answer = await core.ask("POST", f"{SERVICES}?dryRun=All", body)
    why = f'Invalid value: "{mode}": must match annotations[{HINTS}] when both are specified'
    told = f'Service "s" is invalid: metadata.annotations[{MODE}]: {why}'
    assert (code, answer.get("message", "")) == ((201, "") if fits else (422, told))
