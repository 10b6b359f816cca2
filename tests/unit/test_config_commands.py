"""`querator config check` and `querator config show`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from querator.cli import main
from querator.cli.config import mask, mask_text
from querator.config_sources import VARIABLES


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path("querator.yaml")


def test_check_tells_every_mistake_on_a_line(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """With place and option, and exit code 1."""
    path.write_text(
        "storage:\n  - {name: a, driver: memory, affinity: 2}\n  - {name: a, driver: tape}\nlog: {level: 1}\n"
    )
    assert main(["config", "check", str(path)]) == 1
    lines = capfd.readouterr().out.splitlines()
    assert [line.partition(";")[0] for line in lines] == [
        "querator.yaml line 2: storage[0].affinity is invalid",
        "querator.yaml line 3: storage[1].name is invalid",
        "querator.yaml line 3: storage[1].driver is unknown",
        "querator.yaml line 4: log.level is invalid",
    ]
    assert main(["config", "check", str(path), "--json"]) == 1
    mistakes = json.loads(capfd.readouterr().out)["mistakes"]
    assert mistakes[0] == {
        "place": "querator.yaml line 2",
        "what": "storage[0].affinity is invalid",
        "details": "it must be between 0.0 and 1.0",
    }


def test_check_is_content_with_what_is_right(
    path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 0; without a file it looks at the environment alone."""
    path.write_text("log: {level: debug}\n")
    assert main(["config", "check", str(path)]) == 0
    assert main(["config", "check"]) == 0
    assert main(["config", "check", "missing.yaml"]) == 1
    assert "missing.yaml: configuration cannot be read; No such file" in capfd.readouterr().out
    monkeypatch.setenv("QUERATOR_LOG_LEVEL", "loud")
    assert main(["config", "check"]) == 1
    assert capfd.readouterr().out.startswith("QUERATOR_LOG_LEVEL: log.level is invalid; ")


def test_show_tells_values_and_sources_without_passwords(
    path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Default, line, variable and flag; a password is never shown."""
    path.write_text(
        "storage:\n  - name: pg\n    driver: postgres\n    options: {dsn: 'postgresql://me:geheim@db/x?sslmode=require'}\n"
    )
    monkeypatch.setenv("QUERATOR_LIMITS_BODY_BYTES", "9999")
    assert main(["config", "show", "--config", str(path), "--data-dir", "d", "--json"]) == 0
    out = capfd.readouterr().out
    assert "geheim" not in out
    shown = {one["option"]: (one["value"], one["source"]) for one in json.loads(out)["options"]}
    assert shown["storage[0].options.dsn"] == ("postgresql://me:***@db/x?sslmode=require", "querator.yaml line 4")
    assert shown["limits.body_bytes"] == (9999, "QUERATOR_LIMITS_BODY_BYTES")
    assert shown["data_dir"] == ("d", "--data-dir")
    assert shown["log.level"] == ("info", "default")
    assert main(["config", "show", "--config", str(path)]) == 0
    table = capfd.readouterr().out
    assert "storage[0].name\tpg\tquerator.yaml line 2\n" in table
    assert "geheim" not in table


def test_show_tells_mistakes_beside_the_values(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What is wrong has its default in the table, a line on stderr, and exit code 1."""
    path.write_text("log: {level: loud}\n")
    assert main(["config", "show", "--config", str(path)]) == 1
    shown = capfd.readouterr()
    assert "log.level\tinfo" in shown.out
    assert "querator.yaml line 1: log.level is invalid" in shown.err


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://u:p@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u:p:@s@h/d", "postgresql://u:***@h/d"),
        ("postgresql://:p@h/d", "postgresql://:***@h/d"),
        ("postgresql://u@h/d?password=p&x=1", "postgresql://u@h/d?password=***&x=1"),
        ("host=h password='p q' user=u", "host=h password=*** user=u"),
        ("postgresql://u@h:5432/d", "postgresql://u@h:5432/d"),
        ("127.0.0.1:80", "127.0.0.1:80"),
    ],
)
def test_passwords_are_masked_in_every_form(text: str, shown: str) -> None:
    """In an address, in its query, and in the list of words that libpq knows."""
    assert mask_text(text) == shown
    assert mask("dsn", text) == shown
    assert mask("password", text) == "***"
