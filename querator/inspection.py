"""Looking into a partition without leasing anything, and what goes in and out of it that way."""

from __future__ import annotations

import msgspec

from querator.items import Item


class ItemView(msgspec.Struct, frozen=True, kw_only=True):
    """An item as `storage/items.list` and `storage/scheduled.list` show it."""

    id: str
    item: Item
    created_at_ms: int
    expire_at_ms: int  # 0: does not expire
    is_leased: bool = False
    lease_deadline_ms: int = 0
    enqueue_at_ms: int = 0  # of a scheduled item
