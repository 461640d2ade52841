"""Disks that are slow or fail, clocks that are wrong, power that is lost: for one process at a time.

    faults = DiskFaults(directory / "faults", directory / "data")
    process.environment |= faults.environment
    process.start()
    rule = faults.add(Call.WRITE, delay_s=0.5, part="orders-0")
    rule.remove()

A library that the process loads first (`disk_faults.c`, compiled when first wanted) looks at each call of
libc that is about a path below the prefix. The product knows nothing of it.
"""

import hashlib
import mmap
import os
import shutil
import struct
import subprocess
import uuid
from enum import IntFlag
from pathlib import Path

from ...local.embedded_zookeeper import EnvironmentProblem

SOURCE = Path(__file__).with_name("disk_faults.c")
COMPILE_S = 60.0
MAGIC = 0x53464C54
HEAD = struct.Struct("=IIq240s256s")
RULE = struct.Struct("=IIiIQqQ208s")
RULES_MAX = 16
HITS_AT = struct.calcsize("=IIiIQq")
CLOCK_AT = struct.calcsize("=II")
BOOT_AT = struct.calcsize("=IIq240s")


class Call(IntFlag):
    """Kinds of calls that a rule is about."""

    WRITE = 1  # write, pwrite, pwritev
    SYNC = 2  # fsync, fdatasync, syncfs
    READ = 4  # read, pread, preadv
    OPEN = 8
    RENAME = 16  # by the new name
    TRUNCATE = 32
    UNLINK = 64


def library() -> Path:
    """The compiled library; EnvironmentProblem if there is no C compiler, or it fails."""
    source = SOURCE.read_bytes()
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "strandline"
    built = folder / f"disk-faults-{hashlib.sha256(source).hexdigest()[:16]}.so"
    if built.exists():
        return built
    compiler = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)
    if compiler is None:
        raise EnvironmentProblem(
            "disk faults need a C compiler (cc, gcc or clang). "
            "On Debian or Ubuntu: apt-get install gcc libc6-dev"
        )
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / f"{built.name}.{os.getpid()}"
    line = [compiler, "-O1", "-shared", "-fPIC", "-o", str(fresh), str(SOURCE), "-ldl"]
    made = subprocess.run(line, capture_output=True, text=True, timeout=COMPILE_S, check=False)
    if made.returncode != 0:
        raise EnvironmentProblem(f"{compiler} cannot compile {SOURCE}: {made.stderr[-500:]}")
    fresh.replace(built)
    return built


class Rule:
    """One fault that holds until `remove`."""

    def __init__(self, table: mmap.mmap, at: int) -> None:
        self._table, self._at = table, at

    @property
    def hits(self) -> int:
        """How many calls it has struck."""
        found: int = struct.unpack_from("=Q", self._table, self._at + HITS_AT)[0]
        return found

    def remove(self) -> None:
        """The next call is as always; one that waits already waits to its end."""
        struct.pack_into("=I", self._table, self._at, 0)


class DiskFaults:
    """The faults of one process, which must be started with `environment`."""

    def __init__(self, file: Path, prefix: Path, *, journal: bool = False) -> None:
        """Rules lie in `file`, and are about paths below `prefix`. With `journal`, power can be lost."""
        self.file, self.prefix = file, prefix.resolve()
        self._library = library()
        file.parent.mkdir(parents=True, exist_ok=True)
        head = HEAD.pack(MAGIC, int(journal), 0, str(self.prefix).encode(), b"")
        file.write_bytes(head + bytes(RULES_MAX * RULE.size))
        with file.open("r+b") as opened:
            self._table = mmap.mmap(opened.fileno(), 0)

    @property
    def environment(self) -> dict[str, str]:
        """What the process needs among its environment variables."""
        return {"LD_PRELOAD": str(self._library), "DISK_FAULTS_TABLE": str(self.file)}

    def add(
        self,
        calls: Call,
        *,
        error: int = 0,
        delay_s: float = 0.0,
        part: str = "",
        times: int = -1,
        after: bool = False,
    ) -> Rule:
        """Calls about paths that contain `part` fail with the errno `error`, or take `delay_s` longer.

        At most `times` calls, -1: all of them. With `after` the delay comes when the call has been made.
        """
        if len(part.encode()) > 200:
            raise ValueError(f"part: at most 200 bytes, not {len(part.encode())}")
        if not error and not delay_s:
            raise ValueError("a rule needs an error or a delay")
        for number in range(RULES_MAX):
            at = HEAD.size + number * RULE.size
            if not struct.unpack_from("=I", self._table, at)[0]:
                values = int(calls), error, int(after), int(delay_s * 1e6), times, 0, part.encode()
                RULE.pack_into(self._table, at, 0, *values)
                struct.pack_into("=I", self._table, at, 1)
                return Rule(self._table, at)
        raise ValueError(f"at most {RULES_MAX} rules at once: remove one")

    def clear(self) -> None:
        """No rule holds any more, and the clock is right."""
        for number in range(RULES_MAX):
            Rule(self._table, HEAD.size + number * RULE.size).remove()
        self.set_clock(0.0)

    def set_clock(self, ahead_s: float) -> None:
        """The process's wall clock is `ahead_s` seconds ahead of ours; its monotonic clock is not changed."""
        struct.pack_into("=q", self._table, CLOCK_AT, int(ahead_s * 1e6))

    def lose_power(self) -> int:
        """Leave of each file what was synced, and another boot: when the process is dead, and lost its power.

        Returns how many bytes have gone. Bytes overwritten in place count as synced, and names of files stay:
        the harsher losses are the simulator's.
        """
        synced: dict[int, int] = {}
        journal = Path(f"{self.file}.journal")
        for line in journal.read_text().splitlines() if journal.exists() else ():
            inode, size = map(int, line.split())
            synced[inode] = size
        lost = 0
        for path in self.prefix.rglob("*"):
            if path.is_file() and not path.is_symlink():
                found = path.stat()
                kept = min(found.st_size, synced.get(found.st_ino, 0))
                if kept < found.st_size:
                    os.truncate(path, kept)
                    lost += found.st_size - kept
        boot = Path(f"{self.file}.boot_id")
        boot.write_text(f"{uuid.uuid4()}\n")
        struct.pack_into("=256s", self._table, BOOT_AT, str(boot).encode())
        return lost
