"""How far the copies of a move are, in words, and rates as people write them."""

from types import SimpleNamespace
from typing import cast

import pytest

from strandline.base.types import TopicPartition
from strandline.broker.throttle import FOLLOWERS, LEADERS
from strandline.cli.console import WrongUsage
from strandline.cli.reassign import command
from strandline.cli.reassign.copies import RATES, Copied, bytes_per_second, progress, release, slow_down, told
from strandline.client.admin.configs import AlterConfigOp, ConfigChange, ConfigSource
from strandline.client.admin.reassignments import PartitionReassignment
from strandline.client.sync import Admin
from strandline.protocol.errors import InvalidReplicaAssignment

MIB = 1 << 20


@pytest.mark.parametrize(
    ("text", "rate"),
    [("1000", 1000), ("50M", 50 * MIB), ("1.5k", 1536), ("2 GiB/s", 2 << 30), ("7MB", 7 * MIB), ("3b/s", 3)],
)
def test_rates(text: str, rate: int) -> None:
    assert bytes_per_second(text) == rate


@pytest.mark.parametrize("text", ["", "fast", "0", "-5M", "5T", "0.1"])
def test_what_is_no_rate(text: str) -> None:
    with pytest.raises(WrongUsage, match=r"expected bytes per second, e\.g\. 50M"):
        bytes_per_second(text)


def test_bytes_for_people() -> None:
    assert [told(n) for n in (0, 1023, 1536, 3 * MIB, 5 << 30)] == [
        "0 B", "1023 B", "1.5 KiB", "3.0 MiB", "5.0 GiB",
    ]  # fmt: skip


def test_one_line_of_progress() -> None:
    parts = [Copied(30 * MIB, 100 * MIB), Copied(10 * MIB, 20 * MIB)]
    assert progress(2, 4, parts, (20 * MIB, 0.0), 2.0) == (
        "2 of 4 partitions moved; 40.0 MiB of 120.0 MiB of the others copied, 10.0 MiB/s, about 8 s left"
    )
    assert progress(0, 1, [], (0, 0.0), 1.0) == "0 of 1 partition moved"
    assert progress(0, 1, [Copied(0, MIB)], (0, 0.0), 1.0).endswith("0 B of 1.0 MiB of the others copied")
    assert Copied(0, 0).share == 1.0 and Copied(5, 4).share == 1.0


class Settings:
    """An admin that only remembers settings, and what is said to move."""

    def __init__(self) -> None:
        self.of: dict[tuple[str | None, int | None], dict[str, str]] = {}
        self.moving: dict[TopicPartition, PartitionReassignment] = {}

    def describe_configs(self, *, topic: str) -> list[SimpleNamespace]:
        source = ConfigSource.DYNAMIC_TOPIC_CONFIG
        own = self.of.get((topic, None), {})
        return [SimpleNamespace(name=name, value=value, source=source) for name, value in own.items()]

    def incremental_alter_configs(
        self, changes: list[ConfigChange], *, topic: str | None = None, broker: int | None = None
    ) -> None:
        own = self.of.setdefault((topic, broker), {})
        for name, value, operation in changes:
            listed = [item for item in own.get(name, "").split(",") if item]
            given = (value or "").split(",")
            if operation is AlterConfigOp.APPEND:
                own[name] = ",".join([*listed, *given])
            elif operation is AlterConfigOp.SUBTRACT:
                own[name] = ",".join(item for item in listed if item not in given)
            elif operation is AlterConfigOp.DELETE:
                own.pop(name, None)
            else:
                own[name] = value or ""

    def list_partition_reassignments(self, _: object = None) -> dict[TopicPartition, PartitionReassignment]:
        return self.moving

    def throttled(self) -> list[int]:
        """The brokers with rates; each has both."""
        rates = {broker: own for (_, broker), own in self.of.items() if broker is not None and own}
        assert all(own == dict.fromkeys(RATES, "1000") for own in rates.values())
        return sorted(rates)


def test_a_throttle_goes_with_the_last_move_at_each_broker() -> None:
    admin = Settings()
    first, second = TopicPartition("t", 0), TopicPartition("u", 7)
    before = {first: (1, 2), second: (2, 3)}
    slow_down(cast(Admin, admin), before, {first: [4], second: [1]}, 1000)
    assert admin.of["t", None] == {LEADERS: "0:1,0:2", FOLLOWERS: "0:4"}
    assert admin.of["u", None] == {LEADERS: "7:2,7:3", FOLLOWERS: "7:1"}
    assert admin.throttled() == [1, 2, 3, 4]
    admin.moving = {second: PartitionReassignment((1, 2, 3), (1,), ())}
    assert release(cast(Admin, admin), [first]) == [4], "the others send or copy for the other move"
    assert admin.of["t", None] == {LEADERS: "", FOLLOWERS: ""} and admin.throttled() == [1, 2, 3]
    admin.moving = {}
    assert release(cast(Admin, admin), [second]) == [1, 2, 3]
    assert admin.throttled() == [] and release(cast(Admin, admin), [first, second]) == []


def test_what_others_throttle_stays_and_what_gets_no_copy_is_not_throttled() -> None:
    admin = Settings()
    moves, turned = TopicPartition("t", 0), TopicPartition("t", 1)
    admin.of["t", None] = {LEADERS: "2:9"}
    slow_down(cast(Admin, admin), {moves: (1,), turned: (5, 6)}, {moves: [2], turned: []}, 1000)
    assert admin.of["t", None] == {LEADERS: "2:9,0:1", FOLLOWERS: "0:2"} and admin.throttled() == [1, 2]
    assert release(cast(Admin, admin), [moves, turned]) == [1, 2]
    assert admin.of["t", None] == {LEADERS: "2:9", FOLLOWERS: ""}


def test_a_partition_that_is_refused_takes_no_throttle_from_those_that_move(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They were copied as fast as the disks gave it, while the rate that was asked for was gone."""
    moves, refused = TopicPartition("t", 0), TopicPartition("t", 1)

    class Partly(Settings):
        def alter_partition_reassignments(self, _: object) -> None:
            self.moving = {moves: PartitionReassignment((1, 2, 3), (3,), (1,))}
            raise InvalidReplicaAssignment("t-1: broker 9 does not run")

    admin = Partly()
    monkeypatch.setattr(command, "_held", lambda admin, plan: {moves: (1, 2), refused: (1, 2)})
    with pytest.raises(InvalidReplicaAssignment):
        command._execute(cast(Admin, admin), {moves: (2, 3), refused: (2, 9)}, 1000, False, False)
    assert admin.of["t", None] == {LEADERS: "0:1,0:2", FOLLOWERS: "0:3"} and admin.throttled() == [1, 2, 3]
    assert "1 partition of the plan started all the same" in " ".join(capsys.readouterr().err.split())
