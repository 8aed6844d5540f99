"""Admission beside upstream: one webhook server for both, and the same writes on both, one after the other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import address_cases
import authorizer_cases
import certificate_cases
import judging
import mutation_cases
import patience
import pod_security_cases
import policy_cases
import pytest
import webhook_cases
from asking import Answer, Ask, Server
from webhook_server import Json, serving

pytestmark = pytest.mark.original
_MOVING = frozenset(
    ("creationTimestamp", "managedFields", "time", "deletionTimestamp", "startTime", "lastTransitionTime")
)  # fmt: skip
_NAMED = frozenset(("uid", "resourceVersion"))
"""Compared is whether there is one: objects that mutating webhooks get may not have theirs yet."""
_GENERATED = re.compile(r"^g-[a-z0-9]{5}$")
_UID = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def _settled(value: Any) -> Any:
    """Without what differs from server to server, and from one moment to the next."""
    if isinstance(value, dict):
        kept = {name: each for name, each in value.items() if name not in _MOVING}
        return {name: bool(each) if name in _NAMED else _settled(each) for name, each in kept.items()}
    if isinstance(value, str):
        return _GENERATED.sub("g-", value)
    return [_settled(each) for each in value] if isinstance(value, list) else value


def _unsided(answer: Answer) -> Answer:
    """Both sides' webhooks are at paths of the same length."""
    return answer._replace(body=_UID.sub(b"<uid>", answer.body.replace(b"/mine/", b"/them/")))


def _asked(sent: dict[str, list[Json]]) -> dict[str, list[Any]]:
    """What each webhook was sent; twice the same in a row counts once: a write on a stale state is worked out again."""
    found: dict[str, list[Any]] = {}
    for path, reviews in sorted(sent.items()):
        settled = [_settled(each) for each in reviews] if "probe" not in path else []
        found[path] = [each for i, each in enumerate(settled) if i == 0 or each != settled[i - 1]]
    return found


def _differences(theirs: Any, mine: Any, path: str) -> list[str]:
    if isinstance(theirs, dict) and isinstance(mine, dict):
        names = sorted({*theirs, *mine})
        pairs = [(theirs.get(name, "absent"), mine.get(name, "absent"), f"{path}.{name}") for name in names]
    elif isinstance(theirs, list) and isinstance(mine, list) and len(theirs) == len(mine):
        pairs = [(x, y, f"{path}[{i}]") for i, (x, y) in enumerate(zip(theirs, mine, strict=True))]
    else:
        return [] if theirs == mine else [f"{path}\n  upstream: {theirs!r:.400}\n  ours:     {mine!r:.400}"]
    return [found for pair in pairs for found in _differences(*pair)]


def _says(server: Server, ask: Ask, word: bytes) -> bool:
    return word in server.ask(ask).body


def _refused(server: Server, ask: Ask) -> bool:
    return b"h2.zz-probe" in server.ask(ask).body


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Server, Server]]:
    """Upstream and ours."""
    with judging.both() as found:
        yield found


@pytest.mark.timeout(400)
def test_webhooks_are_asked_and_heeded_as_upstream_does(servers: tuple[Server, Server], tmp_path: Path) -> None:
    report = judging.Report()
    cases = webhook_cases.cases()
    theirs, mine = servers
    with serving(tmp_path) as webhooks:
        for ask in webhook_cases.setup():
            report.take(ask, theirs.ask(ask), mine.ask(ask))
        for server, side in ((theirs, "them"), (mine, "mine")):
            for case in cases:
                for ask in webhook_cases.configurations(case, webhooks, side):
                    answer = server.ask(ask)
                    assert answer.code == 201, answer
            for ask in webhook_cases.known():
                patience.eventually(partial(_refused, server, ask), "admission knows the webhooks")
        for case in cases:
            for ask in case.asks:
                report.take(ask, _unsided(theirs.ask(ask)), _unsided(mine.ask(ask)))
        expected, found = _asked(webhooks.sent["them"]), _asked(webhooks.sent["mine"])
    print(report.counts())
    assert not report.findings, f"{report.text()}\n{report.counts()}"
    assert {path: len(each) for path, each in found.items()} == {path: len(each) for path, each in expected.items()}
    wrong = [each for path in expected for each in _differences(expected[path], found[path], path)]
    assert not wrong, "\n".join(wrong[:40])
    assert len(expected) > 100


@pytest.mark.timeout(400)
def test_pods_are_held_to_the_standards_of_their_namespaces_as_upstream_does(servers: tuple[Server, Server]) -> None:
    report = judging.Report()
    theirs, mine = servers

    def take(asks: Iterable[Ask]) -> None:
        for ask in asks:
            report.take(ask, theirs.ask(ask), mine.ask(ask))

    take(pod_security_cases.setup("secure"))
    for server in (theirs, mine):
        for ask, word in pod_security_cases.known("secure"):
            patience.eventually(partial(_says, server, ask, word), "admission knows the namespaces")
    take(pod_security_cases.cases("secure"))
    relabelled = list(pod_security_cases.relabelled("secure"))
    # Upstream looks at the pods that its informers know.
    for server in (theirs, mine):
        patience.eventually(partial(_knows_pods, server, relabelled[0]), "admission knows the pods")
    take(relabelled)
    for server in (theirs, mine):
        for ask, word in pod_security_cases.known_change("secure"):
            patience.eventually(partial(_says, server, ask, word), "admission knows the new label")
    take(pod_security_cases.changed("secure"))
    print(report.counts())
    assert not report.findings, f"{report.text()}\n{report.counts()}"


def _knows_pods(server: Server, ask: Ask) -> bool:
    return any("p4 (and 1 other pod)" in each for each in server.ask(ask).headers.get("warning", ()))


@pytest.mark.timeout(400)
def test_policies_hold_writes_as_upstream_does(servers: tuple[Server, Server]) -> None:
    report = judging.Report()
    theirs, mine = servers

    def take(asks: Iterable[Ask]) -> None:
        for ask in asks:
            report.take(ask, theirs.ask(ask), mine.ask(ask))

    take(policy_cases.setup())
    take(policy_cases.referring())
    take(policy_cases.writes())
    for server in servers:
        patience.eventually(partial(_says, server, *policy_cases.may_write()), "authorization knows bob")
    take(policy_cases.referred())
    take(authorizer_cases.setup(policy_cases.NAMESPACE))
    known = authorizer_cases.known(policy_cases.NAMESPACE)
    for server in servers:
        patience.eventually(partial(_says, server, *known), "authorization knows the role")
    _take_cases(policy_cases, servers, report)


def _take_cases(module: ModuleType, servers: tuple[Server, Server], report: judging.Report) -> None:
    """All cases of policies at once, once both sides know of them."""
    theirs, mine = servers

    def take(asks: Iterable[Ask]) -> None:
        for ask in asks:
            report.take(ask, theirs.ask(ask), mine.ask(ask))

    cases = module.cases()
    for case in (*cases, module.PROBE):
        take(module.configurations(case))
    for server in servers:
        patience.eventually(partial(_says, server, *module.known()), "admission knows the policies")
    for case in cases:
        take(case.asks)
    print(report.counts())
    assert not report.findings, f"{report.text()}\n{report.counts()}"


@pytest.mark.timeout(400)
def test_policies_change_writes_as_upstream_does(servers: tuple[Server, Server]) -> None:
    report = judging.Report()
    theirs, mine = servers
    for ask in (*mutation_cases.setup(), *mutation_cases.writes()):
        report.take(ask, theirs.ask(ask), mine.ask(ask))
    _take_cases(mutation_cases, servers, report)


@pytest.mark.timeout(400)
def test_requests_for_certificates_are_approved_and_signed_as_upstream_does(servers: tuple[Server, Server]) -> None:
    report = judging.Report()
    theirs, mine = servers

    def take(asks: Iterable[Ask]) -> None:
        for ask in asks:
            report.take(ask, theirs.ask(ask), mine.ask(ask))

    take(certificate_cases.setup())
    take(certificate_cases.asked())
    take(certificate_cases.decided())
    for server in servers:
        patience.eventually(partial(_says, server, *certificate_cases.known()), "authorization knows bob")
    take(certificate_cases.allowed())
    print(report.counts())
    assert not report.findings, f"{report.text()}\n{report.counts()}"


@pytest.mark.timeout(400)
def test_services_get_addresses_of_the_networks_that_there_are_as_upstream_does(servers: tuple[Server, Server]) -> None:
    report = judging.Report()
    theirs, mine = servers

    def take(asks: Iterable[Ask]) -> None:
        for ask in asks:
            report.take(ask, theirs.ask(ask), mine.ask(ask))

    take(address_cases.kinds())
    take([Ask("more", "POST", address_cases.CIDRS, address_cases.MORE)])
    for server in servers:
        patience.eventually(partial(_is_code, server, 201), "allocators know the network")
    take(address_cases.services())
    for server in servers:
        patience.eventually(partial(_is_code, server, 422), "allocators know that the network is not ready")
    take([address_cases.KNOWN])
    print(report.counts())
    assert not report.findings, f"{report.text()}\n{report.counts()}"


def _is_code(server: Server, code: int) -> bool:
    """Asked in earnest: a dry run goes to any one of upstream's allocators."""
    found = server.ask(address_cases.KNOWN).code
    if found == 201:
        server.ask(address_cases.GONE)
    return found == code
