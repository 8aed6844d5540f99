"""Assembles the roles, in one process or as children. All wiring is here."""
