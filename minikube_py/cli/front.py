"""Fronts of shards: what says which of them need not be opened for a request.

  minikube-py front check mine.py:MyFront"""

SUBCOMMANDS = {"check": "judge a front of your own: its laws, false positives against its bound, upkeep, bytes"}
