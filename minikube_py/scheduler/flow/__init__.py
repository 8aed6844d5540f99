"""Flow scheduling: pods are placed by rounds, each the cheapest flow through a graph that a cost model prices."""
