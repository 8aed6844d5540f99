"""Fronts of shards: filters that tell which shards a request can skip.

  minikube-py front check mine.py:MyFront"""

SUBCOMMANDS = {"check": "judge a front of your own: its laws, false positives against its bound, upkeep, bytes"}
