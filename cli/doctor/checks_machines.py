"""Checks of machines: room on disks, offline directories, open files, memory maps, memory. Pure.

Left to others: how a broker measures itself (broker/process_facts.py).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from .facts import BrokerFacts, Directory, Facts
from .findings import Finding, Severity, size

ROOM_MIN, ROOM_SCARCE = 0.03, 0.10  # of the volume
USED_MANY, USED_MAX = 0.80, 0.95  # of a limit
OPEN_FILES_MIN = 4096
MEMORY_AVAILABLE_MIN = 0.03  # of the machine's

LIMITS = (
    # use, limit, what, check, remedy
    (
        "open_files", "open_files_max", "open files", "open_files",
        "raise LimitNOFILE (systemd), nofile (limits.conf) or ulimits (compose), and restart the broker",
    ),
    (
        "maps", "maps_max", "memory maps", "memory_maps",
        "sysctl -w vm.max_map_count=262144, and in /etc/sysctl.d so that it stays",
    ),
    (
        "resident_bytes", "cgroup_bytes_max", "bytes of memory", "container_memory",
        "raise the container's memory limit, or lower the broker's: over the limit the kernel kills it",
    ),
)  # fmt: skip


def check_machines(facts: Facts) -> Iterator[Finding]:
    """All findings about disks, limits and memory."""
    for broker in facts.live.values():
        for directory in broker.directories or ():
            yield from _directory(broker, directory)
        if broker.process is not None:
            yield from _limits(broker, broker.process)
            yield from _memory(broker, broker.process)


def _directory(broker: BrokerFacts, directory: Directory) -> Iterator[Finding]:
    subject = f"broker {broker.id}: {directory.path}"
    values = {
        "broker": broker.id,
        "path": directory.path,
        "usable_bytes": directory.usable_bytes,
        "total_bytes": directory.total_bytes,
    }
    if directory.offline:
        yield Finding(
            Severity.CRITICAL,
            "log_dir_offline",
            subject,
            f"log directory {directory.path} of broker {broker.id} is offline: its replicas are not served",
            "mend or replace the disk, then restart the broker; what is lost is copied from other replicas",
            (),
            values,
        )
        return
    if directory.full:
        yield Finding(
            Severity.CRITICAL,
            "log_dir_full",
            subject,
            f"log directory {directory.path} of broker {broker.id} is full: nothing is appended there",
            "delete or shorten what is kept (retention.ms, retention.bytes), or move replicas away",
            (),
            values,
        )
        return
    if directory.total_bytes <= 0 or directory.usable_bytes < 0:
        return
    share = directory.usable_bytes / directory.total_bytes
    if share < ROOM_SCARCE:
        yield Finding(
            Severity.CRITICAL if share < ROOM_MIN else Severity.WARNING,
            "log_dir_room",
            subject,
            f"{size(directory.usable_bytes)} ({share:.0%}) are left for {directory.path} of "
            f"broker {broker.id}",
            "make room before it is full: shorter retention, fewer segments kept, or a larger disk",
            (),
            values,
        )


def _limits(broker: BrokerFacts, process: Mapping[str, Any]) -> Iterator[Finding]:
    for use, limit, what, check, remedy in LIMITS:
        used, most = process.get(use), process.get(limit)
        if used is None or not most or used / most < USED_MANY:
            continue
        amounts = f"{size(used)} of {size(most)}" if use.endswith("bytes") else f"{used:,} of {most:,}"
        yield Finding(
            Severity.CRITICAL if used / most >= USED_MAX else Severity.WARNING,
            check,
            f"broker {broker.id}",
            f"broker {broker.id} uses {amounts} {'' if use.endswith('bytes') else what}".rstrip()
            + (" that its container may have" if use.endswith("bytes") else ""),
            remedy,
            (),
            {"used": used, "limit": most},
        )
    most = process.get("open_files_max")
    if most is not None and most < OPEN_FILES_MIN:
        yield Finding(
            Severity.WARNING,
            "open_files_limit",
            f"broker {broker.id}",
            f"broker {broker.id} may have {most:,} open files only: connections and segments share them",
            "raise LimitNOFILE (systemd), nofile (limits.conf) or ulimits (compose) to 100,000",
            (),
            {"limit": most},
        )


def _memory(broker: BrokerFacts, process: Mapping[str, Any]) -> Iterator[Finding]:
    available, total = process.get("memory_available_bytes"), process.get("memory_bytes")
    if available is not None and total and available / total < MEMORY_AVAILABLE_MIN:
        yield Finding(
            Severity.WARNING,
            "memory_scarce",
            f"broker {broker.id}",
            f"the machine of broker {broker.id} has {size(available)} of {size(total)} memory left: reads "
            "go to the disk",
            "end what else runs there, or add memory: the page cache is what makes fetches fast",
            (),
            {"available": available, "total": total},
        )
    swapped = process.get("swapped_bytes")
    if swapped:
        yield Finding(
            Severity.NOTE,
            "swapped",
            f"broker {broker.id}",
            f"{size(swapped)} of broker {broker.id} are swapped out: it may pause when it needs them",
            "vm.swappiness=1, or no swap",
            (),
            {"bytes": swapped},
        )
