import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))

from api_core import Core


@pytest_asyncio.fixture
async def core(tmp_path: Path) -> AsyncIterator[Core]:
    core = await Core(tmp_path).start()
    yield core
    await core.stop()
