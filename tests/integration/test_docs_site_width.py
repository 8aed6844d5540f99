"""The site is never wider than its window, whatever a page holds."""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import sys
from pathlib import Path

from browser import opened
from needs import absent

ROOT = Path(__file__).parents[2]
WIDTHS_PX = (420, 800, 1024, 1366, 1440, 1920)
PAGE = f"""# A page
{"words " * 300}

## Code

```
{"x" * 120}
```

| {"words " * 20} | {"word" * 20} |
|---|---|
| {"words " * 20} | {"word" * 20} |
"""


def site_of(page: str, folder: Path) -> Path:
    if importlib.util.find_spec("furo") is None or importlib.util.find_spec("myst_nb") is None:
        absent("no Sphinx: make docs installs it")
    source = folder / "docs"
    source.mkdir()
    (source / "index.md").write_text(page, encoding="utf-8")
    (source / "conf.py").write_bytes((ROOT / "docs/conf.py").read_bytes())
    (source / "_static").symlink_to(ROOT / "docs/_static")
    (folder / "tools").symlink_to(ROOT / "tools")
    (folder / "README.md").write_text("", encoding="utf-8")
    site = folder / "site"
    subprocess.run([sys.executable, "-m", "sphinx", "-q", "-b", "html", source, site], check=True, timeout=120)
    return site


async def test_a_page_is_as_wide_as_its_window(tmp_path: Path) -> None:
    site = await asyncio.to_thread(site_of, PAGE, tmp_path)
    async with opened((site / "index.html").as_uri(), tmp_path / "profile") as tab:
        await tab.until("document.readyState === 'complete' && document.querySelector('.toc-drawer') !== null")
        for width_px in WIDTHS_PX:
            size = {"width": width_px, "height": 900, "deviceScaleFactor": 1, "mobile": False}
            await tab.do("Emulation.setDeviceMetricsOverride", **size)
            await tab.until(f"innerWidth === {width_px}")
            page = "document.documentElement"
            assert await tab.value(f"{page}.scrollWidth - {page}.clientWidth") == 0, width_px
