"""A page that shows a control plane while it runs: nodes as they fill, pods and why they wait, Raft and rates."""
