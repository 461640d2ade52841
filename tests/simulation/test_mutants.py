"""The tester is tested: with a rule taken away, a transcript or a kept seed must find what it is there for.

Each mutant of `simulation/mutants.py` stands here with where it is caught. A transcript that holds with the
rule must fail without it. Of the seeds tried for a mutant one is enough: other timing tells other stories.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from strandline.broker.replicas.partition import Partition
from strandline.replication import isr
from strandline.simulation.cluster import BROKERS
from strandline.simulation.families import FAMILIES
from strandline.simulation.mutants import MUTANTS, broken, search, shows
from strandline.simulation.world import World
from strandline.storage.directories import incarnation, intact
from tests.controller.test_planner_scenarios import Stage
from tests.replication.brokers_harness import Story as BrokersStory
from tests.replication.conftest import _play
from tests.replication.replicas_harness import Story as ReplicasStory
from tests.replication.test_follower_scenarios import Story as FollowerStory
from tests.replication.test_leader_scenarios import Story as LeaderStory
from tests.storage import test_incarnation
from tests.storage.conftest import T0, put
from tests.storage.test_disk_faults import Dirs

SCENARIOS = Path(__file__).parent.parent / "scenarios"

TRANSCRIPTS = {
    "trunc_hw": "profiles/40_loss.txt",
    "trunc_101": "follower/kip_279.txt",
    "no_fence": "profiles/late_fetch.txt",
    "no_maximal": "leader/joining_soon.txt",
    "no_zkver": "brokers/zombie_leader.txt",
    "no_hold": "leader/expand_unknown.txt",
    "no_isr_epoch": "planner_not_intact.txt",
    "no_leso": "leader/expand_past_epoch_start.txt",
    "no_reset": "brokers/no_reset.txt",
    "no_epoch_on_become": "replicas/kip_279.txt",
    "no_inc": "brokers/empty_disk.txt",
    "late_expand": "brokers/late_expand.txt",
    "prune_leaderless": "planner_prune_leaderless.txt",
    "news_forgotten": "planner_overtaken.txt",
    "balanced_isr_only": "planner_recovery.txt",
    "dup_ack_early": "brokers/dup_ack_early.txt",
    "fetch_before_write": "brokers/fetch_before_write.txt",
    "flush_fetch_leo": "brokers/flush_fetch_leo.txt",
    "flush_own_leo": "brokers/flush_fetch_leo.txt",
}

SEEDS: dict[str, Sequence[tuple[str, int]]] = {
    "no_maximal": [("plain", seed) for seed in range(16)],
    "fetch_before_write": [("plain", seed) for seed in range(12)],
    "flush_fetch_leo": [("flushed", seed) for seed in range(1, 13)],
    "flush_own_leo": [("flushed", seed) for seed in range(1, 13)],
    "flush_believed": [("flushed", seed) for seed in range(12)],
    "given_at_once": [("assigned", seed) for seed in range(4)],
    "stale_commit": [("assigned", seed) for seed in (3, 1, 6, 7)],
}
"""Found by chance, too, and hardly missed: two in three seeds show the first, nine in ten the others; but of
the last only a third, so those stand here that did. One that shows it comes first.

What fewer show is caught by a transcript or a world of its own, never by the luck of a few seeds.
"""

TESTED_BELOW = ("note_after_cut", "flush_cfg_now", "stale_leader")


def plays(name: str, root: Path) -> bool:
    """Whether a transcript goes as it is written."""
    path = SCENARIOS / name
    if name.startswith("planner"):
        text = path.read_text()
        return "\n".join(Stage().play(text)) + "\n" == text
    stage = STAGES[path.parent.name](root)
    try:
        written, played = _play(path, stage.perform)
    finally:
        if isinstance(stage, BrokersStory):
            try:
                stage.close()
            finally:
                stage.loop.close()
    return written == played


STAGES: dict[str, Callable[[Path], BrokersStory | FollowerStory | LeaderStory | ReplicasStory]] = {
    "brokers": BrokersStory,
    "follower": lambda root: FollowerStory(),
    "leader": lambda root: LeaderStory(),
    "profiles": lambda root: ReplicasStory(),
    "replicas": lambda root: ReplicasStory(),
}


def test_each_mutant_is_caught_somewhere() -> None:
    assert {*TRANSCRIPTS, *SEEDS, *TESTED_BELOW} == set(MUTANTS)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # what breaks leaves things
@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_a_transcript_fails_without_its_rule(name: str, tmp_path: Path) -> None:
    assert plays(TRANSCRIPTS[name], tmp_path / "whole")
    with broken(name):
        try:
            held = plays(TRANSCRIPTS[name], tmp_path / "broken")
        except (AssertionError, RuntimeError, LookupError, asyncio.InvalidStateError):
            held = False
    assert not held, MUTANTS[name].rule
    assert plays(TRANSCRIPTS[name], tmp_path / "again"), "and the rule is back"


@pytest.mark.parametrize("name", SEEDS)
def test_a_seed_shows_that_a_rule_is_gone(name: str) -> None:
    violations: Iterator[str | None] = (shows(name, family, seed) for family, seed in SEEDS[name])
    assert any(violations), MUTANTS[name].rule


def test_one_rule_is_backed_up_by_another() -> None:
    """`no_inc` alone: whoever is let in by its old name cannot be elected by it."""
    assert [name for name, mutant in MUTANTS.items() if mutant.survives] == ["no_inc"]
    assert shows("no_inc", "plain", 0) is None


class Deposed(World):
    """A leader asks for a smaller ISR, and its leadership ends while the answer is on its way."""

    def __init__(self) -> None:
        super().__init__(5, replace(FAMILIES["plain"], groups=0.0))

    async def story(self) -> None:
        for id in BROKERS:
            self.cluster.start(id)
        await self.workload.begin()
        self.checks.begin()
        await asyncio.sleep(2)
        tp = self.ledger.partitions[0]
        id = self.checks.leader(tp)
        partition = self.cluster.nodes[id].broker.replicas.partitions[tp]
        self.loop.network.cut(f"b{id}", f"b{next(other for other in BROKERS if other != id)}")
        while not isinstance(partition.leading and partition.leading.isr, isr.Shrinking):
            await asyncio.sleep(0.0001)
        await self.loop.spawn(self.cluster.hosts[id], self.depose(partition))
        await asyncio.sleep(1)

    async def depose(self, partition: Partition) -> None:
        await asyncio.sleep(0)  # what it asked for is on its way
        partition.resign()


def test_stale_leader() -> None:
    """What is answered to a leadership that has ended is told to nobody."""
    assert Deposed().run().violation is None
    with broken("stale_leader"):
        assert "I19" in (Deposed().run().violation or "")


class Noting(list[str]):
    """Looks up when something is noted."""

    def __init__(self, look: Callable[[], None]) -> None:
        super().__init__()
        self._look = look

    def append(self, why: str) -> None:
        self._look()


def test_note_after_cut(tmp_path: Path) -> None:
    """F40: what recovery is about to cut is written down first, for it may be killed right after the cut."""

    def sizes_when_noted(root: Path) -> list[int]:
        dirs = Dirs(root)
        log = dirs.create()
        for value in (b"one", b"two", b"three"):
            put(log, value)
        log.flush()
        dirs.logs.checkpoint_recovery_points()
        path = Path(log.directory, f"{0:020d}.log")
        dirs.logs.close(clean=False)
        data = bytearray(path.read_bytes())
        del data[-5:]
        path.write_bytes(data)
        noted: list[int] = []
        dirs.doubts = Noting(lambda: noted.append(path.stat().st_size))
        dirs.open()
        assert dirs.logs.logs[T0].end_offset == 2
        return [len(data), *noted]

    size, noted = sizes_when_noted(tmp_path / "whole")
    assert noted == size
    with broken("note_after_cut"):
        size, noted = sizes_when_noted(tmp_path / "broken")
    assert noted < size


def test_flush_cfg_now(tmp_path: Path) -> None:
    """F41: after a power loss it counts how the run before flushed."""
    story = test_incarnation.test_after_a_power_loss_the_mode_of_the_run_before_counts
    story(tmp_path / "whole", False, True, False)
    with broken("flush_cfg_now"), pytest.raises(AssertionError):
        story(tmp_path / "broken", False, True, False)
    assert incarnation.judge.__module__ == intact.__name__, "the rule is back"


def test_a_search_counts_how_many_seeds_it_takes() -> None:
    found = search(("flush_believed", 0, 3))
    assert found.median is not None and found.median <= 3
    assert all(family in FAMILIES for family, _ in found.seeds)
