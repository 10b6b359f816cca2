"""The preset that shows what several instances bring and cost: two workers against one, and the hop to the owner."""

from __future__ import annotations

import itertools
from contextlib import ExitStack

from bench.contestants import Querator
from bench.environment import describe
from bench.figures import ratios
from bench.generator import Timing
from bench.report import Claim, Report
from bench.rounds import Case, Contestant, Outcome, Round, compete
from bench.server_process import Control, ServerProcess
from bench.suite import Setting

CASE = Case(batch=1, clients=64)
WORKERS = 2


class AtInstance:
    """All clients talk to one of two workers: to the owner of the queue, or to the other one."""

    role = "querator"

    def __init__(self, name: str, address: str, *, owner: bool) -> None:
        self.name = name
        self._address = address
        self._owner = owner
        self._queues = itertools.count(1)

    def takes(self, case: Case) -> bool:  # noqa: ARG002 - part of the protocol
        return True

    def run(self, case: Case, timing: Timing) -> Round:
        control = Control(self._address)
        queue_name = f"bench-{self.name}-{next(self._queues)}"
        control.create(queue_name, case.partitions, logical_queues="1")
        try:
            return Querator(self.name, self._instance(control, queue_name)).run_on(control, queue_name, case, timing)
        finally:
            control.delete(queue_name)
            control.close()

    def _instance(self, control: Control, queue_name: str) -> str:
        """Its address, which is another one than that which the workers share."""
        owner = control.call("cluster.route", queue_name=queue_name)["partitions"][0]["instance"]
        instances = control.call("cluster.info")["instances"]
        addresses = [
            str(address)
            for instance in instances
            if (instance["id"] == owner) is self._owner
            for address in instance["addresses"]
        ]
        return next(address for address in addresses if address != self._address)


class Workers(Querator):
    """Clients at the address that the workers share, on a queue with a logical queue for each of them."""

    def __init__(self, name: str, server: ServerProcess, workers: int) -> None:
        super().__init__(name, server.address)
        self._workers = workers

    def create(self, control: Control, queue_name: str, case: Case) -> None:
        control.create(queue_name, max(case.partitions, self._workers), logical_queues=str(self._workers))


def run_cluster(setting: Setting) -> Report:
    outcomes: list[Outcome] = []
    with ExitStack() as stack:
        servers: dict[int, ServerProcess] = {}
        for workers in (1, WORKERS):
            options = {"workers": workers}
            servers[workers] = server = ServerProcess(setting.folder / f"workers-{workers}", options=options)
            stack.callback(server.stop)
            server.start()
        several = servers[WORKERS].address
        contestants: list[Contestant] = [
            Workers("one worker", servers[1], 1),
            Workers("two workers", servers[WORKERS], WORKERS),
            AtInstance("direct", several, owner=True),
            AtInstance("proxied", several, owner=False),
        ]
        outcomes = compete(CASE, contestants, setting.plan, setting.on_round)
    one, two, direct, proxied = outcomes
    claims = [
        Claim(text=f"{CASE}: two workers ÷ one", measured=ratios(two.rates, one.rates), wanted=1.0),
        Claim(
            text=f"{CASE}: cost of a proxied call ÷ a direct one",
            measured=ratios(direct.rates, proxied.rates),
            wanted=2.5,
            at_least=False,
        ),
    ]
    return Report(preset="cluster", environment=describe(setting.folder), outcomes=outcomes, claims=claims)
