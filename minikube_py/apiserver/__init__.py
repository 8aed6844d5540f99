"""Requests to responses without HTTP, and the thin adapters around it."""
