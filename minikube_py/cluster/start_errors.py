"""What a cluster's start raises: a ClusterError that names the parameter, where one is to blame."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from minikube_py.cluster.errors import ClusterError
from minikube_py.control_plane.listen import CANNOT_LISTEN
from minikube_py.control_plane.stage_files import read_stages
from minikube_py.errors import MinikubeError


@contextmanager
def parameters_named(data_dir: Path | None = None, stages: Sequence[Path] = ()) -> Iterator[None]:
    """Raises: ClusterError instead of other errors of the package, whose classes are private; it names the stages, the
    port or the folder, where those are to blame; else what the block raises."""
    try:
        yield
    except ClusterError:
        raise
    except MinikubeError as error:
        # The hint names a flag of the command line.
        text = str(error).partition("; name another with --")[0]
        parameter = _parameter(str(error), data_dir, stages)
        raise ClusterError(text if parameter is None else f"{parameter}: {text}") from error


def _parameter(text: str, data_dir: Path | None, stages: Sequence[Path]) -> str | None:
    if text.startswith(CANNOT_LISTEN):
        return "port"
    try:
        if stages:
            read_stages(stages)
    except MinikubeError:
        return "stages"
    return None if data_dir is None else "data_dir"
