"""Upstream's scheduler_perf: its unmodified workload files, run on our control plane."""
