"""What the commands on a store print, and how their flags are taken."""

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from minikube_py.cli import flags, store, store_hash, store_status
from minikube_py.cli import main as cli
from minikube_py.cli.main import Parser
from minikube_py.cli.table import age_text, size_text, table
from minikube_py.control_plane import store_admin
from minikube_py.control_plane.store_admin import MemberHash, MemberReport, StoreAdmin, leader_of


def status(id: int, role: str, **parts: Any) -> dict[str, Any]:
    member = {"id": id, "name": f"store-{id}", "peer": "", "client": f"h{id}:2390", "learner": False}
    return {
        "member": {**member, **parts.pop("member", {})},
        "cluster": 0xC1,
        "role": role,
        "term": 4,
        "leader": 1,
        "commit": 12345,
        "applied": 12345,
        "last_index": 12346,
        "revision": 900,
        "compact_revision": 100,
        "size_bytes": 3 << 20,
        "snapshot_index": 12000,
        "snapshot_size_bytes": 1 << 20,
        "snapshot_age_s": 75.0,
        "members": [{**member, "id": each, "name": f"store-{each}", "client": f"h{each}:2390"} for each in (1, 2, 3)],
        "expected": [],
        "peers": [{"id": 2, "match": 5}] if role == "LEADER" else [],
        "version": "0.1.0",
        **parts,
    }


REPORTS = [
    MemberReport("h1:2390", "store-1", 1, status(1, "LEADER")),
    MemberReport("h2:2390", "store-2", 2, status(2, "FOLLOWER", applied=12300, snapshot_index=0, snapshot_age_s=None)),
    MemberReport(
        "h3:2390", "store-3", 3, status(3, "FOLLOWER", member={"learner": True}, snapshot_age_s=None, commit=12000)
    ),
    MemberReport("h4:2390", "store-4", 0xABC, None, "connection refused"),
    MemberReport("", "store-5", error="not started yet", expected=True),
]


def test_the_table_of_members() -> None:
    assert store_status.as_table(REPORTS).splitlines() == [
        "MEMBER   ID   ROLE       READY  TERM  COMMIT  APPLIED  LAG  DB SIZE  SNAPSHOT AGE  ADDRESS",
        "store-1  1    leader     yes       4  12,345   12,345    0  3.0 MiB           75s  h1:2390",
        "store-2  2    follower   yes       4  12,345   12,300   45  3.0 MiB             -  h2:2390",
        "store-3  3    learner    yes       4  12,000   12,345    0  3.0 MiB       earlier  h3:2390",
        "store-4  abc  no answer  -         -       -        -    -        -             -  h4:2390",
        "store-5  -    expected   -         -       -        -    -        -             -  -",
    ]


def test_the_same_as_json() -> None:
    told = json.loads(json.dumps(store_status.as_json(REPORTS, leader_of(REPORTS))))
    assert told["leader"] == "1"
    first, second, third, fourth, fifth = told["members"]
    assert (first["role"], first["lag"], first["id"], first["cluster"]) == ("leader", 0, "1", "c1")
    assert first["peers"] == [{"id": "2", "match": 5}]
    assert (second["lag"], third["role"], third["learner"]) == (45, "learner", True)
    assert (fourth["role"], fourth["error"], fourth["id"]) == ("no answer", "connection refused", "abc")
    assert (fifth["role"], fifth["name"]) == ("expected", "store-5")


@pytest.mark.parametrize(
    ("reports", "code"),
    [
        pytest.param(REPORTS[:3], 0, id="all answer"),
        pytest.param(REPORTS[:4], 1, id="one does not"),
        pytest.param([*REPORTS[:2], dataclasses.replace(REPORTS[2], unready="slow")], 1, id="one is not ready"),
        pytest.param([*REPORTS[:3], REPORTS[4]], 0, id="one is expected"),
        pytest.param([MemberReport("h", "a", 1, status(1, "FOLLOWER", leader=0))], 1, id="nobody leads"),
    ],
)
def test_exit_codes_of_status(
    reports: list[MemberReport], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Admin:
        async def status(self, *, readiness: bool) -> list[MemberReport]:
            assert readiness
            return reports

    monkeypatch.setattr(flags, "store_admin", lambda arguments: Admin())
    assert cli.main(["store", "status"]) == code
    captured = capsys.readouterr()
    assert ("store-4: connection refused" in captured.err) is (REPORTS[3] in reports)
    assert cli.main(["store", "status", "--json"]) == code
    assert len(json.loads(capsys.readouterr().out)["members"]) == len(reports)


def test_status_tells_members_of_different_clusters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = REPORTS[:2]
    assert second.status is not None
    stranger = dataclasses.replace(second, status={**second.status, "cluster": 0xD2})

    class Admin:
        async def status(self, *, readiness: bool) -> list[MemberReport]:
            return [first, stranger]

    monkeypatch.setattr(flags, "store_admin", lambda arguments: Admin())
    assert cli.main(["store", "status"]) == 1
    said = capsys.readouterr().err
    assert "the members that answer are of 2 clusters, with different data: c1: store-1; d2: store-2" in said


SILENT = MemberHash("h2:1", "store-2", 0, None, "no answer")
A, B = MemberHash("h1:1", "store-1", 900, 0xAB), MemberHash("h2:1", "store-2", 900, 0xAB)


@pytest.mark.parametrize(
    ("hashes", "code", "said"),
    [
        pytest.param([A, B], 0, "", id="alike"),
        pytest.param([A, MemberHash("h2:1", "store-2", 900, 0xCD)], 1, "they have diverged", id="not alike"),
        pytest.param([A, SILENT], 1, "store-2: no answer", id="one silent"),
        pytest.param([SILENT, SILENT], 1, "store-2: no answer", id="all silent"),
    ],
)
def test_hashes(
    hashes: list[MemberHash],
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Admin:
        async def hashes(self, revision: int) -> list[MemberHash]:
            return hashes

    monkeypatch.setattr(flags, "store_admin", lambda arguments: Admin())
    assert cli.main(["store", "hash"]) == code
    assert said in capsys.readouterr().err
    assert cli.main(["store", "hash", "--json"]) == code
    assert json.loads(capsys.readouterr().out)["alike"] is (code == 0)
    assert store_hash._text(0xAB) == "00000000000000ab"


# --- the members as they know each other ------------------------------------------------------------------------------


class Answering(StoreAdmin):
    """Members by address, without a network."""

    def __init__(self, addresses: list[str], statuses: dict[str, dict[str, Any]]) -> None:
        self.asked: list[str] = []
        self._statuses = statuses
        self._access = argparse.Namespace(addresses=[(host, 2390) for host in addresses])

    async def _report(self, address: str, readiness: bool) -> MemberReport:
        self.asked.append(address)
        found = self._statuses.get(address)
        if found is None:
            return MemberReport(address, error="refused")
        return MemberReport(address, found["member"]["name"], found["member"]["id"], found)


ALL = {f"h{id}:2390": status(id, "LEADER" if id == 1 else "FOLLOWER") for id in (1, 2, 3)}


async def test_members_that_were_not_named_are_found() -> None:
    admin = Answering(["h2"], ALL)
    assert [report.name for report in await admin.status()] == ["store-1", "store-2", "store-3"]
    assert admin.asked == ["h2:2390", "h1:2390", "h3:2390"]


async def test_a_member_that_is_down_has_the_name_the_others_know_it_by() -> None:
    admin = Answering(["h1", "h3"], {address: each for address, each in ALL.items() if address != "h3:2390"})
    reports = await admin.status()
    assert [(report.name, report.id, report.error) for report in reports] == [
        ("store-1", 1, ""), ("store-2", 2, ""), ("store-3", 3, "refused"),
    ]  # fmt: skip


async def test_an_address_of_nobody_any_more_is_left_out() -> None:
    reports = await Answering(["h1", "h9"], ALL).status()
    assert [report.name for report in reports] == ["store-1", "store-2", "store-3"]


async def test_where_nobody_answers_the_addresses_are_told() -> None:
    reports = await Answering(["h8", "h9"], {}).status()
    assert [(report.address, report.error) for report in reports] == [("h8:2390", "refused"), ("h9:2390", "refused")]
    assert leader_of(reports) is None


async def test_one_member_reached_by_two_addresses_is_one() -> None:
    reports = await Answering(["h1", "other"], {**ALL, "other:2390": ALL["h1:2390"]}).status()
    assert [report.name for report in reports] == ["store-1", "store-2", "store-3"]


async def test_the_latest_term_says_who_leads() -> None:
    stale = status(1, "LEADER", term=4, leader=1)
    later = [status(id, "LEADER" if id == 2 else "FOLLOWER", term=5, leader=2) for id in (2, 3)]
    reports = [MemberReport(f"h{each['member']['id']}", "", each["member"]["id"], each) for each in (stale, *later)]
    assert leader_of(reports) == 2


async def test_the_heir_is_the_voter_that_has_most() -> None:
    statuses = {
        "h1:2390": status(1, "LEADER"),
        "h2:2390": status(2, "FOLLOWER", last_index=10),
        "h3:2390": status(3, "FOLLOWER", last_index=20),
    }
    assert (await Answering(["h1"], statuses).heir())["name"] == "store-3"


@pytest.mark.parametrize("text", ["store-2", "2"])
async def test_members_are_found_by_name_or_id(text: str) -> None:
    assert (await Answering(["h1"], ALL).find(text))["id"] == 2
    assert store_admin.LEADER_ATTEMPTS > 1


# --- flags ------------------------------------------------------------------------------------------------------------


def options(*arguments: str) -> Any:
    parser = Parser(prog="minikube-py store", allow_abbrev=False)
    store.configure(parser)
    return store.options_of(parser.parse_args(["--data-dir", "/d", *arguments]))


INITIAL = "a=ha:2391,b=hb:2391"


@pytest.mark.parametrize(
    ("arguments", "listen", "client", "peers"),
    [
        pytest.param([], "127.0.0.1:2390", "127.0.0.1:2390", None, id="alone"),
        pytest.param(["--listen", "127.0.0.1:0"], "127.0.0.1:0", "", None, id="alone on any port"),
        pytest.param(["--listen", "0.0.0.0:99"], "0.0.0.0:99", "", None, id="alone on all addresses"),
        pytest.param(
            ["--name", "a", "--advertise", "ha", "--initial-cluster", INITIAL],
            "0.0.0.0:2390", "ha:2390", ("0.0.0.0:2391", "ha:2391"), id="in a container",
        ),
        pytest.param(
            ["--name", "b", "--listen", "127.0.0.1:5", "--initial-cluster", "a=127.0.0.1:6,b=127.0.0.1:7"],
            "127.0.0.1:5", "127.0.0.1:5", ("127.0.0.1:7", "127.0.0.1:7"), id="beside others on one host",
        ),
        pytest.param(
            ["--name", "a", "--advertise", "ha", "--listen", "0.0.0.0:1", "--listen-peers", "0.0.0.0:2"],
            "0.0.0.0:1", "ha:1", ("0.0.0.0:2", "ha:2"), id="other ports",
        ),
        pytest.param(
            ["--advertise", "x", "--advertise-client", "public:80", "--advertise-peer", "private:81"],
            "0.0.0.0:2390", "public:80", ("0.0.0.0:81", "private:81"), id="reached elsewhere",
        ),
    ],
)  # fmt: skip
def test_addresses_of_a_member(
    arguments: list[str], listen: str, client: str, peers: tuple[str, str] | None
) -> None:
    found = options("--secrets-dir", "/s", *arguments)
    assert (found.listen, found.client) == (listen, client)
    assert (found.peers and (found.peers.listen, found.peers.address)) == peers
    assert found.token_file == Path("/s/token") and found.tls.certificate == Path("/s/server.pem")
    if found.peers is not None:
        assert found.peers.token_file == Path("/s/peer-token")
        assert found.peers.authority_file == Path("/s/authority.pem")


def test_secrets_that_are_missing_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["store", "--data-dir", "/d", "--token-file", "/t"]) == cli.USAGE
    said = capsys.readouterr().err
    assert "needs --secrets-dir, or --tls-cert-file, --tls-private-key-file;" in said
    assert cli.main(["store", "--data-dir", "/d", "--token-file", "/t", "--advertise", "h"]) == cli.USAGE
    assert "--peer-token-file, --peer-cert-file, --peer-key-file, --peer-ca-file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        pytest.param(["store", "statuss"], 2, "no command 'statuss'; the commands are: run", id="no such command"),
        pytest.param(["store", "status", "--token-file", "x"], 2, "go with --endpoints", id="half of an access"),
        pytest.param(["store", "status", "--endpoints", "h:1"], 2, "needs --secrets-dir", id="the other half"),
        pytest.param(["store", "status", "--data-dir", "/nowhere"], 1, "cannot read the store access", id="absent"),
        pytest.param(["store", "member"], 2, "required: list|add|promote|remove", id="member alone"),
        pytest.param(["store", "snapshot"], 2, "required: save|verify|restore", id="snapshot alone"),
        pytest.param(["store", "hash", "--revision", "-1"], 2, "is not within 0", id="no such revision"),
        pytest.param(["store", "status", "--timeout", "soon"], 2, "write 15s, 1m30s or 500ms", id="no duration"),
        pytest.param(["scheduler", "--kubeconfig", "x", "--leader-elect=maybe"], 2, "neither true nor", id="no switch"),
        pytest.param(
            ["scheduler", "--kubeconfig", "x", "--leader-elect-renew-deadline", "20s"], 1,
            "the lease duration must be above the renew deadline", id="timings that cannot work",
        ),
        pytest.param(["up", "--members", "10"], 2, "is not within 1 to 9", id="too many members"),
    ],
)  # fmt: skip
def test_mistakes(arguments: list[str], code: int, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == code
    captured = capsys.readouterr()
    assert text in captured.err and captured.err.count("\n") == 1


@pytest.mark.parametrize("name", [*store.SUBCOMMANDS])
def test_every_subcommand_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["store", name, "--help"]) == 0
    assert f"usage: minikube-py store {name}" in capsys.readouterr().out
    assert cli.main(["store", "--help"]) == 0
    assert f"  {name} " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "seconds"), [("15s", 15.0), ("1m30s", 90.0), ("500ms", 0.5), ("1.5h", 5400.0), ("0s", 0.0)]
)
def test_durations(text: str, seconds: float) -> None:
    assert flags.duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "15", "s", "1x", "-1s", "1s2", "1 s"])
def test_no_durations(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        flags.duration_s(text)


def test_numbers_as_people_read_them() -> None:
    assert [size_text(size) for size in (0, 1023, 1024, 5 << 20, 3 << 30)] == [
        "0 B", "1023 B", "1.0 KiB", "5.0 MiB", "3.0 GiB",
    ]  # fmt: skip
    assert [age_text(age) for age in (0.4, 119, 120, 7199, 7200, 172_800)] == ["0s", "119s", "2m", "119m", "2h", "2d"]
    assert table(("A", "N"), [("x", "1"), ("yy", "10")], {"N"}) == "A    N\nx    1\nyy  10"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("1", 3_600), ("24", 86_400), ("007", 25_200), ("999999", 3_599_996_400), ("0s", 0), ("5m", 300),
     ("1h30m", 5_400), ("1.5h", 5_400), ("500ms", 0.5)],
)  # fmt: skip
def test_the_age_to_compact_is_read_as_etcd_reads_it(text: str, seconds: float) -> None:
    """Go: an integer is a number of hours, anything else a duration."""
    parser = argparse.ArgumentParser()
    store.configure(parser)
    flags = ["--auto-compaction-mode", "periodic", f"--auto-compaction-retention={text}"]
    found = parser.parse_args(["--data-dir", "d", *flags])
    assert found.auto_compaction_retention == seconds and found.auto_compaction_mode == "periodic"


@pytest.mark.parametrize(
    ("flag", "text", "told"),
    [
        ("--auto-compaction-mode", "revision", "'revision' is not supported"),
        *[("--auto-compaction-mode", text, "'periodic'") for text in ("", "Periodic", "periodic ", "rev", "1")],
        *[
            ("--auto-compaction-retention", text, "is not a duration")
            for text in ("", "-1", "-1h", "1.5", "1d", "+1", "1 h", "h", "1h x", "\u0663", "1_0", "1e3", "9999999")
        ],
    ],
)
def test_what_the_store_cannot_compact_by_is_refused_by_name(
    flag: str, text: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    store.configure(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["--data-dir", "d", f"{flag}={text}"])
    error = capsys.readouterr().err
    assert told in error and f"argument {flag}" in error
