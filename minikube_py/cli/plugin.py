"""Plugins of the scheduler: check one of your own."""

from __future__ import annotations

SUBCOMMANDS = {"check": "check a plugin of your own: its laws, and its cost beside the built-in ones"}
