"""F20-F24, F40, F41: what a broker must not believe of its disk: power lost, disks swapped, recovery killed.

Power is lost by a library that knows what was synced: the rest of each file is cut, and the machine seems to
have booted since.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline.local.cluster import LocalCluster
from strandline.local.processes import BrokerProcess
from strandline.protocol.batches import crc_ok, headers
from strandline.testing.faults.disk import Call, DiskFaults
from tests.faults.disks import breakable, data
from tests.faults.drill import Drill
from tests.faults.looks import documents, last_said, read, send, states, told_of
from tests.faults.table import Row
from tests.integration.support import create, until, wait_alike

LONG_S = 60.0  # to come back with a scan and a fetch
ALONE_S = 5.0
SWITCH = "log.flush.before.ack"


@pytest.fixture(scope="module")
def faults() -> dict[int, DiskFaults]:
    return {}


@pytest.fixture(scope="module")
def cluster(start, faults: dict[int, DiskFaults]) -> LocalCluster:
    return start(3, lambda cluster: faults.update(breakable(cluster, journal=True)))


@pytest.fixture(autouse=True)
def well(faults: dict[int, DiskFaults], cluster: LocalCluster) -> Iterator[None]:
    yield
    for id, each in faults.items():
        each.clear()
        cluster.brokers[id].settings.pop(SWITCH, None)


def bystanders(cluster: LocalCluster) -> list[int]:
    controller = cluster.controller()
    return [b for b in sorted(cluster.brokers) if b != controller]


def is_intact(broker: BrokerProcess) -> bool:
    return bool(last_said(broker.log, "broker_registered")["intact"])


def doubts(broker: BrokerProcess) -> list[str]:
    """The partitions whose replicas here have lost something, though the broker as a whole is intact."""
    remembered = json.loads((data(broker) / "incarnation.json").read_text())
    return sorted(remembered["intact_since_of"])


def registrations(broker: BrokerProcess) -> int:
    return broker.log.read_text(errors="replace").count('"broker_registered"')


def come_back(it: Drill, broker: BrokerProcess) -> bool:
    """Start it, wait until every ISR is full, and say whether it called itself intact."""
    before = registrations(broker)
    broker.start()
    until(lambda: registrations(broker) > before, LONG_S, "it has registered", every_s=0.1)
    intact = is_intact(broker)
    it.heal()
    return intact


def test_f20_one_loses_power(
    cluster: LocalCluster, drill: Callable[..., Drill], faults: dict[int, DiskFaults]
) -> None:
    victim = bystanders(cluster)[0]
    with drill("F20", "power lost by a leader", [victim] * 3) as it:
        it.warm()
        cluster.brokers[victim].kill()
        lost = faults[victim].lose_power()
        it.resumed()
        assert not come_back(it, cluster.brokers[victim]), "nobody saw its data reach the disk"
        it.row.remark = f"{lost} bytes were lost, and fetched again"
        assert lost > 0


def test_f21_the_only_isr_member_loses_power(
    cluster: LocalCluster, drill: Callable[..., Drill], faults: dict[int, DiskFaults]
) -> None:
    controller = cluster.controller()
    last, other = bystanders(cluster)
    with drill("F21", "power lost by the only ISR member, which comes back first", [last] * 3) as it:
        it.warm()
        for victim in (other, controller):
            cluster.brokers[victim].kill()
        until(lambda: all(isr == [last] for _, _, isr in states(cluster, it.topic)), 30, "it is alone")
        cluster.brokers[last].kill()
        lost = faults[last].lose_power()
        cluster.brokers[last].start()
        until(lambda: leaders(cluster, it.topic) == {-1}, LONG_S, "it is back, and nobody leads", every_s=0.2)
        ends = time.monotonic() + ALONE_S
        while time.monotonic() < ends:
            assert leaders(cluster, it.topic) == {-1}, "it may know too little to lead"
            time.sleep(0.2)
        for id in (other, controller):
            cluster.brokers[id].start()
        it.resumed(LONG_S)
        it.row.remark = f"{lost} bytes were lost; not elected alone, whole with the others"
        assert is_told_lost(cluster, it.topic), "records may be lost: that is told"


def is_told_lost(cluster: LocalCluster, topic: str) -> bool:
    """Whether a controller has told that acknowledged records of this topic may be lost."""
    told = [each for broker in cluster.brokers.values() for each in told_of(broker, "potential_data_loss")]
    return any(each["partition"].startswith(f"{topic}-") for each in told)


def leaders(cluster: LocalCluster, topic: str) -> set[int]:
    return {leader for leader, _, _ in states(cluster, topic)}


def test_f22_all_lose_power_and_had_flushed(start, table: Any, field: Any) -> None:
    """With `log.flush.before.ack` nothing that was acknowledged is lost."""
    faults: dict[int, DiskFaults] = {}
    cluster = start(3, lambda cluster: faults.update(breakable(cluster, journal=True)), **{SWITCH: "true"})
    with Drill(cluster, table, "F22", f"power lost by all, {SWITCH}", [1, 2, 3], field.heal) as it:
        it.warm()
        lost = lose_all(cluster, faults)
        it.resumed(LONG_S)
        it.row.remark = f"{lost} bytes were lost, nothing of what was acknowledged"


def lose_all(
    cluster: LocalCluster, faults: dict[int, DiskFaults], meanwhile: Callable[[], object] = bool
) -> int:
    """All lose their power at once, and start; before that, `meanwhile` is called."""
    for broker in cluster.brokers.values():
        broker.kill()
    lost = sum(each.lose_power() for each in faults.values())
    meanwhile()
    for broker in cluster.brokers.values():
        broker.start()
    return lost


def left(broker: BrokerProcess, partition: str) -> int:
    """How many records of a partition are on the disk of a broker that does not run, from the first on."""
    end = 0
    for segment in sorted((data(broker) / partition).glob("*.log")):
        text = segment.read_bytes()
        for at, header in headers(text):
            if header.base_offset != end or not crc_ok(text, at, header):
                return end
            end = header.next_offset
    return end


def test_f22_all_lose_power_with_what_was_in_memory(
    cluster: LocalCluster, table: Any, faults: dict[int, DiskFaults]
) -> None:
    """Without flushes the tail may be lost, and nothing but the tail; the logs are alike afterwards."""
    row = Row("F22", "power lost by all, default flushes")
    table.rows.append(row)
    sent = [b"%d" % number for number in range(500)]
    with create(cluster, "in-memory", [1]) as view:
        send(cluster, "in-memory", sent)
        ends: list[int] = []
        lose_all(
            cluster, faults, lambda: ends.extend(left(b, "in-memory-0") for b in cluster.brokers.values())
        )
        cluster.wait_ready()
        view.wait_full_isr(LONG_S)
        found = read(cluster, "in-memory")
        assert found == sent[: max(ends)], f"what the longest log held; the disks hold {ends}"
        assert len(found) == len(sent) or is_told_lost(cluster, "in-memory"), "a loss is told"
        send(cluster, "in-memory", [b"after"])
        assert read(cluster, "in-memory")[-1] == b"after"
        wait_alike(cluster, "in-memory", 1, 30)
        row.acknowledged, row.lost, row.diverged, row.passed = 501, len(sent) - len(found), "no", True
        row.remark = f"{ends} were on the disks: acks=all is a promise of several machines' memory"


def test_f23_an_empty_disk(cluster: LocalCluster, drill: Callable[..., Drill]) -> None:
    victim = bystanders(cluster)[0]
    broker = cluster.brokers[victim]
    with drill("F23", "a leader comes back with an empty disk; the controller dies", [victim] * 3) as it:
        it.warm()
        older = [state["isr_epochs"][str(victim)] for state in documents(cluster, it.topic)]
        before = registrations(broker)
        broker.kill()
        shutil.rmtree(data(broker))
        controller = cluster.controller()
        cluster.brokers[controller].kill()
        broker.start()
        cluster.brokers[controller].start()
        until(lambda: registrations(broker) > before, LONG_S, "it has registered")
        wait_joined(cluster, it.topic, victim, max(older))
        it.resumed(LONG_S)
        it.heal()
        assert not is_intact(broker)


def wait_joined(cluster: LocalCluster, topic: str, broker: int, older: int) -> None:
    """Wait until every ISR has it as a later incarnation than `older`; before that nobody may elect it. Its
    session of before may have made it leader for a moment, until it registered anew.
    """
    before = [state["leader_epoch"] for state in documents(cluster, topic)]

    def has_joined() -> bool:
        joined = []
        for epoch, state in zip(before, documents(cluster, topic), strict=True):
            joined.append(state["isr_epochs"].get(str(broker), 0) > older)
            elected = state["leader"] == broker and state["leader_epoch"] > epoch
            assert joined[-1] or not elected, f"it was elected, and has nothing: {state}"
        return all(joined)

    until(has_joined, LONG_S, f"broker {broker} is in every ISR")


def test_f24_an_older_log_directory(
    cluster: LocalCluster, drill: Callable[..., Drill], tmp_path: Path
) -> None:
    victim = bystanders(cluster)[0]
    broker = cluster.brokers[victim]
    with drill("F24", "a log directory copied two incarnations ago is put back", [victim] * 3) as it:
        it.warm()
        broker.stop()
        shutil.copytree(data(broker), tmp_path / "older")
        for _ in range(2):
            come_back(it, broker)
            it.warm()
            broker.kill()
        shutil.rmtree(data(broker))
        shutil.copytree(tmp_path / "older", data(broker))
        it.resumed(LONG_S)
        assert not come_back(it, broker), "it is another disk than the one that ZooKeeper knows"


def flip(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        was = file.read(1)
        file.seek(position)
        file.write(bytes([was[0] ^ 0xFF]))


def test_f40_recovery_is_killed_after_it_has_cut(
    cluster: LocalCluster, drill: Callable[..., Drill], faults: dict[int, DiskFaults]
) -> None:
    victim, other = bystanders(cluster)
    broker = cluster.brokers[victim]
    with drill("F40", "recovery must cut, and is killed right after the cut", [other] * 3) as it:
        it.warm(400)
        broker.kill()
        log = max(data(broker).glob(f"{it.topic}-*/*.log"), key=lambda path: path.stat().st_size)
        flip(log, log.stat().st_size // 2)
        rule = faults[victim].add(Call.TRUNCATE | Call.RENAME, delay_s=60, part=f"{it.topic}-", after=True)
        broker.start()
        until(lambda: rule.hits, LONG_S, "it has cut", every_s=0.05)
        broker.kill()
        rule.remove()
        intact = come_back(it, broker)
        it.row.remark = f"doubtful: {', '.join(doubts(broker)) if intact else 'the whole broker'}"
        assert not intact or log.parent.name in doubts(broker), "its log looks tidy, and is not what it was"


def test_f41_flushes_are_turned_on_after_the_loss(
    cluster: LocalCluster, drill: Callable[..., Drill], faults: dict[int, DiskFaults]
) -> None:
    victim = bystanders(cluster)[0]
    broker = cluster.brokers[victim]
    with drill("F41", f"power lost without flushes, then {SWITCH}=true", [victim] * 3) as it:
        it.warm()
        broker.kill()
        faults[victim].lose_power()
        broker.settings[SWITCH] = "true"
        assert not come_back(it, broker), "what counts is how it had written"
