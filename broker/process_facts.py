"""What this process takes of its machine, and what it may take: open files, memory maps, memory, its clock.

`strandline doctor` asks for it: a limit that is nearly used up is not seen from outside. Linux's /proc is
read; elsewhere values are None. Blocks for milliseconds, so it is called in a thread.
Left to others: the request (handlers/inspect.py), what is too much (cli/doctor/checks_machines.py).
"""

import os
import platform
import resource
from pathlib import Path
from typing import Any

from .. import __version__

PROC = Path("/proc")
CGROUPS = (  # limit and use of version 2, then of version 1
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
UNLIMITED_FROM = 1 << 60  # version 1 writes a huge number for no limit


def process_facts() -> dict[str, Any]:
    """Versions, and uses beside their limits; bytes are bytes, None is unknown or unlimited."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    memory = _sizes(PROC / "meminfo")
    cgroup_limit, cgroup_used = _cgroup()
    return {
        "version": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "host": platform.node(),
        "pid": os.getpid(),
        "open_files": _entries(PROC / "self" / "fd"),
        "open_files_max": None if soft == resource.RLIM_INFINITY else soft,
        "maps": _lines(PROC / "self" / "maps"),
        "maps_max": _number(PROC / "sys" / "vm" / "max_map_count"),
        "resident_bytes": _sizes(PROC / "self" / "status").get("VmRSS"),
        "swapped_bytes": _sizes(PROC / "self" / "status").get("VmSwap"),
        "memory_bytes": memory.get("MemTotal"),
        "memory_available_bytes": memory.get("MemAvailable"),
        "cgroup_bytes_max": cgroup_limit,
        "cgroup_bytes": cgroup_used,
    }


def _cgroup() -> tuple[int | None, int | None]:
    """Limit and use of the container's memory; page cache counts as use."""
    for limit, used in CGROUPS:
        bytes_max = _number(Path(limit))
        if bytes_max is not None and bytes_max < UNLIMITED_FROM:
            return bytes_max, _number(Path(used))
    return None, None


def _entries(directory: Path) -> int | None:
    try:
        return sum(1 for _ in os.scandir(directory))
    except OSError:
        return None


def _lines(path: Path) -> int | None:
    try:
        return path.read_bytes().count(b"\n")
    except OSError:
        return None


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # absent, or "max"
        return None


def _sizes(path: Path) -> dict[str, int]:
    """The lines `Name:   123 kB` of a file, in bytes."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    found = {}
    for line in lines:
        name, _, value = line.partition(":")
        words = value.split()
        if len(words) == 2 and words[1] == "kB" and words[0].isdigit():
            found[name] = int(words[0]) * 1024
    return found
