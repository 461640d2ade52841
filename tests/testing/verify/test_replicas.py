"""The audit of replicas that stand still: what is told of those that differ."""

from pathlib import Path

import pytest

from strandline.base.types import TopicPartition
from strandline.protocol.records import BatchBuilder
from strandline.storage import checked_json
from strandline.storage.directories.intact import IncarnationFile
from strandline.testing.verify.power_loss import NOT_THIS_BOOT, lose_unsynced
from strandline.testing.verify.replicas import audit, first_difference, strays, untidy
from strandline.testing.verify.znodes import is_well_formed


def batch(base_offset: int, *values: bytes) -> bytes:
    builder = BatchBuilder()
    for value in values:
        builder.append(1_700_000_000_000, None, value, ())
    return base_offset.to_bytes(8, "big") + bytes(builder.build())[8:]


T0 = TopicPartition("t", 0)
ALL_THREE = {T0: (1, 2, 3)}
LOG = batch(0, b"a", b"b") + batch(2, b"c") + batch(3, b"d", b"e")


@pytest.fixture
def places(tmp_path: Path) -> dict[int, Path]:
    """Three brokers with a replica each, in two segments."""
    found = {id: tmp_path / str(id) for id in (1, 2, 3)}
    cut = len(batch(0, b"a", b"b"))
    for place in found.values():
        (place / "t-0").mkdir(parents=True)
        (place / "t-0" / f"{0:020}.log").write_bytes(LOG[:cut])
        (place / "t-0" / f"{2:020}.log").write_bytes(LOG[cut:])
        (place / "t-0-delete").mkdir()
        (place / "replication-offset-checkpoint").write_text("0\n1\nt 0 3\n")
    return found


@pytest.mark.parametrize(
    ("end", "has_moved", "kafkas", "is_told"),
    [
        ("-delete", False, (), True),
        ("-delete", True, (), True),
        ("-delete", True, (2,), False),
        ("-stray", False, (), True),
        ("-stray", True, (), False),
    ],
)
def test_what_a_broker_has_not_deleted_is_told_if_it_had_to(
    places: dict[int, Path], end: str, has_moved: bool, kafkas: tuple[int, ...], is_told: bool
) -> None:
    for place in places.values():
        (place / "t-0-delete").rmdir()
        (place / ".kafka_cleanshutdown").touch()
    (places[2] / f"t-1.0{end}").mkdir()
    told = untidy(places, has_moved, kafkas)
    assert told == ([f"{places[2] / f't-1.0{end}'} was left over"] if is_told else [])


def test_logs_where_no_replica_is_are_strays_but_none_that_was_set_aside(places: dict[int, Path]) -> None:
    for name in ("t-1", "t-2.0-stray", "flight-recorder"):
        (places[1] / name).mkdir()
    left = [places[id] / "t-0-delete" for id in (1, 2, 3)]
    assert sorted(strays(places, ALL_THREE)) == sorted(map(str, [places[1] / "t-1", *left]))
    assert str(places[3] / "t-0") in strays(places, {T0: (1, 2)})


def last(places: dict[int, Path], broker: int) -> Path:
    return places[broker] / "t-0" / f"{2:020}.log"


def test_nothing_is_told_of_what_is_alike(places: dict[int, Path]) -> None:
    assert audit(places, ALL_THREE) == []


@pytest.mark.parametrize("broker", [1, 2, 3])
def test_a_tail_that_one_replica_kept_is_told(places: dict[int, Path], broker: int) -> None:
    with last(places, broker).open("ab") as log:
        log.write(batch(5, b"kept"))
    (told,) = audit(places, ALL_THREE)
    assert "differ from offset 5 (byte" in told and "watermarks as checkpointed {1: 3, 2: 3, 3: 3}" in told


def test_another_record_is_told_with_the_offset_of_its_batch(places: dict[int, Path]) -> None:
    whole = last(places, 3).read_bytes()
    last(places, 3).write_bytes(whole[:-2] + b"\0\0")
    (told,) = audit(places, ALL_THREE)
    assert told.startswith("t-0: brokers 2 and 3 differ from offset 3 (byte")


def test_a_tail_that_is_missing_and_a_replica_that_is_missing_are_told(places: dict[int, Path]) -> None:
    last(places, 1).unlink()
    assert audit(places, ALL_THREE)[0].startswith("t-0: brokers 1 and 2 differ from offset 2 (byte")
    for segment in (places[2] / "t-0").iterdir():
        segment.unlink()
    (places[2] / "t-0").rmdir()
    assert audit(places, ALL_THREE) == ["t-0: brokers [2] have no replica of it"]


@pytest.mark.parametrize(
    ("one", "other", "at"), [(b"", b"", 0), (b"ab", b"ab", 2), (b"ab", b"ac", 1), (b"", b"a", 0)]
)
def test_the_first_byte_that_differs(one: bytes, other: bytes, at: int) -> None:
    assert first_difference(one, other) == first_difference(other, one) == at


def test_only_brokers_that_hold_a_replica_are_compared(places: dict[int, Path]) -> None:
    """A cluster may have more brokers than a topic has replicas."""
    last(places, 3).write_bytes(b"")
    assert len(audit(places, ALL_THREE)) == 1 and audit(places, {T0: (1, 2)}) == []


def test_a_partition_that_nobody_holds_on_disk_is_told(places: dict[int, Path]) -> None:
    """Else nothing would be compared, and nothing found."""
    there = {TopicPartition("u", 0): (1, 2), T0: (1, 4)}
    assert audit(places, there) == [
        "t-0: brokers [4] have no replica of it",
        "u-0: brokers [1, 2] have no replica of it",
    ]


def test_a_loss_of_power_takes_what_was_not_synced_and_the_proof_of_the_boot(places: dict[int, Path]) -> None:
    place = places[2]
    (place / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 3\n")
    before = IncarnationFile(last_k=4, boot_id="this", intact_since=2, flush_mode=False)
    (place / "incarnation.json").write_bytes(checked_json.dump(before))
    lost = lose_unsynced(place)
    tail = len(batch(3, b"d", b"e"))
    assert lost == {"t-0": tail} and last(places, 2).read_bytes() == batch(2, b"c")
    after = IncarnationFile.model_validate_json(checked_json.load((place / "incarnation.json").read_bytes()))
    assert after == before.model_copy(update={"boot_id": NOT_THIS_BOOT})
    assert lose_unsynced(place) == {"t-0": 0}, "what was synced stays"
    (place / "recovery-point-offset-checkpoint").unlink()
    assert lose_unsynced(place)["t-0"] == len(LOG) - tail, "nothing was synced"


def test_what_a_controlled_stop_must_not_leave_is_told(places: dict[int, Path]) -> None:
    for place in places.values():
        (place / "t-0-delete").rmdir()
        (place / ".kafka_cleanshutdown").touch()
        (place / "t-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n3 2\n")
    assert untidy(places) == []
    (places[1] / ".kafka_cleanshutdown").unlink()
    (places[2] / "t-1-stray").mkdir()
    (places[3] / "t-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n3 3\n")
    assert untidy(places) == [
        "broker 1 did not stop cleanly",
        f"{places[2] / 't-1-stray'} was left over",
        "t-0: epoch 3 begins at 2 and at 3",
    ]


@pytest.mark.parametrize(
    ("leader", "isr", "epochs", "good"),
    [
        (1, [1, 2], {"1": 4, "2": 5}, True),
        (-1, [2], {"2": 5}, True),
        (1, [1, 2], None, True),  # Apache Kafka writes none
        (3, [1, 2], None, False),
        (-1, [], {}, False),
        (4, [4], {"4": 1}, False),
        (1, [1, 2], {"1": 4}, False),
    ],
)
def test_a_state_that_may_not_be(
    leader: int, isr: list[int], epochs: dict[str, int] | None, good: bool
) -> None:
    state = {"leader": leader, "isr": isr} | ({} if epochs is None else {"isr_epochs": epochs})
    assert is_well_formed(state, [1, 2, 3]) is good
