"""How tests look at a page: wait for a text, read a row, keep a picture."""

from __future__ import annotations

from typing import Any

from tests.browser.conftest import ARTIFACTS, playwright_api


async def shows(locator: Any, text: str) -> None:
    """Wait until the element's text is this."""
    await playwright_api.expect(locator).to_have_text(text)


async def row_shows(page: Any, queue_name: str, label: str, text: str) -> None:
    """Wait until the queue's row says so in the column."""
    row = page.locator("tbody tr").filter(has=page.get_by_role("link", name=queue_name, exact=True))
    await shows(row.locator(f'td[data-label="{label}"]'), text)


async def figure_shows(page: Any, label: str, text: str) -> None:
    """Wait until the number on the page of a queue is this."""
    figure = page.locator(".figures div").filter(has=page.get_by_text(label, exact=True))
    await shows(figure.locator("dd"), text)


async def keep(page: Any, name: str) -> None:
    """Keep a picture for people to look at."""
    await page.screenshot(path=ARTIFACTS / f"{name}.png", full_page=True)


async def overflow(page: Any) -> int:
    """By how many pixels the page is wider than its window."""
    root = "document.documentElement"
    return int(await page.evaluate(f"{root}.scrollWidth - {root}.clientWidth"))
