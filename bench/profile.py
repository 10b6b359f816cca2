"""Where the server's time goes under a workload: py-spy's samples as a flame graph and as a table of functions."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.table import Table

from bench.contestants import Querator, database
from bench.environment import RESULTS
from bench.report import short
from bench.rounds import Case
from bench.server_process import ServerProcess
from bench.suite import Setting

_SAMPLES_PER_SECOND = 250


@dataclass(frozen=True, kw_only=True)
class Profile:
    case: Case
    rate: float  # items per second while being sampled
    raw: Path
    flame_graph: Path
    own: Counter[str]  # samples by the function that was running
    within: Counter[str]  # samples by every function on the stack
    samples: int

    def table(self, top: int) -> Table:
        title = f"{self.case}: {short(self.rate)} items/s while sampled, {self.samples} samples"
        table = Table(title=title, title_justify="left")
        for header in ("own", "with callees"):
            table.add_column(header, justify="right")
        table.add_column("function")
        for name, own in self.own.most_common(top):
            table.add_row(f"{own / self.samples:.1%}", f"{self.within[name] / self.samples:.1%}", name)
        return table


def profile_case(setting: Setting, case: Case, *, native: bool, idle: bool) -> Profile:
    """One round of the case, sampled over its measured part and a little more."""
    py_spy = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if py_spy is None:
        raise FileNotFoundError("py-spy is not installed; pip install py-spy")
    RESULTS.mkdir(parents=True, exist_ok=True)
    name = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-profile-{case.workload}-{case.batch}x{case.clients}"
    raw, flame_graph = RESULTS / f"{name}.txt", RESULTS / f"{name}.svg"
    with database(setting.folder / "database", setting.driver) as below:
        server = ServerProcess(setting.folder / "profiled", setting.driver, storage=below.options)
        server.start()
        try:
            setting.on_round(f"{case}, sampled")
            flags = [*(["--native"] if native else []), *(["--idle"] if idle else [])]
            pid = server.process.pid
            contestant = Querator("querator", server.address, pid)
            # One recording for the samples, one more for the picture: py-spy writes one format at a time.
            rate = _record(py_spy, pid, raw, [*flags, "--format", "raw"], contestant, case, setting)
            _record(py_spy, pid, flame_graph, [*flags, "--format", "flamegraph"], contestant, case, setting)
        finally:
            server.stop()
    own, within = count_samples(raw.read_text())
    return Profile(
        case=case, rate=rate, raw=raw, flame_graph=flame_graph, own=own, within=within, samples=sum(own.values())
    )


def _record(
    py_spy: str, pid: int, output: Path, flags: list[str], contestant: Querator, case: Case, setting: Setting
) -> float:
    command = [py_spy, "record", "--pid", str(pid), "--rate", str(_SAMPLES_PER_SECOND), "--threads", "--nonblocking"]
    # Without a duration it samples until it is interrupted; the round tells when.
    sampler = subprocess.Popen(
        [*command, "--duration", "unlimited", "--output", str(output), *flags],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        rate = contestant.run(case, setting.plan.timing).rate
    finally:
        sampler.send_signal(signal.SIGINT)
        _, errors = sampler.communicate()
    if not output.exists():
        raise RuntimeError(f"py-spy wrote nothing: {errors.decode(errors='replace').strip()}")
    return rate


def count_samples(raw: str) -> tuple[Counter[str], Counter[str]]:
    """Own samples and samples with callees, by function, from lines like ``outer;inner 12``."""
    own: Counter[str] = Counter()
    within: Counter[str] = Counter()
    for line in raw.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = stack.split(";")
        own[frames[-1]] += int(count)
        for frame in set(frames):
            within[frame] += int(count)
    return own, within
