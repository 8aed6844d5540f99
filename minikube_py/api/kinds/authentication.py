"""The group `authentication.k8s.io`: who one is."""

from __future__ import annotations

from typing import Final

from minikube_py.api.kind import Kind, review

SELFSUBJECTREVIEWS: Final = review("authentication.k8s.io", "SelfSubjectReview")

KINDS: Final[tuple[Kind, ...]] = (SELFSUBJECTREVIEWS,)
