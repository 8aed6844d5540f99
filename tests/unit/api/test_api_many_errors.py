"""An answer stays small however many errors an object has."""

import pytest

from minikube_py.api.errors import ERRORS_LISTED_MAX, go_value, invalid, invalid_value
from minikube_py.api.registry import REGISTRY


@pytest.mark.parametrize(
    ("count", "told"),
    [
        pytest.param(2, 2, id="few"),
        pytest.param(ERRORS_LISTED_MAX, ERRORS_LISTED_MAX, id="as many as are listed"),
        pytest.param(ERRORS_LISTED_MAX + 1, ERRORS_LISTED_MAX, id="one more"),
    ],
)
def test_errors_are_told_up_to_a_limit(count: int, told: int) -> None:
    errors = [invalid_value(f"spec.x[{i}]", "_", "no") for i in range(count)]
    status = invalid(REGISTRY.resource("", "v1", "pods"), "p", errors).to_status()
    assert len(status["details"]["causes"]) == told == status["message"].count("Invalid value")
    assert (f"{count} errors in all" in status["message"]) is (count > told)


def test_bytes_are_told_in_base64() -> None:
    """As upstream tells a caBundle that is no certificate."""
    assert go_value(b"\n") == '"Cg=="' and go_value(b"") == '""'
