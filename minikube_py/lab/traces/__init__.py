"""Compact tables of real traces. SOURCES.md documents their origins and licences."""
