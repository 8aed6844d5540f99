"""`up` gives each store member the bounds that `store` takes by the same flags."""

from __future__ import annotations

import argparse
from pathlib import Path
from types import SimpleNamespace

import pytest

from minikube_py.cli import forms, store, up
from minikube_py.cli.main import main
from minikube_py.control_plane.config import ControlPlaneConfig
from minikube_py.control_plane.role_store import StoreOptions
from minikube_py.control_plane.room import member_config
from minikube_py.control_plane.split import SplitControlPlane


def parsed(module: object, *given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    module.configure(parser)  # type: ignore[attr-defined]
    return parser.parse_args(given)


def test_up_and_store_have_the_same_defaults() -> None:
    config, options = ControlPlaneConfig(Path()), StoreOptions.__dataclass_fields__["room"].default
    for found in (parsed(up), parsed(store, "--data-dir", "d")):
        forms.require(found, "", {})
        assert (found.quota_bytes, found.reserve_bytes) == (config.quota_bytes, config.reserve_bytes) == options


@pytest.mark.parametrize("split", [False, True])
def test_the_bounds_reach_the_members(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, split: bool) -> None:
    made: list[ControlPlaneConfig] = []

    def make(config: ControlPlaneConfig, *_: object) -> object:
        made.append(config)
        raise KeyboardInterrupt

    monkeypatch.setattr(up, "_make", make)
    flags = ["--data-dir", str(tmp_path), "--quota-bytes", "64Mi", "--reserve-bytes", "1Mi", *["--split"] * split]
    flags += ["--auto-compaction-mode", "periodic", "--auto-compaction-retention", "1"]
    with pytest.raises(KeyboardInterrupt):
        up.run(parsed(up, *flags))
    assert (made[0].quota_bytes, made[0].reserve_bytes, made[0].retain_s) == (64 << 20, 1 << 20, 3_600)


@pytest.mark.parametrize(("kept_s", "told"), [(None, []), (0.0, ["0ms"]), (3_600.0, ["3600000ms"]), (0.5, ["500ms"])])
def test_split_members_keep_history_as_long_as_one_in_the_process(kept_s: float | None, told: list[str]) -> None:
    split = SimpleNamespace(config=ControlPlaneConfig(Path(), retain_s=kept_s))
    words = SplitControlPlane._retention(split)  # type: ignore[arg-type]
    assert words == [*["--auto-compaction-retention"] * bool(told), *told]
    given = parsed(store, "--data-dir", "d", *words)
    forms.require(given, "", {})
    config = member_config(1, 2, given.auto_compaction_retention)
    assert given.auto_compaction_retention == kept_s and (config.retain_s, config.retain_bytes) == (
        (300.0, 64 << 20) if kept_s is None else (kept_s, 0)
    )


def test_an_etcd_keeps_its_own_history(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", "--etcd-servers", "http://127.0.0.1:1", "--auto-compaction-retention", "1h"]) == 2
    assert "--auto-compaction-retention" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("members", "bears"),
    [(2, "none that fails, as 1 would: a write needs 2"), (4, "one that fails"), (6, "2 that fail")],
)
def test_an_even_number_of_members_is_told(tmp_path: Path, members: int, bears: str) -> None:
    told: list[str] = []
    steps = SimpleNamespace(line=told.append, elapsed_s=lambda: 1.0)
    for count in (members, members + 1):
        up._tell(ControlPlaneConfig(tmp_path, members=count), "https://a", steps)  # type: ignore[arg-type]
    (line,) = [line for line in told if "bear" in line]
    assert f"{members} members bear {bears}" in line
