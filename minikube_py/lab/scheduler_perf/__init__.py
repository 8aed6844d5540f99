"""Upstream's scheduler_perf: its workload files as they are, run on a control plane of ours."""
