"""Every kind that is served, in one file for each API group: a kind is a value (`api.kind.Kind`)."""
