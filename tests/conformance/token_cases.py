"""Tokens of service accounts: requests in the order in which both servers are asked them, some of them with tokens that
the server gave before; and TokenRequests that are drawn by their schema.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import patience
from asking import Answer, Ask, Server
from drawn_objects import typed
from edges import as_json
from hypothesis.strategies import SearchStrategy

from minikube_py.api.schema import SCHEMA

NAMESPACE = "tokens"
_IN = f"/api/v1/namespaces/{NAMESPACE}"
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
CONFIGURATION, KEYS = "/.well-known/openid-configuration", "/openid/v1/jwks"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
_JWT = re.compile(rb"eyJ[\w-]+\.[\w-]*\.[\w-]*")
_OF_KEYS = (
    (re.compile(rb'"(?:RS|ES)256"'), b'"<algorithm>"'),
    (re.compile(rb'"kty":.*\}'), b'"kty":"<key>"}'),
    (re.compile(rb'"ca\.crt":"[^"]*",|,"ca\.crt":"[^"]*"'), b""),
    (re.compile(rb'("token":)"ZXlK[^"]*"'), rb'\1"<token>"'),
    (re.compile(rb"https://[\d.]+:\d+/"), b"https://<server>/"),
)
_POD = {"serviceAccountName": "robot", "nodeName": "tokens-node", "containers": [{"name": "c", "image": "x"}]}


class Step(NamedTuple):
    """`ask` may hold `@@name@@`, for the token that a step before put under that `name`. `until`: asked again until the
    answer holds this, as caches of upstream forget what is gone after a while."""

    ask: Ask
    name: str = ""
    until: bytes = b""


def _token(name: str, case: str, body: Any, account: str = "robot", **more: Any) -> Step:
    return Step(Ask(case, "POST", f"{_IN}/serviceaccounts/{account}/token", body, **more), name)


def _bound(kind: str, name: str, version: str = "v1", **more: Any) -> dict[str, Any]:
    return {"spec": {"boundObjectRef": {"kind": kind, "apiVersion": version, "name": name, **more}}}


def _review(case: str, token: str, *audiences: str, until: bytes = b"") -> Step:
    spec = {"token": token, **({"audiences": list(audiences)} if audiences else {})}
    return Step(Ask(case, "POST", REVIEWS, {"spec": spec}), until=until)


def _setup() -> Iterator[Step]:
    yield Step(Ask("setup", "POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}}))
    for name in ("robot", "other", "leaving"):
        yield Step(Ask("setup", "POST", f"{_IN}/serviceaccounts", {"metadata": {"name": name}}))
    yield Step(Ask("setup", "POST", "/api/v1/nodes", {"metadata": {"name": "tokens-node"}}))
    yield Step(Ask("setup", "POST", f"{_IN}/secrets", {"metadata": {"name": "s"}}))
    yield Step(Ask("setup", "POST", f"{_IN}/pods", {"metadata": {"name": "p"}, "spec": _POD}))


def steps() -> Iterator[Step]:
    yield from _setup()
    yield _token("plain", "asked", {})
    for seconds in (0, 1, -1, 599, 600, 3607, 1 << 32, (1 << 32) + 1):
        yield _token("", f"for {seconds} s", {"spec": {"expirationSeconds": seconds}})
    for metadata in ({"name": "x"}, {"namespace": "x"}, {"uid": "x"}, {"name": "robot", "namespace": NAMESPACE}):
        yield _token("", "metadata", {"metadata": metadata})
    yield _token("", "absent", {}, "nobody")
    yield Step(Ask("absent", "POST", "/api/v1/namespaces/nowhere/serviceaccounts/robot/token", {}))
    for kind, name, version in (
        ("Pod", "p", "v1"), ("Pod", "x", "v1"), ("Pod", "p", "a/b/c"), ("Pod", "p", "v2"), ("Pod", "p", "apps/v1"),
        ("Secret", "s", "v1"), ("Secret", "", "v1"), ("Node", "tokens-node", "v1"), ("Node", "x", "v1"),
        ("Foo", "p", "v1"), ("", "", ""), ("ConfigMap", "p", "/"), ("pod", "p", "v1"),
    ):  # fmt: skip
        yield _token(f"{kind} {name}", f"bound to {kind} {name} {version}", _bound(kind, name, version))
    yield _token("", "of a pod of another account", _bound("Pod", "p"), "other")
    for kind, name in (("Pod", "p"), ("Secret", "s"), ("Node", "tokens-node")):
        yield _token("", f"{kind} by another uid", _bound(kind, name, uid="x"))
    extended = _bound("Pod", "p")
    yield _token("year", "a year", {"spec": {**extended["spec"], "expirationSeconds": 3607}})
    yield _token("", "no year", {"spec": {**extended["spec"], "expirationSeconds": 3607, "audiences": ["x"]}})
    yield _token("vault", "for others", {"spec": {"audiences": ["vault", "b"]}})
    yield _token("both", "for both", {"spec": {"audiences": ["vault", "https://kubernetes.default.svc"]}})
    yield _token("", "as a table", {}, accept=TABLE)
    yield _token("", "as yaml", b"spec: {expirationSeconds: 700}", content_type="application/yaml")
    for method in ("GET", "PUT", "DELETE"):
        yield Step(Ask("method", method, f"{_IN}/serviceaccounts/robot/token", None if method == "GET" else {}))
    yield from _reviewed()
    yield from _forged()
    yield from _used()
    yield from _published()
    yield from _ended()


def _reviewed() -> Iterator[Step]:
    for name in ("plain", "Secret s", "Node tokens-node", "Pod p", "year", "vault", "both"):
        yield _review(name, f"@@{name}@@")
        yield _review(f"{name} for vault", f"@@{name}@@", "vault")
        yield _review(f"{name} for both", f"@@{name}@@", "x", "vault", "https://kubernetes.default.svc")
    yield _review("of nobody", "abc")
    yield _review("three parts", "a.b.c")
    yield _review("empty", "")
    yield _review("blank", " ")
    yield Step(Ask("no spec", "POST", REVIEWS, {}))
    yield Step(Ask("method", "GET", REVIEWS))


def _forged() -> Iterator[Step]:
    for how in ("no signature", "another kid", "no algorithm", "another signature", "an end", "another issuer"):
        yield _review(how, f"@@plain|{how}@@")


def _used() -> Iterator[Step]:
    for name in ("plain", "Pod p", "Node tokens-node", "Secret s", "vault"):
        yield Step(Ask(f"who, {name}", "POST", WHO, {}, token=f"@@{name}@@"))
        yield Step(Ask(f"reads, {name}", "GET", f"{_IN}/pods", token=f"@@{name}@@"))
    yield Step(Ask("keys", "GET", CONFIGURATION, token="@@plain@@"))
    yield Step(Ask("keys", "GET", CONFIGURATION, token="abc"))
    yield Step(Ask("keys", "GET", CONFIGURATION, token=""))


def _published() -> Iterator[Step]:
    for path in (CONFIGURATION, KEYS):
        for accept in ("application/json", "*/*", "application/jwk-set+json", "text/plain", "application/yaml"):
            yield Step(Ask("discovery", "GET", path, accept=accept))
        yield Step(Ask("discovery", "POST", path, {}))
        yield Step(Ask("discovery", "GET", f"{path}/", accept="*/*"))
        yield Step(Ask("discovery", "GET", f"{path}/x", accept="*/*"))


def _ended() -> Iterator[Step]:
    """None of these tokens was shown before: upstream remembers for some seconds what was good."""
    for kind, name, path in (
        ("Secret", "s", f"{_IN}/secrets/s"),
        ("Pod", "p", f"{_IN}/pods/p?gracePeriodSeconds=0"),
        ("Node", "tokens-node", "/api/v1/nodes/tokens-node"),
    ):
        yield _token(f"late {kind}", "late", _bound(kind, name))
        yield Step(Ask("its end", "DELETE", path))
        yield _review(f"late {kind}", f"@@late {kind}@@", until=b"invalidated")
    yield _token("leaving", "late", {}, "leaving")
    yield Step(Ask("its end", "DELETE", f"{_IN}/serviceaccounts/leaving"))
    yield _review("leaving", "@@leaving@@", until=b"not found")
    yield Step(Ask("leaving", "GET", f"{_IN}/pods", token="@@leaving@@"))


def drawn() -> SearchStrategy[Ask]:
    """TokenRequests by their schema."""
    request = SCHEMA.kind("authentication.k8s.io", "v1", "TokenRequest")
    assert request is not None
    return typed(request.fields["spec"].type).map(
        lambda spec: Ask("drawn", "POST", f"{_IN}/serviceaccounts/robot/token", as_json({"spec": spec}))
    )


def secrets() -> Iterator[Step]:
    """Secrets that hold tokens, beside the controller that fills and deletes them."""
    path = f"{_IN}/secrets"
    yield Step(Ask("setup", "POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}}))
    for name in ("robot", "leaving"):
        account = {"metadata": {"name": name}, "secrets": [{"name": name}, {"name": "x"}]}
        yield Step(Ask("setup", "POST", f"{_IN}/serviceaccounts", account))
    for name, account, data in (
        ("robot", "robot", {}), ("named", "robot", {"namespace": "eA=="}), ("leaving", "leaving", {"more": "eA=="}),
    ):  # fmt: skip
        yield Step(Ask("made", "POST", path, _secret(name, account, data)))
        yield Step(Ask("filled", "GET", f"{path}/{name}"), name, until=b'"token"')
        yield _review("filled", f"@@{name}@@")
    yield Step(Ask("used", "GET", f"{path}/robot"), until=b"last-used")
    yield Step(Ask("who", "POST", WHO, {}, token="@@robot@@"))
    yield Step(Ask("of nobody", "POST", path, _secret("nobody", "nobody", {})))
    yield Step(Ask("of nobody", "GET", f"{path}/nobody"), until=b"not found")
    other = _secret("another", "robot", {}, **{"kubernetes.io/service-account.uid": "x"})
    yield Step(Ask("by another uid", "POST", path, other))
    yield Step(Ask("by another uid", "GET", f"{path}/another"), until=b"not found")
    yield Step(Ask("emptied", "PATCH", f"{path}/named", {"data": {"token": None}}, "application/merge-patch+json"))
    yield Step(Ask("filled again", "GET", f"{path}/named"), until=b'"token"')
    yield Step(Ask("gone", "DELETE", f"{path}/robot"))
    yield Step(Ask("no longer referred to", "GET", f"{_IN}/serviceaccounts/robot"), until=b'"secrets":[{"name":"x"}]')
    yield Step(Ask("gone", "DELETE", f"{_IN}/serviceaccounts/leaving"))
    yield Step(Ask("gone with its account", "GET", f"{path}/leaving"), until=b"not found")


def _secret(name: str, account: str, data: dict[str, str], **more: str) -> dict[str, Any]:
    metadata = {"name": name, "annotations": {"kubernetes.io/service-account.name": account, **more}}
    return {"metadata": metadata, "type": "kubernetes.io/service-account-token", "data": data}


# --- asking -----------------------------------------------------------------------------------------------------------


class Asker:
    """One server, and the tokens that it gave."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._tokens: dict[str, str] = {}

    def ask(self, step: Step) -> Answer:
        ask = replace(step.ask, token=self._filled(step.ask.token) if step.ask.token else step.ask.token)
        if step.ask.body is not None and not isinstance(step.ask.body, bytes):
            ask = replace(ask, body=self._filled(json.dumps(step.ask.body)))
        answers = [self._server.ask(ask)]

        def says() -> bool:
            if step.until not in answers[-1].body:
                answers.append(self._server.ask(ask))
            return step.until in answers[-1].body

        patience.eventually(says, f"{step.ask.name}: {step.until!r}")
        if step.name and answers[-1].code in (200, 201):
            found = json.loads(answers[-1].body)
            given = found["status"]["token"] if "status" in found else base64.b64decode(found["data"]["token"]).decode()
            self._tokens[step.name] = given
        return readable(answers[-1])

    def _filled(self, text: str) -> str:
        return re.sub(r"@@([^@|]*)(?:\|([^@]*))?@@", lambda match: self._token(match[1], match[2]), text)

    def _token(self, name: str, how: str | None) -> str:
        token = self._tokens[name]
        head, claims, signature = token.split(".")
        forged = {
            "no signature": f"{head}.{claims}.",
            "another kid": f"{_encoded(json.dumps({'alg': 'RS256', 'kid': 'x'}))}.{claims}.{signature}",
            "no algorithm": f"{_encoded(json.dumps({'alg': 'none'}))}.{claims}.{signature}",
            "another signature": f"{head}.{claims}.{signature[:4]}AAAA{signature[8:]}",
            "an end": f"{token}.x",
            "another issuer": f"{head}.{_encoded(json.dumps({'iss': 'x'}))}.{signature}",
        }
        return forged[how] if how else token


def _encoded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def readable(answer: Answer) -> Answer:
    """With the claims of tokens in their place, their times as seconds from the first; and with keys left out."""
    body = _JWT.sub(_claims, answer.body)
    for pattern, name in _OF_KEYS:
        body = pattern.sub(name, body)
    return answer._replace(body=body)


def _claims(match: re.Match[bytes]) -> bytes:
    part = match[0].split(b".")[1]
    try:
        claims = json.loads(base64.urlsafe_b64decode(part + b"=="))
        start = claims["iat"]
    except (ValueError, KeyError):
        return b"<token>"
    for name in ("exp", "nbf", "iat"):
        claims[name] -= start
    private = claims["kubernetes.io"]
    if "warnafter" in private:
        private["warnafter"] -= start
    # Within a string.
    return json.dumps(json.dumps(claims))[1:-1].encode()
