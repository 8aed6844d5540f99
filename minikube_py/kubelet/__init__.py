"""Fake kubelets: one object plays thousands of nodes."""
