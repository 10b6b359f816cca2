"""docs/operations.md against the program: options, flags, environment, metrics, events, and the backup."""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import yaml

from cluster import reconfigure
from querator import Client, config
from querator.cli.server import serve
from querator.config import option_name
from querator.config_sources import VARIABLES
from querator.daemon import read_config
from querator.limits import Limits
from storage import drivers
from storage.sqlite_file import SYNCHRONOUS
from tests.crash.server import server_in
from tests.docs.pages import ROOT, Page, examples, page, quoted, table

STRUCTS: dict[str, type[msgspec.Struct]] = {
    "": config.Config,
    "cluster.": config.ClusterConfig,
    "storage[].": config.BackendConfig,
    "queues[].": config.QueueConfig,
    "queues[].retry_policy.": config.RetryPolicyConfig,
    "log.": config.LogConfig,
    "limits.": Limits,
    "telemetry.": config.TelemetryConfig,
}


@pytest.fixture
def operations() -> Page:
    return page("docs/operations.md")


def fields() -> Iterator[tuple[str, msgspec.structs.FieldInfo]]:
    for prefix, struct in STRUCTS.items():
        for field in msgspec.structs.fields(struct):
            yield prefix + field.name, field


def default_of(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


def test_every_option_is_there_with_its_default(operations: Page) -> None:
    """The table of options and the configuration's types name the same options with the same defaults."""
    documented = {quoted(option)[0]: default for option, default, _ in table(operations, "## Options")}
    known = dict(fields())
    of_drivers = {f"storage[].options.{option}" for options in drivers._OPTIONS.values() for option in options}
    assert documented.keys() == known.keys() | of_drivers
    for option, field in known.items():
        if field.required:
            assert documented[option] == "required", option
        else:
            value = yaml.safe_load(quoted(documented[option])[0])
            assert msgspec.convert(value, field.type) == default_of(field), option
    assert quoted(documented["storage[].options.synchronous"]) == [SYNCHRONOUS[0]]


def test_flags_and_environment_are_complete(operations: Page) -> None:
    """The table of flags names every flag of `querator serve`, and the option and the variable that each goes with."""
    rows = table(operations, "## Starting")
    flags = {quoted(flag)[0] for flag, _, _ in rows}
    assert flags == {option for parameter in serve.params for option in parameter.opts}
    known = {variable: option_name(path) for variable, (path, _) in VARIABLES.items()}
    for _, variable, option in rows:
        if variable:
            assert known[quoted(variable)[0]] == quoted(option)[0]
    assert known["QUERATOR_LIMITS_BODY_BYTES"] == "limits.body_bytes"


def test_what_a_reload_changes_is_told_of_every_option(operations: Page) -> None:
    """Every section is in the table of reloads, and what needs a restart is what the program refuses."""
    when = {option: text for options, text in table(operations, "## Reload") for option in quoted(options)}
    sections = set(config.Config.__struct_fields__)
    assert {option for option in when if "[]" not in option} == sections
    fixed = {option for option, text in when.items() if text.startswith("after a restart")}
    assert fixed == sections - set(reconfigure.LIVE)


def test_the_example_is_a_configuration(operations: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that the page shows is read without complaint, and means what it looks like."""
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    (example,) = examples(operations, "yaml")
    (tmp_path / "querator.yaml").write_text(example.code)
    loaded = read_config(tmp_path / "querator.yaml", {}).checked()
    assert [backend.name for backend in loaded.storage] == ["local-0", "local-1"]
    assert [queue.queue_name for queue in loaded.queues] == ["mail-dead", "mail"]


async def test_metrics_are_those_of_the_table(operations: Page, tmp_path: Path) -> None:
    """A server that was used shows exactly the documented metrics, with their types and labels."""
    documented = {
        quoted(name)[0]: (kind, set(quoted(labels))) for name, kind, labels, _ in table(operations, "## Metrics")
    }
    async with server_in(tmp_path) as server, aiohttp.ClientSession() as session:
        await server.start()
        async with Client(server.url) as client:
            await client.create_queue("mail")
        async with session.get(f"{server.url}/metrics") as answer:
            text = await answer.text()
    types = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    shown = {name: (kind, labels_of(name, text)) for name, kind in types.items()}
    assert shown == documented


def labels_of(name: str, text: str) -> set[str]:
    samples = re.findall(rf"^{name}(?:_bucket|_sum|_count)?\{{(.*)\}} ", text, re.MULTILINE)
    return {label for sample in samples for label in re.findall(r"(\w+)=\"", sample)} - {"le"}


def test_events_of_the_table_are_logged_somewhere(operations: Page) -> None:
    """Every event that operators are told to look out for is in the code, at the level that is named."""
    sources = "\n".join(
        path.read_text() for room in ("api", "cluster", "querator", "storage") for path in (ROOT / room).rglob("*.py")
    )
    for events, level, _ in table(operations, "## Logs"):
        levels = "(?:error|exception)" if level == "error" else level
        for event in quoted(events):
            assert re.search(rf'_log\.{levels}\("{event}"', sources), f"{event} is not logged at {level}"


async def test_a_backup_of_a_running_server_can_be_started(operations: Page, tmp_path: Path) -> None:
    """The page's commands copy the data of a server that runs; a server on the copy has every item and lease."""
    (backup,) = examples(operations, "sh")
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
    async with server_in(tmp_path / "first") as server, server_in(tmp_path / "second") as restored:
        await server.start()
        async with Client(server.url) as client:
            await client.create_queue("mail")
            await client.produce("mail", [str(number) for number in range(100)])
            leased = await client.reserve("mail", 10)
            copy(backup.code, tmp_path / "first")
            await client.produce("mail", "after the backup")
        restored.data_dir = tmp_path / "first/backup"
        restored.log = tmp_path / "restored.log"
        await restored.start()
        async with Client(restored.url) as client:
            rest = await client.reserve("mail", 1000)
            assert [item.text for item in rest] == [str(number) for number in range(10, 100)]
            await client.complete(leased)


def copy(code: str, folder: Path) -> None:
    """Run the commands; where there is no `sqlite3`, do what its `.backup` does."""
    if shutil.which("sqlite3"):
        subprocess.run(["sh", "-euc", code], cwd=folder, check=True)
        return
    (folder / "backup").mkdir()
    for source, target in re.findall(r'sqlite3 (\S+) "\.backup (\S+)"', code):
        with sqlite3.connect(folder / source) as there, sqlite3.connect(folder / target) as here:
            there.backup(here)
