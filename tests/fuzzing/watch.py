"""Looks at the broker's process: it lives, has written no traceback, and takes no more memory than it should.

Memory is looked at as its peaks: of what it holds, and of what it has reserved. A buffer of the size that a
frame only claims may never be touched, and then only the second one shows it.
"""

from pathlib import Path

from strandline.local.processes import BrokerProcess

HELD_MAX = 160 << 20
RESERVED_MORE_MAX = 512 << 20
SHOWN_BEFORE, SHOWN = 500, 3000
FEW_ARENAS = {"MALLOC_ARENA_MAX": "2"}
"""For the broker's environment: else each thread may reserve 64 MiB, and what is reserved says nothing."""


class Watch:
    """One broker from now on."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.complaints: list[str] = []
        self.held_peak = 0
        self.reserved_peak = 0
        self._reserved_at_first = self._peaks()[1]
        self._log_read = 0

    def look(self) -> None:
        """Complain of what is wrong."""
        self._look_at_log()
        if not self.broker.alive:
            words = self.broker.log.read_text(errors="replace")[-SHOWN:]
            self.complaints.append(f"the broker has ended: {words}")
            return
        self.held_peak, self.reserved_peak = self._peaks()
        if self.held_peak > HELD_MAX:
            self.complaints.append(f"the broker has used {self.held_peak >> 20} MiB")
        if (more := self.reserved_peak - self._reserved_at_first) > RESERVED_MORE_MAX:
            self.complaints.append(f"the broker has reserved {more >> 20} MiB more than at first")

    def _look_at_log(self) -> None:
        with self.broker.log.open("rb") as file:
            file.seek(max(0, self._log_read - SHOWN_BEFORE))
            new = file.read().decode(errors="replace")
            self._log_read = file.tell()
        if (at := new.find("Traceback")) >= 0:
            self.complaints.append(
                f"the broker has written a traceback: {new[max(0, at - SHOWN_BEFORE) : at + SHOWN]}"
            )

    def _peaks(self) -> tuple[int, int]:
        """The most bytes that it has ever held, and reserved."""
        if not self.broker.alive:
            return self.held_peak, self.reserved_peak
        lines = Path(f"/proc/{self.broker.pid}/status").read_text().splitlines()
        found = dict(line.split(":", 1) for line in lines)
        return int(found["VmHWM"].split()[0]) << 10, int(found["VmPeak"].split()[0]) << 10
