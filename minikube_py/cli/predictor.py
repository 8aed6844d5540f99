"""Predictors of pod usage: check one of your own."""

from __future__ import annotations

SUBCOMMANDS = {"check": "check a predictor of your own: its laws, on generated histories"}
