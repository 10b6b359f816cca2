"""The configuration: what is read, what goes over what, and how mistakes are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from querator import config
from querator.errors import InvalidRequest
from querator.items import MAX_SLOTS


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in config._ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "querator.yaml"


def test_without_a_file_everything_has_its_default() -> None:
    """A server starts with one SQLite backend on the loopback address."""
    loaded = config.load(None, {})
    assert loaded.addresses() == [("127.0.0.1", 2319)]
    assert [(backend.driver, backend.affinity) for backend in loaded.storage] == [("sqlite", 1.0)]
    assert loaded.queues == []


def test_flags_go_over_the_environment_and_that_over_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each layer wins where it says something, and is silent where it says nothing."""
    path.write_text("listen: 127.0.0.1:1\ndata_dir: from-file\nlog: {level: debug, format: json}\n")
    monkeypatch.setenv("QUERATOR_LISTEN", "127.0.0.1:2")
    monkeypatch.setenv("QUERATOR_LOG_LEVEL", "error")
    loaded = config.load(path, {"listen": "127.0.0.1:3", "data_dir": None})
    assert loaded.addresses() == [("127.0.0.1", 3)]
    assert (loaded.data_dir, loaded.log.level, loaded.log.format) == ("from-file", "error", "json")


def test_queues_are_read_with_their_durations(path: Path) -> None:
    """Durations are texts in the file, and milliseconds inside."""
    path.write_text(
        "queues: [{queue_name: mail, lease_timeout: 90s, expire_timeout: 24h, max_attempts: 5, "
        "requested_partitions: 4, retry_policy: {base: 1s, factor: 3, max: 5m, jitter: 0}}]\n"
    )
    settings = config.load(path, {}).queues[0].settings()
    assert (settings.lease_timeout_ms, settings.expire_timeout_ms, settings.max_attempts) == (90_000, 86_400_000, 5)
    assert (settings.retry_policy.base_ms, settings.retry_policy.factor, settings.retry_policy.max_ms) == (
        1000,
        3,
        300_000,
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("lisen: 127.0.0.1:1", "lisen"),
        ("listen: nowhere", "nowhere"),
        ("listen: 127.0.0.1:70000", "70000"),
        ("storage: []", "storage"),
        ("storage: [{name: a, driver: memory}, {name: a, driver: memory}]", "storage[1].name"),
        ("storage: [{name: a, driver: memory, affinity: 1.5}]", "storage[0].affinity"),
        ("storage: [{name: a, driver: memory, affinity: .nan}]", "storage[0].affinity"),
        ("storage: [{name: a}]", "storage[0]"),
        ("storage: [{name: a, driver: memory, colour: red}]", "colour"),
        ("queues: [{queue_name: a}, {queue_name: b, lease_timeout: soon}]", "queues[1]"),
        ("queues: [{queue_name: a, max_attempts: many}]", "queues[0].max_attempts"),
        ("log: {level: loud}", "log.level"),
        ("limits: {block_items: few}", "limits.block_items"),
        ("limits: {block_itmes: 5}", "block_itmes"),
        ("limits: {block_items: 0}", "block_items"),
        (f"limits: {{block_items: {MAX_SLOTS + 1}}}", "block_items"),
        ("- a list", "mapping"),
        ("a: b: c", "YAML"),
        ("just text", "mapping"),
    ],
)
def test_a_mistake_is_told_with_its_path(path: Path, text: str, told: str) -> None:
    """A typo is never silently lost, and the message says where it is."""
    path.write_text(text)
    with pytest.raises(InvalidRequest) as caught:
        config.load(path, {})
    assert told in caught.value.message


@pytest.mark.parametrize("text", ["log:", "log: text", "log: [1]"])
def test_an_override_meets_a_section_that_is_none(path: Path, text: str) -> None:
    """An empty section is a section without options; one of another kind is a mistake, and told as such."""
    path.write_text(text)
    if text == "log:":
        assert config.load(path, {"log.level": "error"}).log.level == "error"
    else:
        with pytest.raises(InvalidRequest):
            config.load(path, {"log.level": "error"})


def test_an_empty_file_is_no_mistake(path: Path) -> None:
    """It says nothing, so the defaults hold."""
    path.write_text("# nothing yet\n")
    assert config.load(path, {}) == config.load(None, {})


def test_a_file_that_cannot_be_read_is_named(path: Path) -> None:
    """Missing, or not text."""
    with pytest.raises(InvalidRequest, match=r"querator\.yaml"):
        config.load(path, {})
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidRequest, match=r"querator\.yaml"):
        config.load(path, {})


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        ("[::1]:80", ("::1", 80)),
        (":80", ("0.0.0.0", 80)),
        ("localhost:0", ("localhost", 0)),
    ],
)
def test_addresses_are_host_and_port(text: str, address: tuple[str, int]) -> None:
    """One or several, with names, IPv6 in brackets, or no host for all."""
    assert config.load(None, {"listen": text}).addresses() == [address]
    assert config.load(None, {"listen": [text, text]}).addresses() == [address, address]
