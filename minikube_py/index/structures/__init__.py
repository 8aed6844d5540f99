"""The exact structures, a module each. `index.catalogue` finds them by name."""
