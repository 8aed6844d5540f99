"""Explain decisions. `explain pod NAME`: each node's verdict and each plugin's scores."""

from __future__ import annotations

SUBCOMMANDS = {"pod": "why a pod is on its node, or on none: each node's verdict and each plugin's scores"}
