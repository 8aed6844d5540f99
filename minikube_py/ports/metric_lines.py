"""Prometheus' text format for counters and gauges that a process counts itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping


def lines_of(gauges: Mapping[str, float], known: Mapping[str, tuple[str, str]] | None = None) -> Iterator[str]:
    """Names in `gauges` may carry labels in braces. `known`: type and help of a metric by name; others have the type
    that their name says. Lines of one metric are grouped, as the format requires."""
    families: dict[str, list[str]] = {}
    for name, value in gauges.items():
        family, kind = _family(name.partition("{")[0])
        kind, what = (known or {}).get(family, (kind, ""))
        told = [f"# HELP {family} {what}"] if what else []
        lines = families.setdefault(family, [*told, f"# TYPE {family} {kind}"])
        lines.append(f"{name} {int(value) if float(value).is_integer() else value}")
    for lines in families.values():
        yield from lines


def _family(name: str) -> tuple[str, str]:
    """Buckets come before sum and count; summaries have none."""
    for end, kind in (("_bucket", "histogram"), ("_sum", "summary"), ("_count", "summary")):
        if name.endswith(end):
            return name.removesuffix(end), kind
    return name, "counter" if name.endswith("_total") else "gauge"
