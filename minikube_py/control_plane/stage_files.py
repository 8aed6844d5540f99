"""Reads stage files for the kubelets. The parser is imported only if there are any."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from minikube_py.control_plane.errors import SetupError
from minikube_py.env import say
from minikube_py.errors import RequestError

if TYPE_CHECKING:
    from minikube_py.stages.files import Stages


def read_stages(paths: Sequence[Path]) -> Stages | None:
    """None without any. Reports files with other content. Raises: SetupError, with file and line."""
    if not paths:
        return None
    from minikube_py.kubelet.stage_player import resource_of
    from minikube_py.stages.files import load

    try:
        stages = load(paths)
        for ref in stages.refs():
            resource_of(ref)
    except RequestError as error:
        raise SetupError(str(error)) from None
    others = [each for each in stages.others if not each.endswith("(Kustomization)")]
    if others:
        say(f"not loaded, because they hold no stages: {', '.join(others)}")
    return stages
