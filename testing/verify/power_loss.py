"""What a loss of power leaves of a broker's log directory: what was synced, and perhaps no more.

For a broker that does not run. Everything behind the recovery point is cut from its logs, as a disk may do
that was never asked to write it; and Strandline's note of the boot is another one, as after a start of the
machine. Apache Kafka keeps no such note. Left to others: what a broker makes of it.
"""

from pathlib import Path

from ...base.types import TopicPartition
from ...protocol.batches import HEADER_SIZE, read_header
from ...storage import checked_json
from ...storage.directories.incarnation import INCARNATION
from ...storage.directories.intact import IncarnationFile
from ...storage.disk import RealDisk
from ...storage.log.checkpoints import RECOVERY_POINTS, read_offsets
from .replicas import PARTITION, holds_log

NOT_THIS_BOOT = "power-was-lost"


def lose_unsynced(directory: Path) -> dict[str, int]:
    """Cut every log at its recovery point. Returns how many bytes each log lost."""
    synced = read_offsets(RealDisk(), str(directory / RECOVERY_POINTS))
    lost = dict[str, int]()
    for folder in sorted(each for each in directory.iterdir() if holds_log(each)):
        found = PARTITION.fullmatch(folder.name)
        assert found is not None, "holds_log has looked"
        recovery_point = synced.get(TopicPartition(found["topic"], int(found["number"])), 0)
        lost[folder.name] = sum(cut(segment, recovery_point) for segment in folder.glob("*.log"))
    forget_the_boot(directory / INCARNATION)
    return lost


def cut(segment: Path, recovery_point: int) -> int:
    """Cut the batches from this offset on; returns how many bytes that were."""
    log, at = segment.read_bytes(), 0
    while at + HEADER_SIZE <= len(log):
        header = read_header(log, at)
        if header.batch_length <= 0 or header.base_offset >= recovery_point:
            break
        at += header.size
    with segment.open("r+b") as file:
        file.truncate(at)
    return len(log) - at


def forget_the_boot(path: Path) -> None:
    """Let Strandline's note name another boot of the machine; nothing if there is no such note."""
    if path.exists():
        note = IncarnationFile.model_validate_json(checked_json.load(path.read_bytes()))
        path.write_bytes(checked_json.dump(note.model_copy(update={"boot_id": NOT_THIS_BOOT})))
