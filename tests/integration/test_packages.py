"""The two distributions: what is in each wheel, and what a program sees that has only the client's wheel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import querator

ROOT = Path(__file__).resolve().parents[2]
SERVER_ROOMS = {"api", "cluster", "storage"}
SERVER_MODULES = SERVER_ROOMS | {
    "aiosqlite",
    "bench",
    "google",
    "grpc",
    "httptools",
    "prometheus_client",
    "sqlite3",
    "structlog",
    "uvloop",
    "yaml",
}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Both wheels, by the name of their distribution."""
    folder = tmp_path_factory.mktemp("wheels")
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "-w",
        folder,
    ]
    built = subprocess.run([*command, ROOT, ROOT / "deploy" / "server"], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return {path.name.split("-")[0].replace("_", "-"): path for path in folder.glob("*.whl")}


def top_level(wheel: Path) -> set[str]:
    names = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    return {name for name in names if not name.endswith(".dist-info")}


def sources(*rooms: str) -> set[str]:
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *rooms],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    return {path for path in listed.stdout.decode().split("\0") if path and (ROOT / path).is_file()}


def closure(requirements: list[str], extra: str = "") -> set[str]:
    """The distributions that these requirements bring, here and now."""
    found: set[str] = set()
    waiting = [(Requirement(text), extra) for text in requirements]
    while waiting:
        requirement, wanted_by = waiting.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": wanted_by}):
            continue
        name = canonicalize_name(requirement.name)
        if name not in found:
            found.add(name)
            inner = metadata.distribution(name).requires or []
            waiting += [(Requirement(text), each) for text in inner for each in (requirement.extras or {""})]
    return found


def show(distributions: set[str], folder: Path) -> None:
    """Make exactly these installed distributions importable from the folder."""
    for name in distributions:
        for file in metadata.distribution(name).files or []:
            top = file.parts[0]
            source = Path(str(metadata.distribution(name).locate_file(top)))
            if top != ".." and not (folder / top).exists():
                (folder / top).symlink_to(source)


def unpack(wheel: Path, folder: Path) -> list[str]:
    """Unpack the wheel as an installer would, and return what it requires."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(name).decode().splitlines()
    return [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]


def run_isolated(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run the code in a process that sees the standard library and the folder, nothing else."""
    path = f"import sys; sys.path.insert(0, {os.fspath(folder)!r})\n"
    command = [sys.executable, "-I", "-S", "-c", path + code]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def run_command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `querator` with the arguments in such a process."""
    start = f"sys.argv = {['querator', *arguments]!r}\nfrom querator.cli import main\nsys.exit(main())"
    return run_isolated(folder, start)


@pytest.fixture
def client_only(wheels: dict[str, Path], tmp_path: Path) -> Path:
    """A folder with the client's wheel and its dependencies."""
    show(closure(unpack(wheels["querator"], tmp_path)), tmp_path)
    return tmp_path


def test_the_client_distribution_holds_one_package(wheels: dict[str, Path]) -> None:
    """A user's program gets the name `querator` and no other, with every file of the package."""
    assert top_level(wheels["querator"]) == {"querator"}
    assert sources("querator") <= set(zipfile.ZipFile(wheels["querator"]).namelist())


def test_the_server_distribution_holds_the_rooms(wheels: dict[str, Path]) -> None:
    """A server gets its three rooms with every file of them (SQL and .proto too), and nothing of `querator`."""
    names = set(zipfile.ZipFile(wheels["querator-server"]).namelist())
    assert top_level(wheels["querator-server"]) == SERVER_ROOMS
    assert sources(*SERVER_ROOMS) <= names
    assert not [name for name in names if "__pycache__" in name]


def test_both_distributions_have_one_version() -> None:
    """The package and both distributions agree, and the server asks for exactly the client of its own version."""
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    server = tomllib.loads((ROOT / "deploy/server/pyproject.toml").read_text())["project"]
    assert server["version"] == ours["version"] == querator.__version__
    assert server["dependencies"] == [f"querator[server]=={ours['version']}"]


def test_importing_the_client_imports_no_server(client_only: Path) -> None:
    """`import querator` works with the client's dependencies alone and loads nothing that only a server needs."""
    touch_all = "import json, querator\nfor name in querator.__all__: getattr(querator, name)\n"
    done = run_isolated(client_only, touch_all + "print(json.dumps([*sys.modules]))")
    assert done.returncode == 0, done.stderr
    loaded = {name.split(".")[0] for name in json.loads(done.stdout)}
    assert "querator" in loaded
    assert not loaded & SERVER_MODULES


def test_consuming_without_grpc_says_what_to_install(client_only: Path) -> None:
    """`Client.consume` where only the light client is installed fails and names the extra to install."""
    code = (
        "import asyncio, querator\n"
        "async def main():\n"
        "    async with querator.Client() as client, client.consume('mail'): pass\n"
        "asyncio.run(main())"
    )
    done = run_isolated(client_only, code)
    assert "ModuleNotFoundError: consuming over gRPC needs grpcio and protobuf: install querator[grpc]" in done.stderr


def test_the_command_line_starts_without_the_server(client_only: Path) -> None:
    """`querator --help` works where only the client is installed."""
    done = run_command(client_only, "--help")
    assert done.returncode == 0, done.stderr
    assert "produce" in done.stdout


def test_serving_without_the_server_says_what_to_install(client_only: Path) -> None:
    """`querator serve` where only the client is installed fails and names the distribution to install."""
    done = run_command(client_only, "serve", "--listen", "127.0.0.1:0")
    assert done.returncode == 1, done.stderr
    assert "querator-server" in done.stderr
    assert "Traceback" not in done.stderr


def test_both_distributions_make_a_server(wheels: dict[str, Path], tmp_path: Path) -> None:
    """With both wheels and what they require the whole program can be imported from any folder."""
    needed = closure(unpack(wheels["querator"], tmp_path), "server")
    unpack(wheels["querator-server"], tmp_path)
    show(needed, tmp_path)
    done = run_isolated(tmp_path, "import querator.daemon, api, cluster, storage")
    assert done.returncode == 0, done.stderr
