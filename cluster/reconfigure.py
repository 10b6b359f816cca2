"""From one configuration of a running instance to another: backends, affinities, limits, queues. All or nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import NamedTuple

import structlog

from cluster.host import Host
from cluster.router import Router
from querator.config import INVALID, BackendConfig, Config, Problem, QueueConfig, option_name
from querator.config_sources import Reading, options, refusal
from querator.errors import Conflict, QueratorError, RequestFailed
from querator.waist import Backend, StorageError

OpenBackend = Callable[[BackendConfig], Awaitable[Backend]]

_VALUES = ("limits", "log")
LIVE = ("storage", "queues", *_VALUES)  # everything else needs a restart
_TOLD = 5  # queues in one message

_log = structlog.get_logger(__name__)


class Outcome(NamedTuple):
    changes: list[str]  # one line each
    removed: list[Backend]

    async def close_removed(self) -> None:
        for backend in self.removed:
            await _close(backend)


async def reconfigure(router: Router, old: Config, reading: Reading, open_backend: OpenBackend) -> Outcome:
    """Let what is read hold, except for the doors and the log. Raises, and changes nothing, if not all of it can."""
    new = reading.checked()
    async with router.management.changing() as host:
        problems = [*fixed_problems(old, new), *_changed_backends(old, new)]
        problems += [*_removed_backends(new, host), *_dead_queues(new, host)]
        if problems:
            raise refusal([reading.mistake(problem) for problem in problems])
        added = await _open_added(reading, new, host, open_backend)
        removed = [backend for name, backend in host.backends.items() if name not in _by_name(new)]
        created = await _apply(router, host, old, new, added)
        host.burial.soon()
    return Outcome([*_changes(old, new), *(f"queue '{name}' was created" for name in created)], removed)


def fixed_problems(old: Config, new: Config) -> Iterator[Problem]:
    """What cannot change while running, and has changed."""
    before, after = dict(options(old)), dict(options(new))
    live = {*LIVE, *(("listen",) if old.addresses() == new.addresses() else ())}  # one address, or a list of one
    for path in {**before, **after}:
        if path[0] not in live and before.get(path) != after.get(path):
            yield Problem(path, "cannot be changed while running", "restart to change it")


def _changed_backends(old: Config, new: Config) -> Iterator[Problem]:
    before = _by_name(old)
    for index, backend in enumerate(new.storage):
        if backend.name in before:
            for field in ("driver", "options"):
                if getattr(backend, field) != getattr(before[backend.name], field):
                    details = f"'{backend.name}' is open as it was; restart, or add a backend of another name"
                    yield Problem(("storage", index, field), "cannot be changed while running", details)


def _removed_backends(new: Config, host: Host) -> Iterator[Problem]:
    staying = _by_name(new)
    for name in host.backends:
        if name not in staying:
            queues = [queue.name for queue in host.catalog.all() if any(p.backend == name for p in queue.partitions)]
            if queues:
                told = ", ".join(f"'{queue}'" for queue in queues[:_TOLD])
                more = f" and {len(queues) - _TOLD} more" if len(queues) > _TOLD else ""
                details = f"backend '{name}' cannot be removed: it has partitions of {told}{more}"
                yield Problem(("storage",), INVALID, details)


def _dead_queues(new: Config, host: Host) -> Iterator[Problem]:
    declared = {queue.queue_name for queue in new.queues}
    for index, queue in enumerate(new.queues):
        if not queue.dead_queue or host.catalog.find(queue.queue_name) is not None:
            continue
        dead_queue = host.catalog.find(queue.dead_queue)
        path = ("queues", index, "dead_queue")
        if dead_queue is None and queue.dead_queue not in declared:
            yield Problem(path, INVALID, f"no queue is named '{queue.dead_queue}'")
        elif dead_queue is not None and dead_queue.settings.dead_queue:
            yield Problem(path, INVALID, f"'{queue.dead_queue}' has a dead queue of its own")


async def _open_added(reading: Reading, new: Config, host: Host, open_backend: OpenBackend) -> dict[str, Backend]:
    opened: dict[str, Backend] = {}
    for index, backend in enumerate(new.storage):
        if backend.name in host.backends:
            continue
        try:
            opened[backend.name] = await open_backend(backend)
        except BaseException as error:
            for each in opened.values():
                await _close(each)
            if isinstance(error, QueratorError | StorageError):
                place = reading.place(("storage", index))
                raise RequestFailed(f"{place}: backend '{backend.name}' cannot be opened", str(error)) from error
            raise
    return opened


async def _apply(router: Router, host: Host, old: Config, new: Config, added: dict[str, Backend]) -> list[str]:
    """Returns the queues that were made."""
    before = dict(host.backends)
    weights = {name: backend.affinity for name, backend in before.items()}
    affinities = {backend.name: backend.affinity for backend in new.storage}
    all_ = {**before, **added}
    host.set_backends({name: all_[name] for name in affinities}, affinities)
    router.management.update_limits(new.limits)
    created: list[str] = []
    try:
        for queue in missing_queues(new, host):
            await _create(router, queue, created)
    except BaseException:
        for queue_name in reversed(created):
            await router.management.remove(queue_name)
        await host.burial.bury()
        host.set_backends(before, weights)
        router.management.update_limits(old.limits)
        for backend in added.values():
            await _close(backend)
        raise
    return created


async def _create(router: Router, queue: QueueConfig, created: list[str]) -> None:
    try:
        await router.management.create(queue.settings())
    except Conflict as error:  # another instance reloads too
        _log.info("declared queue is made elsewhere", queue=queue.queue_name, reason=error.message)
    else:
        created.append(queue.queue_name)


def missing_queues(config: Config, host: Host) -> list[QueueConfig]:
    """Those that are declared and not there; what may be a dead queue comes first."""
    missing = [queue for queue in config.queues if host.catalog.find(queue.queue_name) is None]
    return sorted(missing, key=lambda queue: queue.dead_queue != "")


async def _close(backend: Backend) -> None:
    try:
        await backend.close()
    except StorageError as error:
        _log.warning("backend was not closed in order", backend=backend.name, error=str(error))


def _by_name(config: Config) -> dict[str, BackendConfig]:
    return {backend.name: backend for backend in config.storage}


def _changes(old: Config, new: Config) -> Iterator[str]:
    before = _by_name(old)
    for backend in new.storage:
        if backend.name not in before:
            yield f"backend '{backend.name}' was added"
        elif backend.affinity != before[backend.name].affinity:
            yield f"the affinity of backend '{backend.name}' is {backend.affinity}"
    for name in before.keys() - _by_name(new).keys():
        yield f"backend '{name}' was removed"
    values = dict(options(old))
    for path, value in options(new):
        if path[0] in _VALUES and values[path] != value:
            yield f"{option_name(path)} is {value}"
