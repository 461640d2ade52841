"""The formats of all checkpoint files, Kafka's where Kafka has them; each file is replaced atomically.

`replication-offset-checkpoint`, `recovery-point-offset-checkpoint`, `log-start-offset-checkpoint`:
"0\\n<n>\\n<topic> <partition> <offset>\\n"; `leader-epoch-checkpoint`: "0\\n<n>\\n<epoch> <start>\\n";
`partition.metadata`: version and topic id; `meta.properties`: whose directory this is. One is ours alone:
`topic-config.json`, the settings of a log, so that it can be opened before the controller sends them.
A file that cannot be parsed raises `Unreadable`: the caller decides what that means, nothing is guessed.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from itertools import pairwise
from uuid import UUID

from pydantic import BaseModel, ValidationError

from ...base.types import TopicPartition
from .. import checked_json
from ..checked_json import WrongChecksum
from ..config import TopicConfig
from ..disk import Disk

HIGH_WATERMARKS = "replication-offset-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
START_OFFSETS = "log-start-offset-checkpoint"
EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"
DIRECTORY_PROPERTIES = "directory.properties"  # ours: the id of a directory whose meta.properties has none
TOPIC_CONFIG = "topic-config.json"
VERSION = "0"


class Unreadable(ValueError):
    """A checkpoint file's content cannot be what was written; the message has path and reason."""


class Torn(Unreadable):
    """It was not completely written, or not synced before the power failed."""


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace a checkpoint of offsets, sorted so that equal content gives equal bytes."""
    assert all(offset >= 0 for offset in offsets.values()), f"{path}: the next start could not read this"
    write_lines(disk, path, (f"{t} {p} {offset}" for (t, p), offset in sorted(offsets.items())))


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """All entries; a missing file has none."""
    offsets: dict[TopicPartition, int] = {}
    for line in read_lines(disk, path):
        fields = line.split(" ")
        if len(fields) != 3:
            raise Unreadable(f"{path}: expected an entry, found {line!r}")
        name = TopicPartition(fields[0], number(path, fields[1]))
        if name in offsets:
            raise Unreadable(f"{path}: {name} appears twice")
        offsets[name] = number(path, fields[2])
    return offsets


def write_epochs(disk: Disk, path: str, entries: Iterable[tuple[int, int]], sync: bool) -> None:
    """Replace a leader-epoch-checkpoint."""
    lines = list(entries)
    assert all(a < b and x < y for (a, x), (b, y) in pairwise(lines)), f"{path}: both must rise: {lines}"
    write_lines(disk, path, (f"{epoch} {start}" for epoch, start in lines), sync)


def read_epochs(disk: Disk, path: str) -> list[tuple[int, int]] | None:
    """The entries of a leader-epoch-checkpoint; None if there is no such file, or nothing in it."""
    if not disk.exists(path) or not disk.read(path):
        return None
    entries: list[tuple[int, int]] = []
    for line in read_lines(disk, path):
        fields = line.split(" ")
        if len(fields) != 2:
            raise Unreadable(f"{path}: expected an entry, found {line!r}")
        entry = number(path, fields[0]), number(path, fields[1])
        if entries and (entry[0] <= entries[-1][0] or entry[1] <= entries[-1][1]):
            raise Unreadable(f"{path}: entries do not increase at {line!r}")
        entries.append(entry)
    return entries


def write_lines(disk: Disk, path: str, lines: Iterable[str], sync: bool = True) -> None:
    """Replace a checkpoint: version, count, lines."""
    body = list(lines)
    disk.replace(path, "\n".join([VERSION, str(len(body)), *body, ""]).encode(), sync)


def read_lines(disk: Disk, path: str) -> list[str]:
    """The entry lines of a checkpoint; none if the file is missing or empty."""
    try:
        text = disk.read(path).decode()
    except FileNotFoundError:
        return []
    except UnicodeDecodeError as error:
        raise Unreadable(f"{path}: expected text") from error
    if not text:
        return []  # Kafka creates the file before it has anything to write
    lines = text.splitlines()
    if len(lines) < 2 or lines[0] != VERSION:
        raise Unreadable(f"{path}: expected a checkpoint of version {VERSION}")
    entries = [line for line in lines[2:] if line]
    if number(path, lines[1]) != len(entries):
        raise Unreadable(f"{path}: expected {lines[1]} entries, found {len(entries)}")
    return entries


def number(path: str, text: str) -> int:
    """A count, epoch or offset: decimal digits, at most a signed 64-bit number."""
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) >= 1 << 63:
        raise Unreadable(f"{path}: expected a number, found {text!r}")
    return int(text)


def kafka_uuid(uuid: UUID) -> str:
    """A UUID as Kafka prints it: 22 characters of URL-safe base64."""
    return urlsafe_b64encode(uuid.bytes).rstrip(b"=").decode()


def parse_kafka_uuid(text: str) -> UUID:
    """The inverse of `kafka_uuid`; ValueError if `text` is not one."""
    if len(text) != 22:
        raise ValueError(f"expected a topic id, found {text!r}")
    return UUID(bytes=urlsafe_b64decode(text + "=="))


def write_partition_metadata(disk: Disk, path: str, topic_id: UUID, sync: bool = True) -> None:
    """Replace a partition.metadata; the last line has no end, as in Kafka's."""
    disk.replace(path, f"version: 0\ntopic_id: {kafka_uuid(topic_id)}".encode(), sync)


def read_partition_metadata(disk: Disk, path: str) -> UUID | None:
    """The topic's id; None if the file is missing."""
    try:
        text = disk.read(path).decode()
        fields = dict(line.split(": ", 1) for line in text.splitlines() if line)
        if fields["version"] != "0":
            raise Unreadable(f"{path}: unknown version {fields['version']!r}")
        return parse_kafka_uuid(fields["topic_id"])
    except FileNotFoundError:
        return None
    except (KeyError, ValueError) as error:
        raise Unreadable(f"{path}: {error}") from error


class KeptConfig(BaseModel, frozen=True, extra="forbid"):
    """The settings a log was last written with; `gaps` once it has been compacted."""

    config: TopicConfig
    gaps: bool


def write_topic_config(disk: Disk, path: str, config: TopicConfig, gaps: bool, sync: bool = False) -> None:
    """Replace topic-config.json. Later changes need no sync: the controller sends the settings again."""
    disk.replace(path, checked_json.dump(KeptConfig(config=config, gaps=gaps)), sync)


def read_topic_config(disk: Disk, path: str) -> KeptConfig | None:
    """None if the file is missing. Raises Torn if it is not JSON, Unreadable for any other damage."""
    try:
        return KeptConfig.model_validate_json(checked_json.load(disk.read(path)))
    except FileNotFoundError:
        return None
    except WrongChecksum as error:
        raise Unreadable(f"{path}: {error}") from error
    except ValidationError as error:
        torn = any(each["type"] == "json_invalid" for each in error.errors())
        raise (Torn if torn else Unreadable)(f"{path}: {error}") from error


def write_properties(disk: Disk, path: str, properties: Mapping[str, str]) -> None:
    """Replace a Java properties file of plain names and values."""
    disk.replace(path, "".join(f"{name}={value}\n" for name, value in properties.items()).encode())


def read_properties(disk: Disk, path: str) -> dict[str, str] | None:
    """Names and values; None if the file is missing. Comments are skipped."""
    try:
        text = disk.read(path).decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise Unreadable(f"{path}: expected text") from error
    lines = (line.strip() for line in text.splitlines())
    pairs = [line.partition("=") for line in lines if line and line[0] not in "#!"]
    if any(not separator for _, separator, _ in pairs):
        raise Unreadable(f"{path}: expected a properties file")
    return {name.strip(): value.strip() for name, _, value in pairs}
