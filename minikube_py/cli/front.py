"""Fronts of shards: filters that tell which shards a request can skip.

  minikube-py front check mine.py:MyFront"""

SUBCOMMANDS = {"check": "check a front of your own: its laws, false positives against its bound, upkeep, bytes"}
