"""Renders docs/metrics.md from the declarations of the metrics.

Left to others: the declarations (broker/web/metrics/declared.py), what to watch (docs/operations.md).
"""

from collections.abc import Iterator

from ...broker.web.metrics.declared import BOUNDS_S, DECLARED, QUANTILES, Metric, Scope

PREFACE = """# Metrics

What a broker tells at `/metrics` (see [operations](operations.md#prometheus)). Names that begin with `kafka_`
are those of Kafka under the usual rules of the JMX exporter, and of kafka_exporter for consumer groups and
offsets, so that dashboards made for them work. Where Kafka has a rate, this has a count: `rate()` makes it
one. Beyond these there are `process_*` and `python_*`, from Prometheus's Python client.

Each broker tells of itself. What the controller knows of the cluster (its section below) is told by the
controller alone, but for `activecontrollercount` and `offlinepartitionscount`, which are 0 elsewhere.

A summary has the quantiles {quantiles} of the last minute, or of the
time since the last scrape if that is longer, in milliseconds; its `_count`; and its `_sum` since the start. A
histogram counts since the start, in buckets from {first} µs to {last} s, each twice as wide as that before.
Within a bucket durations are taken to be spread evenly, so a quantile is wrong by less than a factor of two.

Of more than about a thousand requests a second a random sample is timed, and each counts in these for as many
as it stands for. `kafka_network_requestmetrics_requests_total` counts every request.

Metrics of single partitions, topics and groups (third column) are left out if there are more than
`strandline.web.metrics.partitions.max` of them; `strandline_series_left_out` says so, and totals stay. A
partition has 5 series on a broker that follows it and 11 on the one that leads it, a topic 6, a group 3 and 2
for each committed offset.
"""


def metrics() -> str:
    """The whole page."""
    quantiles = f"{', '.join(QUANTILES[:-1])} and {QUANTILES[-1]}"
    first, last = f"{BOUNDS_S[0] * 1e6:.0f}", f"{BOUNDS_S[-1]:.0f}"
    return PREFACE.format(quantiles=quantiles, first=first, last=last) + "\n".join(_sections()) + "\n"


def _sections() -> Iterator[str]:
    section = ""
    for metric in DECLARED:
        if metric.section != section:
            section = metric.section
            yield from ("", f"## {section}", "", "| metric | type | of each | labels | meaning |")
            yield "|---|---|---|---|---|"
        yield _row(metric)


def _row(metric: Metric) -> str:
    scope = "" if metric.scope is Scope.BROKER else metric.scope.value
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.kind.value} | {scope} | {labels} | {metric.help} |"
