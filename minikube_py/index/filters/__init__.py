"""Summaries in front of shards, what they are made of, and the contract of a range filter."""
