"""The family of exact structures, a module each. `index.catalogue` finds them by name."""
