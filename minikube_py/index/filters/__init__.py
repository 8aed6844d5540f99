"""Filters that say for sure that a range holds nothing, a module each, with the bounds of its paper."""
