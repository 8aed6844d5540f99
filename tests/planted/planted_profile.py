"""A pytest plugin for the runs on planted bugs: examples are drawn and judged as ever, but a failure is not shrunk.

It also makes sure that what is tested is the copy, and not the package that happens to be installed.
"""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, Phase, settings

import minikube_py

# In CI hypothesis would draw the same examples whatever the seed, which is what a second seed is for.
# On a busy machine an example may take long; that is no finding.
settings.register_profile(
    "planted",
    phases=(Phase.explicit, Phase.generate),
    derandomize=False,
    database=None,
    print_blob=False,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

_TESTED = Path(minikube_py.__file__).parents[1]
assert Path.cwd() == _TESTED, f"the package in {_TESTED} would be tested, not the copy in {Path.cwd()}"
