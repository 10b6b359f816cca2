"""Looking into partitions and at backends: `storage/*` and `storage.*`."""

from __future__ import annotations

from msgspec import UNSET

from api.checks import check_count, check_limit, fit_int32, read_instant
from cluster.router import Router
from querator import wire
from querator.durations import to_instant
from querator.errors import InvalidRequest
from querator.inspection import ItemView
from querator.items import Item
from querator.limits import Limits


class StorageCalls:
    def __init__(self, router: Router, limits: Limits) -> None:
        self._router = router
        self._limits = limits

    async def list_items(self, request: wire.StorageListRequest, _extended: bool) -> wire.StorageListAnswer:
        limit = check_limit(request.limit, self._limits)
        views = await self._router.list_items(request.queue_name, request.partition, request.pivot, limit)
        return wire.StorageListAnswer(items=self._shown(request.queue_name, views))

    async def list_scheduled(self, request: wire.StorageListRequest, _extended: bool) -> wire.StorageListAnswer:
        limit = check_limit(request.limit, self._limits)
        views = await self._router.list_scheduled(request.queue_name, request.partition, request.pivot, limit)
        return wire.StorageListAnswer(items=self._shown(request.queue_name, views))

    async def import_items(self, request: wire.ImportRequest, _extended: bool) -> wire.ImportAnswer:
        check_count("items", len(request.items), self._limits)
        now_ms = self._router.clock.now_ms()
        items = [_imported(index, item, now_ms) for index, item in enumerate(request.items)]
        views = await self._router.import_items(request.queue_name, request.partition, items)
        return wire.ImportAnswer(items=self._shown(request.queue_name, views))

    async def delete_items(self, request: wire.StorageDeleteRequest, _extended: bool) -> None:
        check_count("ids", len(request.ids), self._limits)
        await self._router.delete_items(request.queue_name, request.partition, request.ids)

    async def list_backends(self, _request: wire.BackendsRequest, _extended: bool) -> wire.BackendsAnswer:
        health = await self._router.health()
        backends = [
            wire.BackendInfo(
                name=backend.name,
                driver=backend.driver,
                affinity=backend.affinity,
                healthy=health[backend.name].ok,
                details=health[backend.name].details,
                partitions=fit_int32(backend.partitions),
            )
            for backend in self._router.backends()
            if backend.name in health
        ]
        return wire.BackendsAnswer(backends=backends)

    def _shown(self, queue_name: str, views: list[ItemView]) -> list[wire.StorageItem]:
        max_attempts = self._router.queue(queue_name).settings.max_attempts
        return [_storage_item(view, max_attempts) for view in views]


def _storage_item(view: ItemView, max_attempts: int) -> wire.StorageItem:
    item = view.item
    return wire.StorageItem(
        id=view.id,
        source_id=item.origin.id if item.origin is not None else "",
        is_leased=view.is_leased,
        lease_deadline=to_instant(view.lease_deadline_ms) if view.lease_deadline_ms else UNSET,
        expire_deadline=to_instant(view.expire_at_ms) if view.expire_at_ms else UNSET,
        created_at=to_instant(view.created_at_ms) if view.created_at_ms else UNSET,
        enqueue_at=to_instant(view.enqueue_at_ms) if view.enqueue_at_ms else UNSET,
        attempts=item.attempts + 1 if view.is_leased else item.attempts,
        max_attempts=max_attempts,
        reference=item.reference,
        encoding=item.encoding,
        kind=item.kind,
        payload=item.payload,
    )


def _imported(index: int, item: wire.StorageItem, now_ms: int) -> Item:
    """A new, ready item. Its old id, lease and place say nothing here, and are not taken over."""
    if item.attempts < 0:
        raise InvalidRequest(f"items[{index}].attempts is invalid", "it must not be negative")
    if item.enqueue_at is not UNSET and read_instant(item.enqueue_at) > now_ms:
        raise InvalidRequest(f"items[{index}].enqueue_at is invalid", "scheduled items are produced, not imported")
    return Item(
        item.payload,
        item.encoding,
        item.kind,
        item.reference,
        item.attempts,
        0 if item.created_at is UNSET else read_instant(item.created_at),
        0 if item.expire_deadline is UNSET else read_instant(item.expire_deadline),
    )
