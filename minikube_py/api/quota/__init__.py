"""Quotas: usage of objects, and admission of new ones. For admission and the controller."""
