"""`up` gives each store member the bounds that `store` takes by the same flags."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from minikube_py.cli import forms, store, up
from minikube_py.control_plane.config import ControlPlaneConfig
from minikube_py.control_plane.role_store import StoreOptions


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
    with pytest.raises(KeyboardInterrupt):
        up.run(parsed(up, *flags))
    assert (made[0].quota_bytes, made[0].reserve_bytes) == (64 << 20, 1 << 20)
