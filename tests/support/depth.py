"""How much of what is drawn from seeds a run takes: the same sample each time, or all of it in `make deep`."""

from __future__ import annotations

import os

DEEP = bool(os.environ.get("MINIKUBE_PY_DEEP"))


def seeds(every: int, sampled: int) -> range:
    """The first `sampled` of `every`."""
    return range(every if DEEP else sampled)
