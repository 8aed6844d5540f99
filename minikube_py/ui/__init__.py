"""A web page for a running control plane: node usage, waiting pods and reasons, Raft and rates."""
