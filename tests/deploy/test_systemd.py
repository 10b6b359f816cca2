"""The systemd unit: systemd itself reads it without complaint, and it fits the server that it runs."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from querator.cli.config import config
from querator.cli.server import serve
from querator.limits import Limits
from storage.postgres_options import PostgresOptions
from tests.deploy.program import documented, program

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "deploy/systemd/querator.service"
USERS = ROOT / "deploy/systemd/querator.sysusers"
PREFIX = "/opt/querator/bin/querator"
EXPOSURE = "20"  # of 100, by systemd's own estimate of what a service could do


def options(name: str) -> list[str]:
    """The values of an option, in order."""
    return re.findall(rf"^{name}=(.*)$", UNIT.read_text(encoding="utf-8"), re.MULTILINE)


def option(name: str) -> str:
    (value,) = options(name)
    return value


@pytest.fixture
def analyze() -> str:
    found = shutil.which("systemd-analyze")
    if found is None:
        pytest.skip("there is no systemd-analyze here")
    return found


def test_systemd_takes_the_unit(analyze: str, tmp_path: Path) -> None:
    """`systemd-analyze verify` has nothing to say, once the program is where it looks for it."""
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text(encoding="utf-8").replace(PREFIX, str(program())), encoding="utf-8")
    done = subprocess.run([analyze, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False)
    about_it = [line for line in (done.stdout + done.stderr).splitlines() if UNIT.name in line]
    assert (done.returncode, about_it) == (0, [])


def test_the_service_can_do_little(analyze: str) -> None:
    """By systemd's estimate the service is closed off well."""
    command = [analyze, "security", "--offline=true", f"--threshold={EXPOSURE}", str(UNIT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze cannot estimate a file")
    assert done.returncode == 0, done.stdout[-500:] + done.stderr


def test_the_command_is_one_of_the_program() -> None:
    """What is started is a command of `querator`, with flags that it has."""
    path, name, *arguments = option("ExecStart").split()
    assert (path, name) == (PREFIX, serve.name)
    flags = {flag for parameter in serve.params for flag in parameter.opts}
    assert {argument for argument in arguments if argument.startswith("-")} <= flags


def test_a_reload_checks_the_file_first() -> None:
    """Before the server is told to read its file again, that same file is checked by a command that the program has."""
    check, signal = options("ExecReload")
    file = option("ExecStart").split()[-1]
    assert check.split() == [PREFIX, config.name, config.commands["check"].name, file]
    assert signal == "/bin/kill -HUP $MAINPID"


def test_the_data_lies_in_the_state_directory() -> None:
    """The server writes to the folder that systemd makes for it, and to no other: all else is read-only."""
    folder = f"/var/lib/{option('StateDirectory')}"
    variables = dict(each.split("=") for each in options("Environment"))
    assert variables == {"QUERATOR_DATA_DIR": folder}
    assert variables.keys() <= documented()
    assert option("ProtectSystem") == "strict"
    assert option("WorkingDirectory") == folder


def test_the_unit_fits_the_limits() -> None:
    """A stop is granted longer than the server and its commits take, and files for more than its connections."""
    longest_ms = Limits().stop_grace_ms + PostgresOptions(dsn="").command_timeout_s * 1000
    assert int(option("TimeoutStopSec")) * 1000 > longest_ms
    assert int(option("LimitNOFILE")) > Limits().connections


def test_the_user_of_the_unit_is_declared() -> None:
    """The file for systemd-sysusers makes the user that the unit names, with the same home."""
    line = USERS.read_text(encoding="utf-8").splitlines()[-1].split()
    assert line[:2] == ["u", option("User")]
    assert option("WorkingDirectory") in line


def test_sysusers_makes_the_user(tmp_path: Path) -> None:
    """`systemd-sysusers` takes the file, and afterwards the user is there."""
    sysusers = shutil.which("systemd-sysusers")
    if sysusers is None:
        pytest.skip("there is no systemd-sysusers here")
    (tmp_path / "etc").mkdir()
    done = subprocess.run([sysusers, f"--root={tmp_path}", str(USERS)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"\n{option('User')}:" in "\n" + (tmp_path / "etc/passwd").read_text(encoding="utf-8")
