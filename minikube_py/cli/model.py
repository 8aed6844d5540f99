"""Cost models of flow scheduling: check one of your own."""

from __future__ import annotations

SUBCOMMANDS = {"check": "check a cost model of your own: its laws, on generated clusters"}
