"""Consensus. Messages in; messages, entries and state out."""
