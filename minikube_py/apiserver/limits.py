"""Limits on everything a client can make the server hold or wait for. Errors state the limit's value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """docs/reference/limits.md describes each limit and the response when it is exceeded.

    Names end in their unit: `_max` counts, `_bytes_max` bytes, `_timeout_s` seconds. 0 means no limit, where upstream
    allows that (`list_page_max`, `reads_in_flight_max`, `writes_in_flight_max`)."""

    # Connections
    connections_max: int = 20_000
    strangers_max: int = 512
    strangers_per_peer_max: int = 64
    stranger_patience_s: float = 1.0
    waiting_max: int = 8192
    waiting_per_peer_max: int = 4096
    header_bytes_max: int = 128 << 10
    headers_max: int = 128
    heads_bytes_max: int = 4 << 20
    header_timeout_s: float = 32.0
    idle_timeout_s: float = 90.0
    upgraded_idle_timeout_s: float = 14_400.0
    write_timeout_s: float = 60.0
    unsent_bytes_max: int = 256 << 20
    # Bodies
    body_bytes_max: int = 3 << 20
    bodies_bytes_max: int = 64 << 20
    body_timeout_s: float = 30.0
    workers_max: int = 2
    jobs_waiting_max: int = 64
    job_timeout_s: float = 20.0
    # Requests
    reads_in_flight_max: int = 400
    writes_in_flight_max: int = 200
    requests_max: int = 10_000
    request_timeout_s: float = 60.0
    list_page_max: int = 0
    list_slice: int = 500
    update_attempts_max: int = 32
    generate_name_attempts_max: int = 8
    fresh_timeout_s: float = 3.0
    # Watches
    watchers_max: int = 100_000
    watcher_queue_events: int = 100_000
    watcher_queue_bytes: int = 64 << 20
    watch_queues_bytes_max: int = 256 << 20
    history_events_max: int = 16_384
    history_bytes_max: int = 32 << 20
    watch_timeout_s: float = 1800.0
    bookmark_interval_s: float = 60.0

