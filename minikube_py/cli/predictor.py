"""Predictors of pod usage: check one of your own."""

from __future__ import annotations

SUBCOMMANDS = {"check": "judge a predictor of your own: its laws, on drawn pasts"}
