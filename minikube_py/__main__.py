"""`python -m minikube_py` is `minikube-py`."""

import sys

from minikube_py.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
