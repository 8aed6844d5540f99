"""Compact tables of real traces. Where each comes from, and its licence, stands in SOURCES.md beside them."""
