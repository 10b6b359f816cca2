"""The SQL of a driver, read once from its file, by name."""

from __future__ import annotations

from importlib import resources

_NAME = "-- name: "


def read_sql(file_name: str) -> str:
    return resources.files(__package__).joinpath("sql", file_name).read_text(encoding="utf-8")


def parse_statements(text: str) -> dict[str, str]:
    """The statements of a file in which each follows a line ``-- name: <its name>``."""
    statements: dict[str, str] = {}
    for part in text.split(_NAME)[1:]:
        name, _, statement = part.partition("\n")
        statements[name.strip()] = statement.strip()
    return statements


def fill_uid(statement: str, uid: int) -> str:
    """The statement for one partition: an integer is the only thing that is ever put into SQL text."""
    return statement.replace("{uid}", str(int(uid)))
