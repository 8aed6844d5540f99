"""The judge of scheduler plugins: `minikube-py plugin check`."""
