"""The laboratory: what is asked of a store, and what answers it best.

  minikube-py lab calls
  minikube-py lab study emptiness --quick"""

SUBCOMMANDS = {
    "calls": "record every call from API server to store during a run; histograms and diagrams",
    "study": "run a study that was written down before, and write its report",
}
