"""The image: what its file names exists, and its steps, done in a plain folder, give a server that runs as it says."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from querator import Client
from tests.deploy.containerfile import Instruction, Stage, allowed, stages
from tests.deploy.program import ANY_PORT, documented, environment, serving

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "deploy/Containerfile"
LOCKED = ROOT / "requirements/server.txt"
DOWNLOADS = "--require-hashes"


@pytest.fixture(scope="module")
def build() -> Stage:
    return stages(FILE)[0]


@pytest.fixture(scope="module")
def image() -> Stage:
    return stages(FILE)[-1]


def copied(stage: Stage) -> list[tuple[list[str], str]]:
    """Sources and target of every COPY from the checkout."""
    plain = [each.arguments for each in stage.all("COPY") if "from" not in each.flags]
    return [(sources, target) for *sources, target in plain]


def commands() -> list[Instruction]:
    return [run for stage in stages(FILE) for run in stage.all("RUN")]


def tracked(path: str) -> list[str]:
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", path],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    return [name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


def test_exactly_what_is_copied_reaches_the_engine(build: Stage) -> None:
    """Every source of a COPY exists, and the ignore file lets through these and nothing else."""
    sources = {source for each, _ in copied(build) for source in each}
    assert [source for source in sources if not (ROOT / source).exists()] == []
    assert sources == set(allowed(ROOT / ".dockerignore"))


def test_the_image_takes_nothing_from_the_checkout_but_what_was_built(build: Stage, image: Stage) -> None:
    """The last stage copies from the first one alone, and to where it was built, since its paths are in its scripts."""
    assert copied(image) == []
    copy = image.one("COPY")
    assert copy.flags == {"from": build.name}
    source, target = copy.arguments
    assert source == target
    assert f"venv {source}" in build.all("RUN")[0].rest


@pytest.mark.parametrize("run", commands(), ids=lambda run: run.rest[:40])
def test_commands_are_shell(run: Instruction) -> None:
    """A shell reads every RUN without complaint."""
    read = subprocess.run(["sh", "-n"], input=run.rest, capture_output=True, text=True, check=False)
    assert (read.returncode, read.stderr) == (0, "")


def test_bases_are_named_by_tag() -> None:
    """Both stages stand on the same Python, which is one that the project takes."""
    first, last = stages(FILE)
    tag = re.fullmatch(r"docker\.io/library/python:(\d+\.\d+)-slim", first.base)
    assert tag is not None
    assert first.base == last.base
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["requires-python"] == f">={tag[1]}"


def test_the_label_bears_the_version(image: Stage) -> None:
    """The image says the version of the program in it."""
    assert image.one("ARG").arguments == [f"VERSION={metadata.version('querator')}"]
    assert 'image.version="${VERSION}"' in image.one("LABEL").rest


def test_the_server_is_nobody_special(image: Stage) -> None:
    """It runs under the numbers of the user that was made, who owns the volume."""
    (made,) = (run.rest for run in image.all("RUN"))
    number, group = image.one("USER").arguments[0].split(":")
    assert int(number) > 0
    assert f"--uid {number} --gid {group}" in made
    assert f"install -d -o {number} -g {group}" in made
    (volume,) = image.one("VOLUME").arguments
    assert image.environment()["QUERATOR_DATA_DIR"] == volume
    assert made.endswith(volume)


def test_the_environment_is_one_that_the_server_reads(image: Stage) -> None:
    """Every variable for the server is known to it, and it listens where the image says, on all addresses."""
    ours = {name: value for name, value in image.environment().items() if name.startswith("QUERATOR_")}
    assert ours.keys() <= documented()
    assert ours["QUERATOR_LISTEN"] == f"0.0.0.0:{image.one('EXPOSE').rest}"


@pytest.fixture(scope="module")
def installed(build: Stage, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The virtual environment that the steps of the first stage make, under a folder instead of the root.

    What one step downloads is linked from here instead: the same locked distributions.
    """
    root = tmp_path_factory.mktemp("image")
    workdir = root / build.one("WORKDIR").rest.strip("/")
    workdir.mkdir(parents=True)
    prefix = root / "opt/querator"
    for step in build.instructions:
        if step.word == "COPY":
            *sources, target = step.arguments
            copy(sources, workdir / target)
        elif step.word == "RUN" and DOWNLOADS in step.rest:
            link_locked(prefix)
        elif step.word == "RUN":
            code = step.rest.replace("/opt/querator", str(prefix)).replace("python3 ", f"{sys.executable} ")
            done = subprocess.run(
                ["sh", "-euc", code], cwd=workdir, env=environment({}), capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{step.rest}\n{done.stdout}\n{done.stderr}"
    return prefix


def copy(sources: list[str], target: Path) -> None:
    for source in sources:
        for name in tracked(source):
            inner = os.path.relpath(name, source) if (ROOT / source).is_dir() else ""
            to = target / (inner or (Path(name).name if len(sources) > 1 else "."))
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, to)


def link_locked(prefix: Path) -> None:
    """Make what the lock file names, in its version, importable from the environment."""
    (packages,) = prefix.glob("lib/python*/site-packages")
    lines = re.findall(r"^([\w.-]+)==(\S+)(.*)", LOCKED.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(lines) > 20
    for name, version, rest in lines:
        if ";" in rest:  # only on other platforms or versions of Python
            continue
        distribution = metadata.distribution(name)
        assert distribution.version == version, f"{name} is not the locked one; run make test"
        for top in {file.parts[0] for file in distribution.files or []} - {"..", "__pycache__"}:
            if not (packages / top).exists():
                (packages / top).symlink_to(Path(str(distribution.locate_file(top))))


def health_check(image: Stage, installed: Path) -> list[str]:
    _, _, command = image.one("HEALTHCHECK").rest.partition(" CMD ")
    name, *arguments = json.loads(command)
    return [str(installed / "bin" / name), *arguments]


async def test_the_steps_make_a_server(installed: Path, image: Stage, tmp_path: Path) -> None:
    """What the steps install serves with the image's environment, passes its health check, and stops at its signal."""
    command = [*image.one("ENTRYPOINT").arguments, *image.one("CMD").arguments]
    env = image.environment() | {
        "PATH": f"{installed}/bin:{os.environ['PATH']}",
        "QUERATOR_LISTEN": ANY_PORT,
        "QUERATOR_DATA_DIR": str(tmp_path / "data"),
        "QUERATOR_LOG_FORMAT": "json",
    }
    asked = health_check(image, installed)
    async with serving(installed / "bin" / command[0], *command[1:], folder=tmp_path, env=env) as server:
        async with Client(server.url) as client:
            await client.create_queue("mail")
            await client.produce("mail", "hello")
        well = subprocess.run(asked, env=environment({"QUERATOR_URL": server.url}), capture_output=True, check=False)
        assert well.returncode == 0, well.stderr
        assert await server.end(signal.Signals[image.one("STOPSIGNAL").rest]) == 0
    assert (tmp_path / "data/local-0.db").exists()
    ill = subprocess.run(asked, env=environment({"QUERATOR_URL": server.url}), capture_output=True, check=False)
    assert ill.returncode == 1
