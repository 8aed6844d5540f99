"""The scheduler: framework, queue, cache, plugins."""
