"""Two answers, field by field: each becomes a table from paths to values, with what must differ made alike.

Made alike: ports, directories and the volume's size, the cluster's id, ids that a broker has given out, times
near to now, the words of messages for people (that there is one is compared). Arrays of structs are compared
by what names their elements, in any order. Records are compared as the headers of whole batches, the CRC for
what is in them; what Kafka sends of a last batch that does not fit is left out.
Left to others: which differences are known (known.py).
"""

import re
import time
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

from strandline.protocol.batches import BatchHeader, headers
from strandline.protocol.error_codes import ErrorCode
from strandline.protocol.fields import Field
from strandline.protocol.primitives import NO_UUID, Malformed, Slices
from strandline.protocol.schema import fields_of

ABSENT, THERE = "(absent)", "(there)"
NEAR_MS = 600_000
RANDOM = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[A-Za-z0-9_-]{22}(?![\w-])"
)
WORDS = {"error_message", "batch_index_error_message", "documentation"}
BYTES_OF_VOLUME = {"total_bytes", "usable_bytes"}
NAMING = (
    "name", "topic", "topic_id", "partition_index", "index", "partition", "partition_id", "group_id",
    "api_key", "resource_name", "key", "transactional_id", "producer_id", "node_id", "broker_id",
    "batch_index", "member_id",
)  # fmt: skip


class Reading:
    """Reads the answers of one broker. `known_as` says what it calls what it has given out."""

    def __init__(self, port: int, known_as: Mapping[Any, str], version: int) -> None:
        self.port, self.known_as, self.version = port, known_as, version

    def table(self, answer: Any) -> dict[str, str]:
        """The answer as paths and values."""
        if isinstance(answer, str):
            return {"(answer)": answer}
        if answer is None:
            return {"(answer)": "none"}
        return dict(self._struct("", answer))

    def _struct(self, path: str, struct: Any) -> Iterator[tuple[str, str]]:
        for field in fields_of(type(struct)):
            if field.present(self.version):
                yield from self._field(
                    f"{path}.{field.name}" if path else field.name, field, getattr(struct, field.name)
                )

    def _field(self, path: str, field: Field, value: Any) -> Iterator[tuple[str, str]]:
        if value is None:
            yield path, "null"
        elif field.array and isinstance(field.wire, type):
            yield path, THERE
            for name, each in self._named(value):
                yield f"{path}[{name}]", THERE
                yield from self._struct(f"{path}[{name}]", each)
        elif field.array:
            yield path, f"[{', '.join(self._plain(field.name, each) for each in value)}]"
        elif isinstance(field.wire, type):
            yield from self._struct(path, value)
        elif isinstance(value, bytes | memoryview | Slices) and field.name == "records":
            yield path, batches_in(bytes(value), self)
        else:
            yield path, self._plain(field.name, value)

    def _named(self, structs: list[Any]) -> Iterator[tuple[str, Any]]:
        """Elements by what names them, in that order; the same name twice gets numbers."""
        seen: dict[str, int] = {}
        for each in structs:
            name = self._name(each)
            seen[name] = seen.get(name, 0) + 1
            yield (name if seen[name] == 1 else f"{name} again {seen[name]}"), each

    def _name(self, struct: Any) -> str:
        present = {f.name for f in fields_of(type(struct)) if f.present(self.version)}
        for name in NAMING:
            value = getattr(struct, name, None) if name in present else None
            if value is not None and value != NO_UUID:
                return self._plain(name, value)
        return "-"

    def _plain(self, name: str, value: Any) -> str:
        if name in WORDS:
            return "words" if value else repr(value)
        if name == "error_code" or name.endswith("_error_code"):
            return ErrorCode(value).name if value in set(ErrorCode) else str(value)
        if name == "port" and value == self.port:
            return "its port"
        if name == "cluster_id" and value:
            return "its id"
        if name == "session_id" and value > 0:
            return "a session"
        if name == "log_dir":
            return "its directory"
        if name in BYTES_OF_VOLUME:
            return "of the volume" if value > 0 else str(value)
        if value in self.known_as:
            return self.known_as[value]
        if name == "producer_id":
            return self.producer(value)
        if isinstance(value, UUID):
            return "no id" if value == NO_UUID else "an id"
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, bytes):
            return repr(value) if len(value) < 200 else f"{len(value)} bytes"
        return self.moment(value) if isinstance(value, int) and not isinstance(value, bool) else str(value)

    def producer(self, id: int) -> str:
        """A producer's id by its name."""
        return self.known_as.get(("producer", id), str(id))

    def may_differ(self, header: BatchHeader) -> bool:
        """Whether a time of the broker's, or an id that it has given out, is in the CRC."""
        return (
            header.is_log_append_time
            or header.is_control
            or ("producer", header.producer_id) in self.known_as
        )

    def moment(self, value: int) -> str:
        """A number, unless it is a time near to now."""
        return "now" if abs(value - time.time() * 1000) < NEAR_MS else str(value)

    def _text(self, value: str) -> str:
        for known, name in self.known_as.items():
            if isinstance(known, str) and known in value:
                value = value.replace(known, name)
        return repr(RANDOM.sub("(random)", value))


def batches_in(data: bytes, reading: Reading) -> str:
    """Whole batches of a run, each by its header."""
    told: list[str] = []
    try:
        told += (_header(header, reading) for _, header in headers(data))
    except Malformed as error:
        told.append(f"(damaged: {error})")
    return "; ".join(told) or ("a part of a batch" if data else "no records")


def _header(header: BatchHeader, reading: Reading) -> str:
    times = f"{reading.moment(header.base_timestamp)}-{reading.moment(header.max_timestamp)}"
    producer = f"{reading.producer(header.producer_id)}/{header.producer_epoch}/{header.base_sequence}"
    told = (
        f"{header.base_offset}+{header.last_offset_delta} epoch={header.leader_epoch}"
        f" attributes={header.attributes} count={header.record_count} times={times} producer={producer}"
    )
    return told if reading.may_differ(header) else f"{told} crc={header.crc:08x}"


def differences(ours: dict[str, str], theirs: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    """Paths where the tables differ, with both values. What only one has is told as a whole."""
    lonely: list[str] = []
    for path in dict.fromkeys([*ours, *theirs]):
        one, other = ours.get(path, ABSENT), theirs.get(path, ABSENT)
        if one == other or any(path.startswith(each) for each in lonely):
            continue
        if ABSENT in (one, other):
            lonely += f"{path}.", f"{path}["
        yield path, one, other
