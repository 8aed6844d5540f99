"""Tokens of service accounts: what they claim, for how long and for what they are good, and who may have them."""

from __future__ import annotations

import base64
import dataclasses
import subprocess
from pathlib import Path
from typing import Any

import orjson
import pytest
from api_core import Core
from hypothesis import given
from hypothesis import strategies as st

from minikube_py.api.errors import StatusError
from minikube_py.api.service_tokens import ISSUER, InvalidToken, SigningKey, legacy_claims
from minikube_py.apiserver.rules import AUTHENTICATED, User
from minikube_py.env import SystemClock

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
N1 = User("system:node:n1", ("system:nodes", AUTHENTICATED))
KEY = SigningKey.drawn(7)
Json = dict[str, Any]


class Ahead(SystemClock):
    """The machine's clock, and how far ahead of it it goes."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead_s = 0.0

    def wall_s(self) -> float:
        return super().wall_s() + self.ahead_s


async def served(folder: Path) -> tuple[Core, Ahead]:
    clock = Ahead()
    core = await Core(folder, clock=clock).start()
    await core.done("POST", ACCOUNTS, {"metadata": {"name": "robot"}})
    await core.done("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}})
    await core.done("POST", "/api/v1/namespaces/default/secrets", {"metadata": {"name": "s"}})
    await core.done("POST", "/api/v1/namespaces/default/pods", pod("p"))
    return core, clock


def pod(name: str, audience: str = "vault") -> Json:
    source = {"serviceAccountToken": {"path": "token", "audience": audience}}
    spec = {
        "serviceAccountName": "robot", "nodeName": "n1", "containers": [{"name": "c", "image": "x"}],
        "volumes": [{"name": "v", "projected": {"sources": [source]}}],
    }  # fmt: skip
    return {"metadata": {"name": name}, "spec": spec}


async def token_of(core: Core, user: User | None = None, **spec: Any) -> str:
    more = {} if user is None else {"user": user}
    status, answer = await core.ask("POST", f"{ACCOUNTS}/robot/token", {"spec": spec}, **more)
    assert status == 201, answer
    return str(answer["status"]["token"])


async def reviewed(core: Core, token: str, *audiences: str) -> Json:
    answer = await core.done("POST", REVIEWS, {"spec": {"token": token, "audiences": list(audiences)}})
    status: Json = answer["status"]
    return status


def claims_of(token: str) -> Json:
    part = token.split(".")[1]
    found: Json = orjson.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return found


# --- keys and signatures ----------------------------------------------------------------------------------------------

_values = st.one_of(st.text(max_size=9), st.integers(-9, 9), st.none())
_claims = st.dictionaries(st.text(max_size=5), _values, max_size=4)


@given(_claims, st.integers(0, 1 << 256))
def test_a_token_says_what_was_signed_and_the_same_claims_give_the_same_token(claims: Json, bits: int) -> None:
    key, signed = SigningKey.drawn(bits), {**claims, "iss": ISSUER}
    assert SigningKey.from_pem(key.pem).sign(signed) == key.sign(signed)
    assert key.claims(key.sign(signed)) == signed


@given(_claims, st.data())
def test_a_token_with_any_character_changed_is_no_token_or_invalid(claims: Json, data: st.DataObject) -> None:
    token = KEY.sign({**claims, "iss": ISSUER})
    # The last character of each part holds bits that stand for nothing.
    ends = {at - 1 for at, char in enumerate(f"{token}.") if char == "."}
    at = data.draw(st.sampled_from([at for at in range(len(token)) if at not in ends]))
    other = data.draw(st.sampled_from([char for char in "AZaz09-_.=é " if char != token[at]]))
    changed = token[:at] + other + token[at + 1 :]
    try:
        assert KEY.claims(changed) is None
    except InvalidToken:
        pass


def test_openssl_finds_the_signature_good_by_the_published_key(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

    token = KEY.sign({"iss": ISSUER})
    head, body, signature = token.split(".")
    (key,) = orjson.loads(KEY.keys())["keys"]
    x, y, raw = (base64.urlsafe_b64decode(text + "==") for text in (key["x"], key["y"], signature))
    assert key["kid"] == orjson.loads(base64.urlsafe_b64decode(head + "=="))["kid"]
    public = ec.EllipticCurvePublicNumbers(int.from_bytes(x), int.from_bytes(y), ec.SECP256R1()).public_key()
    pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "key").write_bytes(pem)
    (tmp_path / "signature").write_bytes(encode_dss_signature(int.from_bytes(raw[:32]), int.from_bytes(raw[32:])))
    command = ["openssl", "dgst", "-sha256", "-verify", tmp_path / "key", "-signature", tmp_path / "signature"]
    said = subprocess.run(command, input=f"{head}.{body}".encode(), capture_output=True, check=False)
    assert said.stdout == b"Verified OK\n", said


# --- what they are good for -------------------------------------------------------------------------------------------


async def test_a_token_speaks_for_its_account_until_it_ends_and_clocks_may_differ(tmp_path: Path) -> None:
    core, clock = await served(tmp_path)
    token = await token_of(core, expirationSeconds=600)
    user = (await core.api.access.authenticator.asker(f"Bearer {token}")).user
    assert user.groups == ("system:serviceaccounts", "system:serviceaccounts:default", AUTHENTICATED)
    assert user.name == "system:serviceaccount:default:robot"
    for ahead_s, good in ((-59, True), (-62, False), (659, True), (662, False)):
        clock.ahead_s = ahead_s
        status = await reviewed(core, token)
        assert status.get("authenticated", False) is good, (ahead_s, status)
    with pytest.raises(StatusError) as refused:
        await core.api.access.authenticator.asker(f"Bearer {token}")
    assert refused.value.code == 401
    await core.stop()


@pytest.mark.parametrize("kind, path", [
    ("Pod", "/api/v1/namespaces/default/pods/p?gracePeriodSeconds=0"),
    ("Secret", "/api/v1/namespaces/default/secrets/s"),
    ("Node", "/api/v1/nodes/n1"),
    ("", f"{ACCOUNTS}/robot"),
])  # fmt: skip
async def test_a_token_ends_with_what_it_is_bound_to_and_another_of_that_name_is_another(
    tmp_path: Path, kind: str, path: str
) -> None:
    core, _ = await served(tmp_path)
    names = {"Pod": "p", "Secret": "s", "Node": "n1"}
    bound = {"boundObjectRef": {"kind": kind, "apiVersion": "v1", "name": names[kind]}} if kind else {}
    token = await token_of(core, **bound)
    assert (await reviewed(core, token))["authenticated"]
    await core.done("DELETE", path)
    assert "not found" in (told := (await reviewed(core, token))["error"]) or "has been invalidated" in told
    where = {
        "Pod": ("/api/v1/namespaces/default/pods", pod("p")),
        "Secret": ("/api/v1/namespaces/default/secrets", {"metadata": {"name": "s"}}),
        "Node": ("/api/v1/nodes", {"metadata": {"name": "n1"}}),
        "": (ACCOUNTS, {"metadata": {"name": "robot"}}),
    }
    await core.done("POST", *where[kind])
    assert "does not match" in (await reviewed(core, token))["error"]
    await core.stop()


async def test_a_pod_that_is_being_deleted_keeps_its_token_for_a_minute_beyond_its_end(tmp_path: Path) -> None:
    core, clock = await served(tmp_path)
    token = await token_of(core, boundObjectRef={"kind": "Pod", "apiVersion": "v1", "name": "p"})
    await core.done("DELETE", "/api/v1/namespaces/default/pods/p?gracePeriodSeconds=30")
    assert (await reviewed(core, token))["authenticated"]
    clock.ahead_s = 88
    assert (await reviewed(core, token))["authenticated"]
    clock.ahead_s = 93
    assert "invalidated" in (await reviewed(core, token))["error"]
    await core.stop()


async def test_a_server_that_has_not_seen_the_account_yet_waits_for_its_cache(tmp_path: Path) -> None:
    core, _ = await served(tmp_path)
    token = await token_of(core)
    cache = core.api.cache
    (kind,) = (kind for kind in cache.caches if kind.plural == "serviceaccounts")
    key = kind.key("default", "robot")
    entry = cache.of(kind).entries.pop(key)

    async def comes(*_: object) -> bool:
        cache.of(kind).entries[key] = entry
        return True

    cache.wait_until = comes  # type: ignore[method-assign]
    assert (await reviewed(core, token))["authenticated"]
    await core.stop()


async def test_a_secret_s_token_is_good_while_the_secret_holds_it_and_its_use_is_noted(tmp_path: Path) -> None:
    core, clock = await served(tmp_path)
    account = await core.done("GET", f"{ACCOUNTS}/robot")
    token = core.api.accounts.key.sign(legacy_claims(account, "legacy"))
    path = "/api/v1/namespaces/default/secrets"
    assert "invalidated" in (await reviewed(core, token))["error"]
    names = {"kubernetes.io/service-account.name": "robot"}
    metadata = {"name": "legacy", "annotations": names}
    body = {"metadata": metadata, "type": "kubernetes.io/service-account-token", "stringData": {"token": token}}
    await core.done("POST", path, body)
    status = await reviewed(core, token)
    assert status["authenticated"] and "extra" not in status["user"]
    days = []
    for day in range(3):
        clock.ahead_s = day * 86400
        await reviewed(core, token)
        days.append((await core.done("GET", f"{path}/legacy"))["metadata"]["labels"])
    assert len({str(each) for each in days}) == 3
    marked = {"metadata": {"labels": {"kubernetes.io/legacy-token-invalid-since": "2026-01-01"}}}
    await core.done("PATCH", f"{path}/legacy", marked, content_type="application/merge-patch+json")
    assert "has been marked invalid" in (await reviewed(core, token))["error"]
    await core.stop()


# --- who may have one -------------------------------------------------------------------------------------------------

TOKENS_OF_NODES = {
    "of its pod": ({"audiences": ["vault"]}, ""),
    "of its pod, for nobody in particular": ({}, 'audience "" not found in pod spec volume'),
    "for an audience that the pod does not name": ({"audiences": ["x"]}, 'audience "x" not found in pod spec volume'),
    "for several audiences": ({"audiences": ["vault", "x"]}, "node may only request 0 or 1 audiences"),
    "of no pod": ({"boundObjectRef": None}, "node requested token not bound to a pod"),
    "of another pod by that name": ({"uid": "other"}, "the UID in the bound object reference (other) does not match"),
    "without a uid": ({"uid": ""}, "node requested token with a pod binding without a uid"),
}


@pytest.mark.parametrize("case", TOKENS_OF_NODES)
async def test_a_node_gets_tokens_for_its_pods_alone(tmp_path: Path, case: str) -> None:
    given, refusal = TOKENS_OF_NODES[case]
    core, _ = await served(tmp_path)
    uid = (await core.done("GET", "/api/v1/namespaces/default/pods/p"))["metadata"]["uid"]
    spec: Json = {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": given.get("uid", uid)}}
    spec |= {key: value for key, value in given.items() if key != "uid"}
    status, answer = await core.ask("POST", f"{ACCOUNTS}/robot/token", {"spec": spec}, user=N1)
    assert status == (403 if refusal else 201), answer
    assert refusal in answer.get("message", "")
    elsewhere = dataclasses.replace(N1, name="system:node:n2")
    status, answer = await core.ask("POST", f"{ACCOUNTS}/robot/token", {"spec": spec}, user=elsewhere)
    assert status == 403 and "no relationship found" in answer["message"]
    await core.stop()
