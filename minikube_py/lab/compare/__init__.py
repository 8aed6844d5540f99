"""Two schedulers on the same pods: `minikube-py compare`."""
