"""The laboratory: which calls reach the store, which index answers them best, how well policies pack, and what
predictors of usage gain.

  minikube-py lab calls
  minikube-py lab packing --seeds 42
  minikube-py lab prediction --usage busy
  minikube-py lab study emptiness --quick"""

SUBCOMMANDS = {
    "calls": "record every call from API server to store during a run; histograms and diagrams",
    "packing": "what six published policies allocate of the GPUs of a production trace, and what they fragment",
    "prediction": "what a cluster gains and pays when it believes a predictor of what pods will use",
    "study": "run a study that was written down before, and write its report",
}
