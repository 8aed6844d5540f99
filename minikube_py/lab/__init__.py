"""Workloads, traces, benchmarks, reports."""
