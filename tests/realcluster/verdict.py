"""How a scene of a real cluster ends: everything is taken out, the history is read, and its verdict told."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.crash.load import Clients
from tests.history.checker import Report

SEED = int(os.environ.get("QUERATOR_SEED", "2319"))

Tell = Callable[[str], None]


async def report_of(crew: Clients) -> Report:
    """Nothing was lost or done twice, and no item was leased to two at a time: that is what the history must show."""
    await crew.count()
    await crew.drain()
    report = crew.check()
    assert report.violations == [], "\n".join(map(str, report.violations[:20]))
    return report


def teller(config: pytest.Config, capsys: pytest.CaptureFixture[str]) -> Tell:
    """Says something to whoever runs the tests, whether they pass or not."""

    def tell(text: str) -> None:
        with capsys.disabled():
            config.get_terminal_writer().line(f"\n{text} (seed {SEED})")

    return tell
