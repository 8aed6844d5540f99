"""Conformance kit for custom indexes: laws with minimal counterexamples, and a benchmark against the built-in ones."""
