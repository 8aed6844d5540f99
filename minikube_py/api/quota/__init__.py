"""Quotas: what objects use of them, and whether a namespace may have one more. For admission and the controller."""
