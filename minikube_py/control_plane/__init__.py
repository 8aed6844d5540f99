"""The roles put together, in one process or as children. All wiring is here."""
