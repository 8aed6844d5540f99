"""Limits on everything a client can make the server hold. Each says its value when it is hit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """`body_bytes_max` is the original's limit on request bodies. A watcher that holds more than
    `watcher_queue_events` or `watcher_queue_bytes` of undelivered events is cut off, alone.

    `history_events_max` and `history_bytes_max` bound, per resource, the events kept for watches that resume.
    `list_page_max` bounds a page whatever `limit` asks for (0: no bound; the original has none). `health_timeout_s`:
    how long a health check waits for the store.
    """

    body_bytes_max: int = 3 << 20
    url_bytes_max: int = 64 << 10
    header_bytes_max: int = 64 << 10
    headers_max: int = 128
    watchers_max: int = 100_000
    requests_max: int = 10_000
    list_page_max: int = 0
    watcher_queue_events: int = 100_000
    watcher_queue_bytes: int = 64 << 20
    history_events_max: int = 16_384
    history_bytes_max: int = 32 << 20
    request_timeout_s: float = 60.0
    watch_timeout_s: float = 1800.0
    fresh_timeout_s: float = 3.0
    health_timeout_s: float = 2.0
    bookmark_interval_s: float = 60.0
    list_slice: int = 500
    update_attempts_max: int = 32
    generate_name_attempts_max: int = 8
    json_depth_max: int = 10_000
