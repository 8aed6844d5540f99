"""Filters that prove that a range is empty, a module each, with the bounds of its paper."""
