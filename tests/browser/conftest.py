"""A real Chromium that looks at the dashboard of a real server."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.api.conftest import Api, running_api

playwright_api = pytest.importorskip("playwright.async_api", reason="the browser tests need playwright: make test")

ARTIFACTS = Path(__file__).resolve().parents[1] / "artifacts" / "browser"
PATIENCE_MS = 60_000  # for anything to be shown, on a machine that others use too
playwright_api.expect.set_options(timeout=PATIENCE_MS)
_ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Browser:
    """Opens pages and keeps what went wrong in them."""

    def __init__(self, chromium: Any) -> None:
        self._chromium = chromium

    @asynccontextmanager
    async def page(self, url: str, path: str = "queues", **options: Any) -> AsyncIterator[Any]:
        """A page of the dashboard; a mistake of its scripts, or an alert, fails the test that looked at it."""
        options = {"viewport": {"width": 1280, "height": 800}, **options}
        context = await self._chromium.new_context(**options)
        context.set_default_timeout(PATIENCE_MS)
        wrong: list[str] = []
        try:
            page = await context.new_page()
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.on("dialog", lambda dialog: wrong.append(f"a dialog of the browser: {dialog.message}"))
            page.on("console", lambda said: wrong.append(said.text) if "Content Security" in said.text else None)
            await page.goto(f"{url}/ui/#/{path}")
            yield page
        finally:
            await context.close()
        assert wrong == []


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def browser() -> AsyncIterator[Browser]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("the browser tests need chromium: apt-get install chromium")
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    async with playwright_api.async_playwright() as playwright:
        launched = await playwright.chromium.launch(
            executable_path=chromium, args=list(_ARGUMENTS), timeout=PATIENCE_MS * 2
        )
        try:
            yield Browser(launched)
        finally:
            await launched.close()


@pytest_asyncio.fixture(loop_scope="module")
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    """A server on memory without a queue."""
    async with running_api(tmp_path) as running:
        yield running
