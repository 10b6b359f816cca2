"""The compose file and what it mounts: names meet names, files are there, nothing is open that should not be."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from querator.limits import Limits
from storage.postgres_options import PostgresOptions
from tests.deploy.containerfile import stages

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
FILE = DEPLOY / "compose.yaml"
VARIABLE = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")
PROFILES = {
    "cluster": {"etcd"},
    "observability": {"collector", "grafana", "jaeger", "prometheus"},
}
WITHOUT_SHELL = {"collector"}  # its image holds one program, which cannot ask itself
IN_IMAGE = {"querator"}  # the container file has its health check


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def filled(text: str) -> str:
    """With the defaults of its variables."""
    return VARIABLE.sub(lambda found: found[3] if found[2] == "-" else "secret", text)


def services() -> dict[str, Any]:
    return dict(yaml.safe_load(filled(FILE.read_text(encoding="utf-8")))["services"])


def mounts(service: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for mount in service.get("volumes", []):
        source, target, *_ = mount.split(":")
        yield source, target


@pytest.fixture(params=services())
def service(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return request.param, services()[request.param]


def test_an_engine_would_take_the_file() -> None:
    """Where there is a client with compose, it reads the file with all profiles without complaint."""
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("there is no `docker compose` here; the other tests read the file themselves")
    command = [docker, "compose", "-f", str(FILE), "--env-file", str(DEPLOY / "env.example")]
    given = {"PATH": "/usr/bin:/bin", "POSTGRES_PASSWORD": "secret", "GRAFANA_PASSWORD": "secret"}
    done = subprocess.run(
        [*command, "--profile", "*", "config", "-q"], env=given, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_without_a_profile_there_is_the_server_and_its_database() -> None:
    """Everything else is in the profile it belongs to."""
    found: dict[str, set[str]] = {}
    for name, each in services().items():
        for profile in each.get("profiles", [""]):
            found.setdefault(profile, set()).add(name)
    assert found == {"": {"querator", "postgres"}, **PROFILES}


def test_whom_a_service_needs_is_there_with_it(service: tuple[str, dict[str, Any]]) -> None:
    """A service depends on such that start in its own profile or always, healthy where it waits for that."""
    _, each = service
    needed = each.get("depends_on", [])
    for name in needed:
        other = services()[name]
        assert set(other.get("profiles", [])) <= set(each.get("profiles", []))
        if isinstance(needed, dict):
            assert needed[name] == {"condition": "service_healthy"}
            assert "healthcheck" in other


def test_mounts_exist(service: tuple[str, dict[str, Any]]) -> None:
    """Every file and folder that is mounted is in the repository, and every volume is declared."""
    _, each = service
    volumes = read(FILE)["volumes"]
    for source, _ in mounts(each):
        assert (DEPLOY / source).exists() if source.startswith(".") else source in volumes, source


def test_services_come_back_and_say_how_they_are(service: tuple[str, dict[str, Any]]) -> None:
    """Each restarts by itself, has a tag or is built here, gains no privileges, and has a health check if it can."""
    name, each = service
    assert each["restart"] == "unless-stopped"
    assert re.search(r":[\w.-]*[\w]$", each["image"])
    assert not each["image"].endswith(":latest")
    assert each["security_opt"] == ["no-new-privileges:true"]
    assert ("healthcheck" in each) == (name not in WITHOUT_SHELL | IN_IMAGE)


def test_only_this_machine_can_connect(service: tuple[str, dict[str, Any]]) -> None:
    """Every published port is on the loopback address."""
    _, each = service
    assert [port for port in each.get("ports", []) if not port.startswith("127.0.0.1:")] == []


def test_passwords_are_asked_for() -> None:
    """No password has a default or stands in the file, and the example of the environment names all variables."""
    text = FILE.read_text(encoding="utf-8")
    secrets = [(name, value) for name, value in re.findall(r"(\w*PASSWORD\w*): (.*)", text)]
    assert len(secrets) == 3
    for name, value in secrets:
        assert re.match(r"\$\{\w+:\?", value), f"{name} is not required"
    example = (DEPLOY / "env.example").read_text(encoding="utf-8")
    named = set(re.findall(r"^#?(\w+)=", example, re.MULTILINE))
    assert named - {"COMPOSE_PROFILES"} == {found[1] for found in VARIABLE.finditer(text)}
    assert re.findall(r"^(\w+)=$", example, re.MULTILINE) == ["POSTGRES_PASSWORD", "GRAFANA_PASSWORD"]
    for variable, default in re.findall(r"^#(\w+)=(.*)$", example, re.MULTILINE):
        defaults = {found[3] for found in VARIABLE.finditer(text) if found[1] == variable}
        assert defaults == {default} or variable == "COMPOSE_PROFILES"


def test_the_server_gets_what_its_image_expects() -> None:
    """The image's port is published, its volume is kept, and the configuration is a file of the mounted folder."""
    querator = services()["querator"]
    image = stages(DEPLOY / "Containerfile")[-1]
    assert querator["ports"][0].endswith(f":{image.one('EXPOSE').rest}")
    targets = {target: source for source, target in mounts(querator)}
    assert targets[image.one("VOLUME").arguments[0]] in read(FILE)["volumes"]
    serve, flag, path = querator["command"]
    assert (serve, flag) == ("serve", "--config")
    folder = next(target for target in targets if path.startswith(f"{target}/"))
    assert (DEPLOY / targets[folder] / path.removeprefix(f"{folder}/")).exists()
    build = querator["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).resolve() == DEPLOY / "Containerfile"


def test_the_server_has_time_and_files() -> None:
    """A stop is granted longer than the server and its commits take, and files for more than its connections."""
    querator = services()["querator"]
    longest_ms = Limits().stop_grace_ms + PostgresOptions(dsn="").command_timeout_s * 1000
    assert int(querator["stop_grace_period"].removesuffix("s")) * 1000 > longest_ms
    assert querator["ulimits"]["nofile"] > Limits().connections


def test_the_examples_name_services() -> None:
    """The database and the collector of the examples are services here, with the user and the database made for them."""
    known = services()
    made = known["postgres"]["environment"]
    for path in sorted((DEPLOY / "examples").glob("*.yaml")):
        example = read(path)
        for backend in example["storage"]:
            if "dsn" in backend["options"]:
                dsn = f"postgresql://{made['POSTGRES_USER']}@postgres/{made['POSTGRES_DB']}"
                assert backend["options"]["dsn"] == dsn
        endpoint = example.get("telemetry", {}).get("otlp_endpoint")
        if endpoint:
            receiver = read(DEPLOY / "otel/collector.yaml")["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"]
            assert endpoint == f"http://collector:{receiver.rpartition(':')[2]}"


def test_traces_pass_through_what_is_declared() -> None:
    """The collector's pipelines use declared parts, all of them, and hand traces to a service."""
    collector = read(DEPLOY / "otel/collector.yaml")
    for kind in ("receivers", "processors", "exporters"):
        used = {part for pipeline in collector["service"]["pipelines"].values() for part in pipeline[kind]}
        assert used == set(collector[kind])
    assert collector["exporters"]["otlp"]["endpoint"].partition(":")[0] in services()


def test_metrics_are_scraped_from_the_server() -> None:
    """Prometheus asks the server at its port, and reads rules from files beside its own."""
    prometheus = read(DEPLOY / "prometheus/prometheus.yml")
    targets = [t for job in prometheus["scrape_configs"] for each in job["static_configs"] for t in each["targets"]]
    assert targets == [f"querator:{stages(DEPLOY / 'Containerfile')[-1].one('EXPOSE').rest}"]
    assert [name for name in prometheus["rule_files"] if not (DEPLOY / "prometheus" / name).exists()] == []


def test_grafana_finds_sources_and_dashboard() -> None:
    """Grafana's sources are services at their ports, and the dashboard is mounted where it is looked for."""
    folder = DEPLOY / "grafana/provisioning"
    sources = read(folder / "datasources/querator.yaml")["datasources"]
    assert {source["type"] for source in sources} == {"prometheus", "jaeger"}
    for source in sources:
        host, port = source["url"].removeprefix("http://").split(":")
        assert any(published.endswith(f":{port}") for published in services()[host]["ports"])
    (provider,) = read(folder / "dashboards/querator.yaml")["providers"]
    dashboards = [target for _, target in mounts(services()["grafana"]) if target.endswith(".json")]
    assert [str(Path(dashboard).parent) for dashboard in dashboards] == [provider["options"]["path"]]
