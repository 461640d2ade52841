"""Checks of what lies in logs: formats of messages, codecs, records in remote storage. Pure.

Left to others: how a log's beginning is read (ask_cluster.py, ask_files.py).
"""

import re
from collections.abc import Iterator

from ....protocol.compression import Codec
from ..findings import Finding, Fine, Severity, named, plural
from .checks_settings import REMOTE
from .facts import MigrationFacts
from .remedies import COPY

FORMAT = 2
FORMAT_SINCE = (0, 11)
IGNORED_SINCE = (3, 0)  # by brokers that speak this version or a later one among themselves
TOPICS_FORMAT, BROKERS_FORMAT = "message.format.version", "log.message.format.version"
SPOKEN = "inter.broker.protocol.version"
SYSTEM = "remote.log.storage.system.enable"


def check_records(facts: MigrationFacts) -> Iterator[Finding | Fine]:
    """All that is to be said of records as they are kept."""
    yield from _written_in_an_old_format(facts)
    yield from _heads(facts)
    yield from _segments(facts)
    yield from _remote(facts)


def version_of(text: str | None) -> tuple[int, ...] | None:
    """`3.9-IV0` as numbers that can be compared; None if it is no version."""
    found = re.match(r"\d+(\.\d+)*", text or "")
    return tuple(map(int, found[0].split("."))) if found else None


def spoken_by(facts: MigrationFacts) -> dict[int, str]:
    """The version that each live broker of Kafka speaks with others, if it tells."""
    return {
        id: said for id in facts.kafkas if (said := facts.cluster.live[id].configs.get(SPOKEN)) is not None
    }


def _written_in_an_old_format(facts: MigrationFacts) -> Iterator[Finding]:
    spoken = [version_of(said) for said in spoken_by(facts).values()]
    if not any(version is not None and version < IGNORED_SINCE for version in spoken):
        return  # what the setting says counts no more
    wanted = {f"topic {name}": one.get(TOPICS_FORMAT) for name, one in (facts.topics or {}).items()}
    wanted |= {where: one.get(BROKERS_FORMAT) for where, one in facts.brokers.items()}
    old = [where for where, text in wanted.items() if (version_of(text) or FORMAT_SINCE) < FORMAT_SINCE]
    if old:
        yield Finding(
            Severity.CRITICAL,
            "old_format_written",
            ", ".join(old),
            f"{named(old)}: messages are still written in a format from before Kafka 0.11",
            f"set {SPOKEN} to 3.0 or later, after which {TOPICS_FORMAT} counts no more; see that no client "
            "is older than Kafka 0.11",
            (),
            {"where": old},
        )


def _heads(facts: MigrationFacts) -> Iterator[Finding | Fine]:
    if facts.heads is None:
        return
    old = {str(tp): head.magic for tp, head in sorted(facts.heads.items()) if head.magic < FORMAT}
    unknown = {
        str(tp): head.codec for tp, head in sorted(facts.heads.items()) if head.codec not in list(Codec)
    }
    formats = sorted({f"v{magic}" for magic in old.values()})
    if old:
        yield Finding(
            Severity.CRITICAL,
            "old_format",
            ", ".join(old),
            f"{plural(len(old), 'partition')} ({named(old)}) begin{'s' if len(old) == 1 else ''} with "
            f"messages of format {' or '.join(formats)}, which Strandline does not read",
            COPY,
            (),
            {"partitions": old},
        )
    if unknown:
        yield _codecs(unknown, "partition")
    if facts.heads and not old and not unknown:
        yield Fine(
            "formats",
            f"the first batches of {plural(len(facts.heads), 'partition')} are of format v2, in known codecs",
        )


def _codecs(unknown: dict[str, int], what: str) -> Finding:
    return Finding(
        Severity.CRITICAL,
        "codec_unknown",
        ", ".join(unknown),
        f"{plural(len(unknown), what)} ({named(unknown)}): batches are compressed by a codec that is not "
        f"known here ({named(sorted(set(unknown.values())))})",
        "write those records again in gzip, snappy, lz4 or zstd: clients of Kafka 3.9 know no other codec",
        (),
        {"codecs": unknown},
    )


def _segments(facts: MigrationFacts) -> Iterator[Finding | Fine]:
    for directory in facts.directories:
        if directory.old:
            yield Finding(
                Severity.CRITICAL,
                "old_format",
                directory.path,
                f"{plural(len(directory.old), 'segment')} in {directory.path} "
                f"{'begins' if len(directory.old) == 1 else 'begin'} with messages of format v0 or v1, which "
                f"Strandline does not read: {named(directory.old)}",
                COPY,
                (),
                {"segments": list(directory.old)},
            )
        if directory.codecs:
            yield _codecs(dict(directory.codecs), "segment")
        if not directory.old and not directory.codecs:
            yield Fine(
                "formats",
                f"{directory.path}: {plural(directory.segments, 'segment')}, of format v2, in known codecs",
            )


def _remote(facts: MigrationFacts) -> Iterator[Finding | Fine]:
    if facts.topics is None:
        return
    remote = sorted(name for name, one in facts.topics.items() if (one.get(REMOTE) or "").lower() == "true")
    if remote:
        yield Finding(
            Severity.CRITICAL,
            "remote_storage",
            ", ".join(remote),
            f"{plural(len(remote), 'topic')} ({named(remote)}) keep{'s' if len(remote) == 1 else ''} records "
            "in remote storage, where Strandline does not read them: they would be gone for readers",
            f"bring them back first: into a new topic without {REMOTE}, by a consumer and a producer",
            (),
            {"topics": remote},
        )
    else:
        system = [where for where, one in facts.brokers.items() if (one.get(SYSTEM) or "").lower() == "true"]
        more = f", though {named(system)} could keep some there" if system else ""
        yield Fine("remote_storage", f"no topic keeps records in remote storage{more}")
