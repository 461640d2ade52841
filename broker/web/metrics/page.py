"""Page: the lines of one scrape, in the text format of Prometheus (0.0.4) or in OpenMetrics (1.0).

The lines are written here and not by prometheus_client, which writes all of them at once: with ten thousand
partitions that would stop the broker for half a second. Tests read every page with its parsers.
Left to others: the values; what waits in between (exposition.py).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from .declared import BOUNDS_S, DECLARED, FIRST_BITS, LAST_BITS, QUANTILES, Kind, Metric

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

Quantiles = Iterable[tuple[str, float]]
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def labels_text(labels: Mapping[str, object]) -> str:
    """`{name="value",…}`; nothing for no labels."""
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{escaped(str(value))}"' for name, value in labels.items()) + "}"


def escaped(value: str) -> str:
    """The value of a label."""
    return value.translate(_ESCAPES)


class Page:
    """What one scrape has gathered. Lines of a metric may come in any order, in between those of others."""

    def __init__(self) -> None:
        self.lines: dict[str, list[str]] = {}  # by the metric's name

    def of(self, metric: Metric) -> list[str]:
        """The lines of this metric, to add some to."""
        return self.lines.setdefault(metric.name, [])

    def put(self, metric: Metric, value: float | int, /, **labels: object) -> None:
        """Add one series."""
        assert tuple(labels) in (metric.labels, ()), f"{metric.name} has the labels {metric.labels}"
        self.of(metric).append(f"{metric.name}{labels_text(labels)} {value}")

    def histogram(self, metric: Metric, counts: Sequence[int], sum_s: float, /, **labels: object) -> None:
        """Add a histogram of these buckets."""
        lines, name = self.of(metric), metric.name
        upto = list(accumulate(counts))
        for bound, count in zip(BOUNDS_S, upto[FIRST_BITS : LAST_BITS + 1], strict=True):
            lines.append(f"{name}_bucket{labels_text({**labels, 'le': bound})} {count}")
        lines.append(f"{name}_bucket{labels_text({**labels, 'le': '+Inf'})} {upto[-1]}")
        lines.append(f"{name}_count{labels_text(labels)} {upto[-1]}")
        lines.append(f"{name}_sum{labels_text(labels)} {sum_s}")

    def summary(
        self, metric: Metric, count: int, total: float | None, quantiles: Quantiles, /, **labels: object
    ) -> None:
        """Add a summary. `total` of None: it is not known."""
        lines, name = self.of(metric), metric.name
        lines += [f"{name}{labels_text({**labels, 'quantile': each})} {value}" for each, value in quantiles]
        lines.append(f"{name}_count{labels_text(labels)} {count}")
        if total is not None:
            lines.append(f"{name}_sum{labels_text(labels)} {total}")

    def written(self, is_open: bool) -> Iterator[bytes]:
        """The page in pieces, one for each metric; `is_open`: as OpenMetrics."""
        for metric in DECLARED:
            lines = self.lines.get(metric.name)
            if lines:
                yield heading(metric.name, metric.kind.value, metric.help, is_open) + _joined(lines)


def heading(name: str, kind: str, help: str, is_open: bool) -> bytes:
    """The lines before those of a metric. OpenMetrics names a counter without its `_total`."""
    told = name.removesuffix("_total") if is_open and kind == Kind.COUNTER else name
    text = help.replace("\\", r"\\").replace("\n", r"\n")
    text = text.replace('"', r"\"") if is_open else text
    return f"# HELP {told} {text}\n# TYPE {told} {kind}\n".encode()


def _joined(lines: list[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()


def quantiles_of(counts: Sequence[int]) -> Iterator[tuple[str, float]]:
    """The quantiles of durations in such buckets, in milliseconds; none if there are no durations.

    Within a bucket they are taken to be spread evenly, so one is wrong by less than a factor of two.
    """
    upto = list(accumulate(counts))
    if not upto[-1]:
        return
    for each in QUANTILES:
        rank = float(each) * upto[-1]
        place = min(next(place for place, count in enumerate(upto) if count >= rank), LAST_BITS)
        low, high = (1 << place) / 2, 1 << place
        within = min((rank - upto[place - 1]) / max(counts[place], 1), 1.0) if place else 0.0
        yield each, round((low + (high - low) * within) / 1e6, 6)
