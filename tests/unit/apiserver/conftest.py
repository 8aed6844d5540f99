from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from api_core import Core


@pytest_asyncio.fixture
async def core(tmp_path: Path) -> AsyncIterator[Core]:
    core = await Core(tmp_path).start()
    yield core
    await core.stop()
