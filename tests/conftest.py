"""For all tests."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import hypothesis
import pytest
from virtual_time import VirtualLoop

from minikube_py.ports.memory import give_back

# A run that was started in the background ignores interrupts, and so would every process that a test starts and
# interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

TESTS = Path(__file__).parent
IN_VIRTUAL_TIME = (TESTS / "unit", TESTS / "property")

# No example is too slow: the machine may be. In CI the same commit draws the same examples; elsewhere each run others.
hypothesis.settings.register_profile(
    "calm",
    deadline=None,
    derandomize=os.environ.get("CI") == "true",
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("calm")


@pytest.fixture(scope="module", autouse=True)
def memory_goes_back() -> Iterator[None]:
    """What a module's tests have freed serves others: without this a worker held 7.5 GB, of which it used 1.5."""
    yield
    give_back()


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Unit tests and those of properties run in virtual time, unless they say why not; others where they ask for it."""
    if any(item.path.is_relative_to(folder) for folder in IN_VIRTUAL_TIME):
        virtual = item.get_closest_marker("real_time") is None
    else:
        virtual = item.get_closest_marker("virtual_time") is not None
    if virtual:
        return {"virtual": partial(VirtualLoop, item.nodeid)}
    return {"asyncio": asyncio.new_event_loop}
