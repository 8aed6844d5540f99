"""`minikube-py index`: what the commands print, which API server they ask, and how wrong usage is reported."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from minikube_py.cli import index, index_create, index_explain, index_list, index_stats, main
from minikube_py.control_plane.errors import SetupError


def item(state: str = "ready", reason: str = "", **more: Any) -> dict[str, Any]:
    status = {
        "state": state, "reason": reason, "progress": 0.4, "rows": 100_000, "sizeBytes": 3 << 20,
        "bytesPerRevision": 212.4, "queries": 12, "hits": 9,
    }  # fmt: skip
    return {
        "name": "fits",
        "on": "nodes",
        "fields": ["free.cpu", "pool"],
        "structure": "max-tree",
        "options": {},
        "memoryLimitBytes": 64 << 20,
        "declares": [],
        "sums": [],
        "typed": {
            "fields": ["free.cpu", 'pool=metadata.labels["pool"]:string'],
            "kinds": {"free.cpu": "quantity", "pool": "string"},
            "sums": [],
        },
        "status": status,
        **more,
    }


@pytest.mark.parametrize(
    ("state", "reason", "text"),
    [
        ("ready", "", "ready"),
        ("building", "", "building (40%)"),
        ("degraded", "65 MiB of 64 MiB", "degraded (65 MiB of 64 MiB)"),
    ],
)
def test_created(state: str, reason: str, text: str) -> None:
    assert index_create.told(item(state, reason)).splitlines() == [
        f"index fits on nodes over free.cpu, pool in max-tree: {text}",
        "next:",
        "  minikube-py index explain 'free.cpu>=1' --on nodes",
        "  kubectl get nodes --field-selector 'free.cpu>=1'",
    ]


@pytest.mark.parametrize(
    ("kind", "question"),
    [("quantity", "f>=1"), ("int", "f>=1"), ("time", "f<2026-01-31T12:00:00Z"), ("string", "f=x")],
)
def test_a_question_to_type_next(kind: str, question: str) -> None:
    assert index_create.question_of("f", item(typed={"kinds": {"f": kind}})) == question


def test_listed() -> None:
    assert index_list.told([item()]).splitlines() == [
        "NAME  ON     FIELDS         STRUCTURE  STATE     ROWS     SIZE  ANSWERED",
        "fits  nodes  free.cpu,pool  max-tree   ready  100,000  3.0 MiB         9",
        "next:",
        "  minikube-py index stats fits",
    ]


def test_stats() -> None:
    assert index_stats.told([item("building")]).splitlines() == [
        "NAME  STATE              ROWS     SIZE     LIMIT  BYTES/REV  ASKED  ANSWERED",
        "fits  building (40%)  100,000  3.0 MiB  64.0 MiB        212     12         9",
    ]


def test_stats_of_one() -> None:
    sums = ["used=pods:spec.nodeName:count@1"]
    typed = {**item()["typed"], "sums": sums}
    assert index_stats.told_of(item(options={"visits": 300}, typed=typed)).splitlines() == [
        "NAME       fits",
        "ON         nodes",
        "STRUCTURE  max-tree visits=300",
        'FIELDS     free.cpu, pool=metadata.labels["pool"]:string',
        "SUMS       used=pods:spec.nodeName:count@1",
        "STATE      ready",
        "ROWS       100,000",
        "SIZE       3.0 MiB",
        "LIMIT      64.0 MiB",
        "BYTES/REV  212",
        "ASKED      12",
        "ANSWERED   9",
        "next:",
        "  minikube-py index explain 'free.cpu>=1' --on nodes",
    ]


@pytest.mark.parametrize("told", [index_list.told, index_stats.told])
def test_no_index_says_how_to_make_one(told: Any) -> None:
    assert told([]).splitlines() == [
        "no index is declared",
        "next:",
        "  minikube-py index create fits --on nodes --fields free.cpu,free.memory",
    ]


def choice(name: str, structure: str, taken_us: float, **more: Any) -> dict[str, Any]:
    zero = dict.fromkeys(("found", "rowsExamined", "shardsExamined", "shardsPruned", "falsePositives"), 0)
    return {
        "name": name, "structure": structure, "estimatedUs": 4.0, "takenUs": taken_us, **zero, "objectsDecoded": 0,
        "reason": "", **more,
    }  # fmt: skip


EXPLAINED: dict[str, Any] = {
    "resource": "nodes",
    "where": "free.cpu>=4,free.cpu<=8",
    "comparisons": [
        {"field": "free.cpu", "op": ">=", "values": ["4"]},
        {"field": "free.cpu", "op": "<=", "values": ["8"]},
    ],
    "limit": 10,
    "order": "KEY",
    "revision": 42,
    "rows": 100_000,
    "share": 0.125,
    "listsAsk": "store",
    "chosen": choice("fits", "max-tree", 5.25, found=10, rowsExamined=31, shardsExamined=2, falsePositives=1),
    "others": [
        choice("", "columns", 1234.5, found=10, rowsExamined=100_000),
        choice("half", "bitmaps", -1.0, reason="building (40%)", estimatedUs=-1.0),
    ],
}


def test_explained() -> None:
    assert index_explain.told(EXPLAINED).splitlines() == [
        "free.cpu>=4,free.cpu<=8 on nodes, the first 10, at revision 42: 12.5% of 100,000 expected to match",
        "   INDEX  STRUCTURE    TOOK  EXPECTED  FOUND     ROWS  SHARDS  PRUNED  FALSE  DECODED  NOTE",
        "*  fits   max-tree   5.2 us    4.0 us     10       31       2       0      1        0",
        "   -      columns    1.2 ms    4.0 us     10  100,000       0       0      0        0",
        "   half   bitmaps         -         -      -        -       -       -      -        -  building (40%)",
        "next:",
        "  kubectl get nodes --field-selector 'free.cpu>=4,free.cpu<=8'",
    ]


def test_explained_for_who_takes_any() -> None:
    assert ", any 10, at revision 42" in index_explain.told({**EXPLAINED, "order": "ANY"})


def test_explained_where_no_index_helps() -> None:
    answer = {**EXPLAINED, "chosen": EXPLAINED["others"][0], "others": [], "limit": 0, "listsAsk": "watch cache"}
    lines = index_explain.told(answer).splitlines()
    assert lines[0].startswith("free.cpu>=4,free.cpu<=8 on nodes, all, at revision 42")
    assert lines[3:] == [
        "lists do not use this: no complete index has these fields; the API server scans its cache",
        "next:",
        "  minikube-py index create NAME --on nodes --fields 'free.cpu'",
    ]


@pytest.mark.parametrize(
    ("text", "option"),
    [("visits=300", ("visits", 300)), ("low=-5", ("low", -5)), ("filter=bloom", ("filter", "bloom")), ("a=", ("a", "")),
     ("a=b=c", ("a", "b=c")), ("a=12345678901234567890", ("a", "12345678901234567890"))],
)  # fmt: skip
def test_options_are_numbers_where_they_read_as_such(text: str, option: tuple[str, int | str]) -> None:
    assert index_create._option(text) == option


USAGE = [
    (["index"], "index: name one of: create, list, stats, drop, explain, check; see"),
    (["index", "make"], "index: no command 'make'; the commands are: create, list, stats, drop, explain, check"),
    (["index", "create", "fits"], "index create: the following arguments are required: --on, --fields; see"),
    (["index", "create", "f", "--on", "nodes", "--fields", "a", "--option", "x"], "--option: 'x': write NAME=VALUE"),
    (["index", "explain"], "index explain: the following arguments are required: WHERE"),
    (["index", "explain", "a>1", "--limit", "-1"], "argument --limit: -1 is not within 0 to"),
    (["index", "drop"], "index drop: the following arguments are required: NAME"),
    (["index", "list", "--kubeconfig", "a", "--data-dir", "b"], "--kubeconfig and --data-dir both name an API server"),
]


@pytest.mark.parametrize(("arguments", "message"), USAGE, ids=[" ".join(each[0]) for each in USAGE])
def test_wrong_usage(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(arguments) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1


@pytest.mark.parametrize("command", index.SUBCOMMANDS)
def test_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["index", command, "--help"]) == 0
    assert f"usage: minikube-py index {command}" in capsys.readouterr().out


def given(**more: Path) -> argparse.Namespace:
    return argparse.Namespace(**({"kubeconfig": None, "data_dir": None} | more))


def test_which_api_server_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named, other = tmp_path / "named", tmp_path / "other"
    for each in (named, other):
        each.touch()
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'none'}:{other}")
    assert index._kubeconfig(given(kubeconfig=named)) == named
    assert index._kubeconfig(given(data_dir=tmp_path)) == tmp_path / "kubeconfig"
    assert index._kubeconfig(given()) == other
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with pytest.raises(SetupError, match=r"no control plane of yours is running.*or give a --kubeconfig"):
        index._kubeconfig(given())
