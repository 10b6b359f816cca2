"""A limit on everything. Each may be set in the config file under ``limits``; the defaults are meant to be left alone."""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    # Of a request.
    produce_body_bytes: int = 5_000_000
    import_body_bytes: int = 64_000_000
    body_bytes: int = 256_000  # of every other call
    items_per_request: int = 1000  # produced, reserved or completed by one call
    min_timeout_ms: int = 10
    max_timeout_ms: int = 900_000
    default_timeout_ms: int = 60_000  # of a request that names none

    # Of a connection.
    connections: int = 10_000
    header_timeout_ms: int = 10_000  # from the first byte of a request to the end of its headers
    body_timeout_ms: int = 60_000  # from the end of the headers to the end of the body
    idle_timeout_ms: int = 120_000  # between two requests
    stop_grace_ms: int = 1500  # what running requests have when the server stops

    # Of a queue.
    partitions_per_queue: int = 1024
    waiting_requests: int = 20_000  # in the inbox of one logical queue, without waiting reserves
    waiting_reserves: int = 20_000
    block_items: int = 1000
    block_bytes: int = 262_144
    batch_items: int = 8_000  # written by one turn to one partition
    batch_bytes: int = 8_388_608
    window_items: int = 16_000  # decoded and ready, per partition
    window_bytes: int = 8_388_608
    held_bytes: int = 16_777_216  # payloads of leased items kept in memory, per partition
