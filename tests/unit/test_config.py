"""The configuration: what is read, what goes over what, and how mistakes are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from querator.config import Config
from querator.config_sources import VARIABLES, Reading, options, read
from querator.daemon import read_config
from querator.errors import InvalidRequest
from querator.items import MAX_SLOTS


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "querator.yaml"


def load(path: Path | None, overrides: dict[str, object]) -> Config:
    return read_config(path, overrides).checked()


def told(reading: Reading) -> list[str]:
    """The mistakes, without the folder."""
    return [str(mistake).rpartition("/")[2] for mistake in reading.mistakes]


def test_without_a_file_everything_has_its_default() -> None:
    """A server starts with one SQLite backend on the loopback address."""
    loaded = load(None, {})
    assert loaded.addresses() == [("127.0.0.1", 2319)]
    assert [(backend.driver, backend.affinity) for backend in loaded.storage] == [("sqlite", 1.0)]
    assert loaded.queues == []


def test_flags_go_over_the_environment_and_that_over_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each layer wins where it says something, and is silent where it says nothing."""
    path.write_text("listen: 127.0.0.1:1\ndata_dir: from-file\nlog: {level: debug, format: json}\n")
    monkeypatch.setenv("QUERATOR_LISTEN", "127.0.0.1:2")
    monkeypatch.setenv("QUERATOR_LOG_LEVEL", "error")
    loaded = load(path, {"listen": "127.0.0.1:3", "data_dir": None})
    assert loaded.addresses() == [("127.0.0.1", 3)]
    assert (loaded.data_dir, loaded.log.level, loaded.log.format) == ("from-file", "error", "json")


def test_queues_are_read_with_their_durations(path: Path) -> None:
    """Durations are texts in the file, and milliseconds inside."""
    path.write_text(
        "queues: [{queue_name: mail, lease_timeout: 90s, expire_timeout: 24h, max_attempts: 5, "
        "requested_partitions: 4, retry_policy: {base: 1s, factor: 3, max: 5m, jitter: 0}}]\n"
    )
    settings = load(path, {}).queues[0].settings()
    assert (settings.lease_timeout_ms, settings.expire_timeout_ms, settings.max_attempts) == (90_000, 86_400_000, 5)
    assert (settings.retry_policy.base_ms, settings.retry_policy.factor, settings.retry_policy.max_ms) == (
        1000,
        3,
        300_000,
    )


@pytest.mark.parametrize(
    ("text", "expected"),
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
        ("cluster: {coordinator: zookeeper}", "cluster.coordinator"),
        ("cluster: {coordinator: etcd, listen: 127.0.0.1:0}", "cluster.endpoints"),
        ("cluster: {coordinator: etcd, endpoints: a, listen: 127.0.0.1:0}", "cluster.endpoints"),
        ("cluster: {coordinator: etcd, endpoints: a:1}", "cluster.listen is missing"),
        ("cluster: {coordinator: etcd, endpoints: a:1, listen: a:1, user: me}", "cluster.user"),
        ("cluster: {coordinator: etcd, endpoints: a:1, listen: a:1, cert_file: f}", "cluster.cert_file"),
        ("cluster: {listen: nowhere}", "cluster.listen"),
        ("cluster: {listen: 0.0.0.0:1}", "cluster.advertise is missing"),
        ("cluster: {listen: '[::]:1'}", "cluster.advertise is missing"),
        ("cluster: {advertise: a:1}", "cluster.advertise"),
        ("cluster: {advertise_http: a}", "cluster.advertise_http"),
        ("cluster: {lease_timeout: soon}", "cluster.lease_timeout"),
        ("cluster: {lease_timeout: 100ms}", "cluster.lease_timeout"),
        (
            "listen: 0.0.0.0:1\ncluster: {coordinator: etcd, endpoints: a:1, listen: a:1}",
            "cluster.advertise_http is missing",
        ),
        ("- a list", "mapping"),
        ("a: b: c", "YAML"),
        ("just text", "mapping"),
    ],
)
def test_a_mistake_is_told_with_its_path(path: Path, text: str, expected: str) -> None:
    """A typo is never silently lost, and the message says where it is."""
    path.write_text(text)
    with pytest.raises(InvalidRequest) as caught:
        load(path, {})
    assert expected in caught.value.message


def test_a_cluster_is_read_from_the_file_and_its_secrets_from_the_environment(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One endpoint or several, sockets instead of addresses, and a password that is in no file."""
    path.write_text(
        "listen: 0.0.0.0:2319\n"
        "cluster: {coordinator: etcd, user: querator, listen: 0.0.0.0:2321, advertise: a:2321, advertise_http: a:2319}\n"
    )
    monkeypatch.setenv("QUERATOR_CLUSTER_ENDPOINTS", "one:2379,two:2379")
    monkeypatch.setenv("QUERATOR_CLUSTER_PASSWORD", "secret")
    cluster = load(path, {}).cluster
    assert cluster.all_endpoints() == ("one:2379", "two:2379")
    assert (cluster.password, cluster.told_addresses(), cluster.lease_timeout_ms()) == ("secret", ("a:2319",), 10_000)
    path.write_text("cluster: {listen: 'unix:/run/querator/peer'}\n")
    monkeypatch.delenv("QUERATOR_CLUSTER_ENDPOINTS")
    assert load(path, {}).cluster.listen == "unix:/run/querator/peer"


@pytest.mark.parametrize("text", ["log:", "log: text", "log: [1]"])
def test_an_override_meets_a_section_that_is_none(path: Path, text: str) -> None:
    """An empty section is a section without options; one of another kind is a mistake, and told as such."""
    path.write_text(text)
    if text == "log:":
        assert load(path, {"log.level": "error"}).log.level == "error"
    else:
        with pytest.raises(InvalidRequest):
            load(path, {"log.level": "error"})


def test_an_empty_file_is_no_mistake(path: Path) -> None:
    """It says nothing, so the defaults hold."""
    path.write_text("# nothing yet\n")
    assert load(path, {}) == load(None, {})


def test_a_file_that_cannot_be_read_is_named(path: Path) -> None:
    """Missing, or not text."""
    with pytest.raises(InvalidRequest, match=r"querator\.yaml"):
        load(path, {})
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidRequest, match=r"querator\.yaml"):
        load(path, {})


@pytest.mark.parametrize(
    ("overrides", "address"),
    [
        ({}, ("127.0.0.1", 2320)),
        ({"listen": ["127.0.0.1:2319"]}, ("127.0.0.1", 2320)),
        ({"listen": "127.0.0.1:2400"}, None),
        ({"listen": "127.0.0.1:2400", "grpc_listen": "[::1]:2401"}, ("::1", 2401)),
        ({"grpc_listen": "none"}, None),
        ({"grpc_listen": ""}, None),
    ],
)
def test_grpc_is_beside_the_default_or_where_it_is_told(
    overrides: dict[str, object], address: tuple[str, int] | None
) -> None:
    """Whoever chooses where HTTP listens chooses for gRPC too; `none` is nowhere."""
    assert load(None, overrides).grpc_address() == address


def test_a_wrong_grpc_address_is_told() -> None:
    """With the name of the option."""
    with pytest.raises(InvalidRequest, match="grpc_listen is invalid; 'nowhere' is not HOST:PORT"):
        load(None, {"grpc_listen": "nowhere"})


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
    assert load(None, {"listen": text}).addresses() == [address]
    assert load(None, {"listen": [text, text]}).addresses() == [address, address]


MANY = """\
listen: nowhere
log:
  level: loud
  colour: red
storage:
  - name: a
    driver: sqlite
    affinity: 2
    options: {path: 5, mode: x}
  - {name: a, driver: tape}
  - name: c
limits:
  body_bytes: 0
  block_items: few
queues:
  - queue_name: mail
    lease_timeout: soon
    max_attempts: -1
    retry_policy: {jitter: 3}
  - queue_name: mail
    dead_queue: mail
    lease_timeout: 100h
"""


def test_all_mistakes_are_told_with_line_and_option(path: Path) -> None:
    """One reading finds every mistake: types, ranges, unknown and missing options, drivers, names, rules of queues."""
    path.write_text(MANY)
    assert [mistake.partition("; ")[0] for mistake in told(read_config(path, {}))] == [
        "querator.yaml line 1: listen is invalid",
        "querator.yaml line 3: log.level is invalid",
        "querator.yaml line 4: log.colour is unknown",
        "querator.yaml line 8: storage[0].affinity is invalid",
        "querator.yaml line 9: storage[0].options.mode is unknown",
        "querator.yaml line 9: storage[0].options.path is invalid",
        "querator.yaml line 10: storage[1].name is invalid",
        "querator.yaml line 10: storage[1].driver is unknown",
        "querator.yaml line 11: storage[2].driver is missing",
        "querator.yaml line 13: limits.body_bytes is invalid",
        "querator.yaml line 14: limits.block_items is invalid",
        "querator.yaml line 17: queues[0].lease_timeout is invalid",
        "querator.yaml line 20: queues[1].queue_name is invalid",
        "querator.yaml line 21: queues[1].dead_queue is invalid",
        "querator.yaml line 22: queues[1].lease_timeout is invalid",
    ]
    path.write_text(MANY.replace("soon", "1m"))
    assert {"line 18", "line 19"} <= {mistake.split(": ")[0][-7:] for mistake in told(read_config(path, {}))}


def test_a_mistake_is_one_clear_sentence(path: Path) -> None:
    """The place, the option, and what it must be."""
    path.write_text("storage:\n  - {name: a, driver: memory}\n  - {name: b, driver: memory, affinity: 1.5}\n")
    expected = "querator.yaml line 3: storage[1].affinity is invalid; it must be between 0.0 and 1.0"
    assert told(read_config(path, {})) == [expected]
    with pytest.raises(InvalidRequest) as caught:
        load(path, {})
    assert caught.value.message.endswith(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("log:\n  level: info\n level: x", "line 3: configuration is not YAML"),
        ("listen: 'open", "line 1: configuration is not YAML"),
        ("a: 1\nb: \x01", "line 2: configuration is not YAML"),
        ("log: {level: info}\nlimits:\nlog: {}", "line 3: log is invalid; it is there twice, first on line 1"),
        ("storage:\n- name: a\n  driver: memory\n  name: b", "line 4: storage[0].name is invalid; it is there twice"),
        ("\ndata_dir: 2024-99-99", "line 2: data_dir is invalid"),
        ("\ndata_dir: !!nothing x", "line 2: data_dir is invalid"),
        ("storage: &a\n - *a", "storage[0] is invalid; it contains itself"),
        ("log:\n  ? [a]\n  : b", "line 2: log is invalid; a name must be a text"),
        ("[" * 5000, "configuration is not YAML; it is nested too deeply"),
        ("--- 1\n--- 2", "configuration is not YAML"),
    ],
)
def test_what_is_no_yaml_is_told_with_its_line(path: Path, text: str, expected: str) -> None:
    """Syntax, keys that are there twice, values that cannot be, and hostile files."""
    path.write_text(text)
    (first, *_) = told(read_config(path, {}))
    assert expected in first


def test_bytes_that_are_no_text_are_told_with_their_line(path: Path) -> None:
    """A file in another encoding."""
    path.write_bytes(b"listen: x\n# gr\xfc\xdfe\n")
    assert told(read_config(path, {})) == ["querator.yaml line 2: configuration is not YAML; it is not UTF-8"]


def test_anchors_and_merges_may_be_used(path: Path) -> None:
    """Lines are those of what is written, wherever it is used."""
    path.write_text(
        "storage:\n  - &a {name: a, driver: memory}\n  - <<: *a\n    name: b\n  - {<<: *a, name: c, affinity: 3}\n"
    )
    assert told(read_config(path, {})) == [
        "querator.yaml line 5: storage[2].affinity is invalid; it must be between 0.0 and 1.0"
    ]


def test_every_single_value_has_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever stands in no list can be set by the environment, in its own type."""
    for variable, text in {
        "QUERATOR_LISTEN": "127.0.0.1:1, [::1]:2",
        "QUERATOR_FAST_DOOR": "False",
        "QUERATOR_LIMITS_BODY_BYTES": "77",
        "QUERATOR_TELEMETRY_SAMPLE_RATIO": "0.5",
        "QUERATOR_LOG_FORMAT": "json",
        "QUERATOR_DATA_DIR": "",
    }.items():
        monkeypatch.setenv(variable, text)
    loaded = load(None, {})
    assert loaded.addresses() == [("127.0.0.1", 1), ("::1", 2)]
    assert (loaded.fast_door, loaded.limits.body_bytes, loaded.telemetry.sample_ratio) == (False, 77, 0.5)
    assert (loaded.log.format, loaded.data_dir) == ("json", "./data")
    single = {path for path, _ in options(Config()) if path[0] not in {"storage", "queues"}}
    assert {path for path, _ in VARIABLES.values()} == single


def test_a_mistake_names_the_variable_or_the_flag_that_made_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not a line of the file, which is right."""
    path.write_text("listen: 127.0.0.1:1\nlog: {level: info}\n")
    monkeypatch.setenv("QUERATOR_LIMITS_BODY_BYTES", "many")
    monkeypatch.setenv("QUERATOR_LOG_LEVEL", "loud")
    assert [mistake.partition("; ")[0] for mistake in told(read_config(path, {"listen": ["a:1", "b"]}))] == [
        "--listen: listen[1] is invalid",
        "QUERATOR_LIMITS_BODY_BYTES: limits.body_bytes is invalid",
        "QUERATOR_LOG_LEVEL: log.level is invalid",
    ]


def test_every_value_knows_its_source(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Default, line, variable or flag, whichever won."""
    path.write_text("log:\n  level: info\nstorage:\n  - name: a\n    driver: memory\n")
    monkeypatch.setenv("QUERATOR_LOG_LEVEL", "error")
    reading = read(path, {"data_dir": "elsewhere"})
    sources = {".".join(map(str, option)): reading.source(option) for option, _ in options(reading.config)}
    assert sources["log.level"] == "QUERATOR_LOG_LEVEL"
    assert sources["data_dir"] == "--data-dir"
    assert sources["storage.0.name"].endswith("querator.yaml line 4")
    assert sources["storage.0.affinity"] == "default"
    assert sources["listen"] == "default"


def test_two_backends_are_two_places(path: Path) -> None:
    """The same file under two names is a mistake."""
    path.write_text(
        "storage:\n - {name: a, driver: sqlite, options: {path: x.db}}\n - {name: b, driver: sqlite, options: {path: x.db}}"
    )
    assert "line 3: storage[1].options is invalid" in told(read_config(path, {}))[0]
