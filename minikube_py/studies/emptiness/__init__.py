"""The study of fronts, which predict whether a shard has room for a pod; see docs/studies/emptiness.md."""
