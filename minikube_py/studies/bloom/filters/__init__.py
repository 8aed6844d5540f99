"""Range filters that the study compares, a module each, with the bounds of its paper; the index has them by name."""
