"""Calls of a controller framework to its store: recorded, counted, drawn."""
