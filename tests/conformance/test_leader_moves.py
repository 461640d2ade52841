"""A leader that lives on is left by each client as soon as by Kafka's own, whatever took the leadership.

All clients write and read side by side while every partition loses its leader: by election, reassignment,
controlled shutdown, a frozen process, a lost session. The longest silence of each producer and each consumer
is told at the end of the run. Nothing acknowledged is missed by a reader, nobody throws an answer away, and
nobody asks the old leader again and again.
"""

import re
import time
from collections.abc import Iterator

import pytest
from leader_moves import WAYS, Silences, Stage, line, settle, silences, staged
from probing import PROBES, Absent, now_ms

from strandline.local.processes import machine_is_slower

SILENCE_S_MAX = 1.5  # Kafka's own brokers: 0.8 to 1.3 s on two busy cores
WRITES_EVERY_MS = 25  # often enough for that limit: six clients cost half a processor as it is
METADATA_AGE_S = {"franz-go": 5.0}  # not asked for again sooner by a client that lost its way twice
DAMAGE = re.compile("malformed|parse|corrupt", re.IGNORECASE)
QUIET_REQUESTS_PER_S_MAX = 150  # six consumers, their groups, three brokers that follow each other


@pytest.fixture(scope="module")
def absent() -> dict[str, str]:
    """Clients that cannot run here, and why."""
    return {}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, absent: dict[str, str]) -> Iterator[Stage]:
    """Three brokers, and every client that can run here."""
    with staged("strandline", tmp_path_factory.mktemp("moves")) as made:
        for name, command in PROBES.items():
            try:
                made.launch(name, command(), WRITES_EVERY_MS)
            except (Absent, pytest.skip.Exception) as reason:
                absent[name] = str(reason)
        made.wait_flowing(now_ms())
        made.restore()
        yield made


@pytest.mark.parametrize("way", WAYS)
def test_the_silence_is_short(stage: Stage, way: str, moves_told: list[str]) -> None:
    told: Silences = silences(stage, way)
    moves_told.append(line("", way, told))
    slower = machine_is_slower()
    for name, found in told.items():
        limit = SILENCE_S_MAX * slower + METADATA_AGE_S.get(name, 0.0)
        assert max(found) < limit, (
            f"{name} was silent for {found} s (producer, consumer), {slower:.1f} x load"
        )


def test_what_was_acknowledged_is_read_and_nobody_spins(stage: Stage) -> None:
    settle(stage)
    before, began = asked(stage), time.monotonic()
    time.sleep(1)  # a rate has no condition to wait for
    rate = (asked(stage) - before) / (time.monotonic() - began)
    assert rate < QUIET_REQUESTS_PER_S_MAX, "nothing is written: readers wait, they do not ask on and on"
    for probe in stage.probes.values():
        assert len(probe.acked) == probe.sent, f"{probe.name}: every record is acknowledged in the end"
        assert not DAMAGE.search(probe.complaints), probe.complaints[-3000:]
        probe.tell()


@pytest.mark.parametrize("name", PROBES)
def test_each_client_was_there(stage: Stage, absent: dict[str, str], name: str) -> None:
    if name in absent:
        pytest.skip(absent[name])
    assert len(stage.probes[name].read) > 100


def asked(stage: Stage) -> int:
    """Requests that all brokers have had so far."""
    metrics = (stage.admin.inspect(broker, "metrics") for broker in stage.order)
    return sum(int(one["requests"]["requests"]) for one in metrics)
