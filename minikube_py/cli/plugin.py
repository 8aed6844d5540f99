"""Plugins of the scheduler: check one of your own."""

from __future__ import annotations

SUBCOMMANDS = {"check": "judge a plugin of your own: its laws, and what it costs beside the built-in ones"}
