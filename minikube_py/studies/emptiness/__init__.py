"""The study of fronts that know whether a shard has room for a pod; see docs/studies/emptiness.md."""
