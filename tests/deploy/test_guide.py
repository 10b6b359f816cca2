"""docs/guides/deploy.md against what it describes: its commands are shell, and do what the image does."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.deploy.containerfile import stages
from tests.docs.pages import ROOT, Example, examples, page

GUIDE = page("docs/guides/deploy.md")
UNIT = (ROOT / "deploy/systemd/querator.service").read_text(encoding="utf-8")


@pytest.mark.parametrize("example", examples(GUIDE, "sh"), ids=lambda example: example.code[:30])
def test_commands_are_shell(example: Example) -> None:
    """A shell reads every block without complaint."""
    read = subprocess.run(["sh", "-n"], input=example.code, capture_output=True, text=True, check=False)
    assert (read.returncode, read.stderr) == (0, "")


def test_the_program_is_installed_as_in_the_image() -> None:
    """The steps by hand are those of the image's first stage, which a test runs."""
    steps = [run.rest for run in stages(ROOT / "deploy/Containerfile")[0].all("RUN")]
    by_hand = examples(GUIDE, "sh")[0].code.splitlines()
    assert by_hand == [f"sudo {step}" for step in steps]


def test_what_is_installed_is_there_and_where_the_unit_looks() -> None:
    """Every file that is installed is in the repository, and those that the unit reads go where it reads them."""
    code = "\n".join(example.code for example in examples(GUIDE, "sh"))
    installed = dict(re.findall(r"install (?:-D )?-m \d+ (deploy/\S+) (\S+)", code))
    assert [source for source in installed if not (ROOT / source).is_file()] == []
    assert {Path(source).name for source in installed} == {"querator.sysusers", "single.yaml", "querator.service"}
    assert f"--config {installed['deploy/examples/single.yaml']}\n" in UNIT
    assert "EnvironmentFile=-/etc/querator/environment\n" in UNIT
    assert "install -m 0600 /dev/null /etc/querator/environment" in code
