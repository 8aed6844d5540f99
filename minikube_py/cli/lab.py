"""The laboratory: which calls reach the store, which index answers them best, how well policies pack, and what
predictors of usage gain.

  minikube-py lab calls
  minikube-py lab packing --seeds 42
  minikube-py lab prediction --usage busy
  minikube-py lab study emptiness --quick"""

SUBCOMMANDS = {
    "calls": "record every call from API server to store during a run; histograms and diagrams",
    "packing": "GPUs of a production trace that six published policies allocate, and the fragmentation they cause",
    "prediction": "benefit and cost of trusting a predictor of pods' resource usage",
    "study": "run a preregistered study, and write its report",
}
