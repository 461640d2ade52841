"""A log moves to another directory while it is in use: what is there afterwards, whatever comes between.

Killed at any file call, without power at any file call, with records coming, going and being cleaned.
"""

from collections.abc import Callable
from random import Random
from typing import Any
from uuid import UUID

import pytest

from strandline.simulation.environment.disk import SimDisk
from strandline.storage.config import StorageConfig, TopicConfig
from strandline.storage.directories.log_manager import AmbiguousDirectory, Logs
from strandline.storage.disk import DiskError, LeftBehind, RealDisk
from strandline.storage.log.checkpoints import EPOCHS
from strandline.storage.log.pending_deletion import Deletion
from strandline.storage.log.relocation import MOVED_FROM, TAIL_BYTES, Relocation
from tests.storage.compaction_harness import compact
from tests.storage.conftest import START_MS, T0, FixedClock, put
from tests.storage.faulty_disk import FaultyDisk
from tests.storage.test_killed_at_any_step import CHANGES, Killed, copy_of, values
from tests.storage.transactions import abort, commit, put_data

CONFIG = StorageConfig(segment_bytes=400, index_interval_bytes=100, file_delete_delay_ms=0)
HERE, THERE = "/here", "/there"
COUNT, START, COMMITTED, STEPS_MAX = 24, 9, 20, 400
COPY, OLD = UUID(int=1), UUID(int=2)
CALLS = (*CHANGES, "sync", "sync_dir")


def opened(disk: Any, lost: list[str], config: StorageConfig = CONFIG) -> Logs:
    return Logs.open(
        [HERE, THERE], disk, config, FixedClock(), clean=False,
        before_loss=lambda partition, why: lost.append(f"{partition}: {why}"),
    )  # fmt: skip


def filled() -> SimDisk:
    """A log in many segments, all of it on the medium, of which a client has deleted the beginning."""
    disk = SimDisk()
    logs = opened(disk, [])
    log = logs.create(T0, UUID(int=5), TopicConfig.of(logs.config))
    assert logs.directory_of(T0) == HERE
    for number in range(COUNT):
        put(log, b"%d" % number * 40, epoch=number // 10, pid=7, seq=number)
    log.flush()
    log.save_epochs()
    log.move_start(START)
    logs.checkpoint_recovery_points()
    logs.checkpoint_high_watermarks(lambda: {T0: COMMITTED})
    logs.close(clean=False)
    return disk


def copied(logs: Logs, between: Callable[[], None] = lambda: None) -> Relocation:
    """A copy that needs little to be complete; `between` happens after each step."""
    copy = logs.relocation(T0, THERE, COPY)
    for _ in range(20):
        step = copy.next_step()
        if step is None:
            return copy
        step.run()
        copy.copied(step)
        between()
    raise AssertionError("it comes to no end")


def move(logs: Logs, between: Callable[[], None] = lambda: None) -> None:
    source = logs.take_over(copied(logs, between), THERE, COMMITTED)
    logs.condemned.add([logs.left_behind(T0, source, OLD)])


def purge(logs: Logs) -> None:
    deletion = Deletion(logs.disk, logs.condemned.due(0.0) + logs.condemned.due(1e9))
    while deletion:
        deletion.step(lambda: 0.0)


def test_everything_is_there_and_goes_on(tmp_path: Any) -> None:
    disk, lost = filled(), list[str]()
    logs = opened(disk, lost)
    log, before = logs.logs[T0], values(logs.logs[T0])
    epochs, generation = list(log.epochs.entries), log.generation
    move(logs)
    assert logs.logs[T0] is log and log.directory == f"{THERE}/{T0}" and logs.directory_of(T0) == THERE
    assert values(log) == before and log.generation > generation
    assert log.flushed_offset == log.end_offset == COUNT
    put(log, b"more" * 40, epoch=2, pid=7, seq=COUNT)
    log.flush()
    purge(logs)
    assert not any(path.startswith(f"{HERE}/{T0}") for path in disk.files), "nothing is left there"
    logs.close(clean=False)
    again = opened(disk, lost)
    assert not lost and again.directory_of(T0) == THERE and again.high_watermarks[T0] == COMMITTED
    log = again.logs[T0]
    assert log.start_offset == START, "what was deleted does not come back with the directory"
    assert values(log) == {**before, COUNT: b"more" * 40}
    assert list(log.epochs.entries) == epochs
    assert log.producers.get(7) is not None


def test_what_was_aborted_stays_aborted_and_what_is_open_stays_open() -> None:
    disk, lost = SimDisk(), list[str]()
    logs = opened(disk, lost)
    log = logs.create(T0, UUID(int=5), TopicConfig.of(logs.config))
    for number in range(6):  # over several segments
        put_data(log, 8, 2 * number)
        put_data(log, 8, 2 * number + 1)
        (abort if number % 2 else commit)(log, 8)
    put_data(log, 9, 0)
    end = log.end_offset
    told, stable = log.aborted(0, end), log.last_stable_offset(end)
    assert len(told) == 3 and stable == end - 1 and len(log.segments) > 2
    move(logs)
    assert (log.aborted(0, end), log.last_stable_offset(end)) == (told, stable)
    log.flush()
    logs.close(clean=False)
    log = opened(disk, lost).logs[T0]
    assert (log.aborted(0, end), log.last_stable_offset(end)) == (told, stable) and not lost


def append_some(logs: Logs) -> Callable[[], None]:
    numbers = iter(range(COUNT, COUNT + 6))

    def append() -> None:
        for number in numbers:
            put(logs.logs[T0], b"%d" % number * 40, epoch=2, pid=7, seq=number)

    return append


def cut_and_go_on(logs: Logs) -> Callable[[], None]:
    rounds = iter((12,))

    def cut() -> None:
        for to in rounds:
            logs.logs[T0].truncate_to(to)
            put(logs.logs[T0], b"other" * 40, epoch=5)

    return cut


def retire_some(logs: Logs) -> Callable[[], None]:
    return lambda: logs.condemned.add([]) if logs.retire(logs.logs[T0], COMMITTED, 1) else None


def clean_once(logs: Logs) -> Callable[[], None]:
    rounds = iter((1,))

    def clean() -> None:
        for _ in rounds:
            compact(logs)

    return clean


@pytest.mark.parametrize("change", [append_some, cut_and_go_on, retire_some, clean_once])
def test_what_changes_meanwhile_is_in_the_copy(change: Callable[[Logs], Callable[[], None]]) -> None:
    disk, lost = filled(), list[str]()
    config = CONFIG.model_copy(update={"cleanup_policy": "compact,delete", "retention_bytes": 1000})
    logs = opened(disk, lost, config)
    log = logs.logs[T0]
    log.configure(TopicConfig.of(config))
    move(logs, change(logs))
    expected, sizes = values(log), [(s.base_offset, s.size) for s in log.segments]
    names = {path.rpartition("/")[2] for path in disk.files if path.startswith(f"{THERE}/{T0}/")}
    bases = {f"{base:020d}" for base, _ in sizes}
    assert {name[:20] for name in names if name.endswith(".log")} == bases, "no segment that is none"
    put(log, b"more" * 40, epoch=6)
    logs.close(clean=False)
    again = opened(disk, lost, config)
    assert not lost and values(again.logs[T0]) == {**expected, log.end_offset - 1: b"more" * 40}


class Interposed(FaultyDisk):
    """Does something once, when a file is synced."""

    at, act = "", staticmethod(lambda: None)

    def struck(self, call: str, path: str) -> Any:
        if call == "sync" and self.at and path.endswith(self.at):
            self.at = ""
            self.act()
        return super().struck(call, path)


@pytest.mark.parametrize("change", [retire_some, clean_once])
def test_a_segment_that_goes_while_it_is_copied_is_not_in_the_copy(
    change: Callable[[Logs], Callable[[], None]],
) -> None:
    disk, lost = Interposed(filled()), list[str]()
    config = CONFIG.model_copy(update={"cleanup_policy": "compact,delete", "retention_bytes": 1000})
    logs = opened(disk, lost, config)
    log = logs.logs[T0]
    log.configure(TopicConfig.of(config))
    bases, gone = [each.base_offset for each in log.segments], list[int]()

    def act() -> None:
        change(logs)()
        gone.extend({*bases} - {each.base_offset for each in log.segments})

    going = bases[0 if change is retire_some else 1]  # cleaning merges it into the first one
    disk.at, disk.act = f"/{going:020d}.log", act
    move(logs)
    assert going in gone, "it went while it was copied"
    names = {path.rpartition("/")[2] for path in disk.inner.files if path.startswith(f"{THERE}/{T0}/")}
    there = {int(name[:20]) for name in names if name.endswith(".log")}
    assert there == {each.base_offset for each in log.segments}
    expected = values(log)
    logs.close(clean=False)
    assert values(opened(disk, lost, config).logs[T0]) == expected and not lost


class Dying(FaultyDisk):
    """Lets so many changes and syncs of files through."""

    left = 1 << 30

    def struck(self, call: str, path: str) -> Any:
        if call in CALLS:
            if not self.left:
                raise Killed
            self.left -= 1
        return super().struck(call, path)


def unordered(disk: SimDisk) -> SimDisk:
    """A copy on a file system that may lose any change of a name that was not synced."""
    made = SimDisk(ordered=False)
    for folder in sorted(disk.folders):
        made.mkdir(folder)
    for path, content in disk.files.items():
        made.replace(path, bytes(content.data))
    for folder in sorted(disk.folders):
        made.sync_dir(folder)
    return made


def stopped_after(step: int, before: SimDisk, lost: list[str]) -> tuple[Dying, Logs, bool]:
    """A broker that was stopped after so many changes of files, and whether it had moved the log by then."""
    disk, finished = Dying(before), False
    logs = opened(disk, lost)
    disk.left = step
    try:
        move(logs)
        finished = True
    except Killed:
        pass
    disk.left = 1 << 30
    return disk, logs, finished


def test_killed_at_any_step_it_is_in_one_place_and_whole() -> None:
    before, whole = filled(), {number: b"%d" % number * 40 for number in range(START, COUNT)}
    places, finished, step = set(), False, 0
    while not finished:
        assert step < STEPS_MAX, "it comes to an end"
        lost = list[str]()
        disk, logs, finished = stopped_after(step, copy_of(before), lost)
        logs.close(clean=False)
        again = opened(disk.inner, lost)
        assert not lost and values(again.logs[T0]) == whole, f"after {disk.calls[-1:]}"
        assert again.high_watermarks[T0] == COMMITTED
        places.add(again.directory_of(T0))
        assert again.interrupted in ({}, {T0: THERE})
        put(again.logs[T0], b"more" * 40, epoch=3)
        purge(again)
        again.close(clean=False)
        third = opened(disk.inner, lost)
        assert not lost and values(third.logs[T0]) == {**whole, COUNT: b"more" * 40}
        assert third.directory_of(T0) == again.directory_of(T0) and not third.interrupted
        notes = [path for path in disk.inner.files if path.endswith(MOVED_FROM)]
        assert not notes or third.directory_of(T0) == THERE, "it says that it is the one"
        step += 1
    assert places == {HERE, THERE} and step > 20


def test_directories_may_be_written_with_a_slash_at_their_end(tmp_path: Any) -> None:
    """Killed when the log has moved, and is not removed from where it was: the note names that directory."""
    places, disk = [f"{tmp_path}/a/", f"{tmp_path}/b/"], RealDisk()
    for place in places:
        disk.mkdir(place)

    def opened_there() -> Logs:
        return Logs.open(
            places, disk, CONFIG, FixedClock(), clean=False, before_loss=lambda partition, why: None
        )

    logs = opened_there()
    log = logs.create(T0, UUID(int=5), TopicConfig.of(CONFIG))
    assert logs.directory_of(T0) == places[0]
    put(log, b"kept" * 10)
    copy = logs.relocation(T0, places[1], COPY)
    while (step := copy.next_step()) is not None:
        step.run()
        copy.copied(step)
    logs.take_over(copy, places[1], 0)
    logs.close(clean=False)
    again = opened_there()
    assert again.directory_of(T0) == places[1] and values(again.logs[T0]) == {0: b"kept" * 10}
    assert not disk.exists(f"{places[0]}{T0}")


@pytest.mark.parametrize("seed", range(3))
def test_without_power_at_any_step_it_is_whole(seed: int) -> None:
    before, whole = filled(), {number: b"%d" % number * 40 for number in range(START, COUNT)}
    finished, step = False, 0
    while not finished:
        lost = list[str]()
        disk, logs, finished = stopped_after(step, unordered(before), lost)
        if finished:
            put(logs.logs[T0], b"%d" % COUNT * 40, epoch=3)
            logs.logs[T0].flush()
            whole[COUNT] = b"%d" % COUNT * 40
        disk.inner.lose_power(0.0, Random(f"{seed} {step}"))
        again = opened(disk.inner, lost)
        assert not lost and values(again.logs[T0]) == whole, f"after {disk.calls[-1:]}"
        assert again.logs[T0].start_offset == START
        step += 1


def test_the_disk_that_it_goes_to_fails(tmp_path: Any) -> None:
    """Whatever fails before the copy is the log, the log stays what and where it was."""
    for call in ("open", "append", "sync", "replace", "rename", "mkdir"):
        disk, lost = FaultyDisk(filled()), list[str]()
        logs = opened(disk, lost)
        expected = values(logs.logs[T0])
        fault = disk.fail(call, f"{THERE}/*")
        with pytest.raises(DiskError) as error:
            move(logs)
        assert THERE in str(error.value) and logs.directory_of(T0) == HERE
        assert values(logs.logs[T0]) == expected and not logs.logs[T0].failed
        put(logs.logs[T0], b"more" * 40, epoch=3)
        disk.heal(fault)
        logs.close(clean=False)
        assert opened(disk, lost).directory_of(T0) == HERE and not lost


def test_the_disk_that_it_comes_from_fails_when_it_is_to_be_removed() -> None:
    disk, lost = FaultyDisk(filled()), list[str]()
    logs = opened(disk, lost)
    source = logs.take_over(copied(logs), THERE, COMMITTED)
    fault = disk.fail("rename", f"{HERE}/*")
    with pytest.raises(DiskError):
        logs.left_behind(T0, source, OLD)
    put(logs.logs[T0], b"more" * 40, epoch=3)
    logs.logs[T0].flush()
    logs.close(clean=False)
    disk.heal(fault)
    again = opened(disk, lost)
    assert again.directory_of(T0) == THERE and values(again.logs[T0])[COUNT] == b"more" * 40
    again.close(clean=False)
    disk.inner.mkdir(f"{HERE}/{T0}")
    disk.inner.replace(f"{THERE}/{T0}/{MOVED_FROM}", b"/elsewhere")
    with pytest.raises(AmbiguousDirectory):
        opened(disk, lost)  # nothing says any more that this one is old


@pytest.mark.parametrize(("call", "where"), [("rename", HERE), ("sync_dir", HERE), ("unlink", THERE)])
def test_what_could_not_be_removed_is_in_nobodys_way(call: str, where: str) -> None:
    """No log is made beside it, nothing moves onto it, and it can be removed later."""
    disk, lost = FaultyDisk(filled()), list[str]()
    logs = opened(disk, lost)
    source = logs.take_over(copied(logs), THERE, COMMITTED)
    fault = disk.fail(call, f"{where}*")
    with pytest.raises(DiskError) as error:
        logs.left_behind(T0, source, OLD)
    disk.heal(fault)
    assert logs.places.holding(error.value.path) == where, "that disk has failed, not the other"
    with pytest.raises(LeftBehind, match="log_left_behind"):
        logs.relocation(T0, HERE, UUID(int=3))
    logs.remove(T0, UUID(int=4))
    logs.preferred[T0] = HERE
    put(logs.create(T0, UUID(int=6), TopicConfig.of(CONFIG)), b"new")
    assert logs.directory_of(T0) == THERE
    logs.logs[T0].flush()
    killed = copy_of(disk.inner)
    assert logs.left_behind(T0, source, OLD) == next(
        p for p in disk.inner.folders if p.startswith(f"{HERE}/{T0}")
    )
    assert [*values(logs.logs[T0])] == [0] and not disk.exists(f"{HERE}/{T0}")
    logs.relocation(T0, HERE, UUID(int=5))
    again = opened(killed, lost)
    assert again.directory_of(T0) == THERE and [*values(again.logs[T0])] == [0] and not lost


def test_a_new_log_waits_when_only_the_old_place_is_left() -> None:
    disk = FaultyDisk(filled())
    logs = opened(disk, [])
    source = logs.take_over(copied(logs), THERE, COMMITTED)
    logs.remove(T0, UUID(int=4))
    logs.give_up(THERE, "lost")
    with pytest.raises(LeftBehind):
        logs.create(T0, UUID(int=6), TopicConfig.of(CONFIG))
    logs.left_behind(T0, source, OLD)
    logs.create(T0, UUID(int=6), TopicConfig.of(CONFIG))
    assert logs.directory_of(T0) == HERE and not values(logs.logs[T0])


def test_it_may_move_back() -> None:
    disk, lost = filled(), list[str]()
    logs = opened(disk, lost)
    expected = values(logs.logs[T0])
    move(logs)
    back = logs.relocation(T0, HERE, UUID(int=3))
    while (step := back.next_step()) is not None:
        step.run()
        back.copied(step)
    logs.left_behind(T0, logs.take_over(back, HERE, COMMITTED), UUID(int=4))
    assert values(logs.logs[T0]) == expected
    logs.close(clean=False)
    again = opened(disk, lost)
    assert again.directory_of(T0) == HERE and values(again.logs[T0]) == expected and not lost


def test_a_note_of_an_earlier_move_does_not_count() -> None:
    """It had come from there once, was killed before the note was removed, and goes back now."""
    disk, lost = filled(), list[str]()
    disk.replace(f"{HERE}/{T0}/{MOVED_FROM}", THERE.encode())
    logs = opened(disk, lost)
    logs.take_over(copied(logs), THERE, COMMITTED)
    put(logs.logs[T0], b"more" * 40, epoch=3)
    logs.close(clean=False)
    again = opened(disk, lost)
    assert not lost and again.directory_of(T0) == THERE and COUNT in values(again.logs[T0])


@pytest.mark.parametrize("seed", range(6))
def test_a_note_of_an_earlier_move_does_not_come_back_without_power(seed: int) -> None:
    before = filled()
    before.replace(f"{HERE}/{T0}/{MOVED_FROM}", THERE.encode())
    disk, lost = unordered(before), list[str]()
    logs = opened(disk, lost)
    logs.take_over(copied(logs), THERE, COMMITTED)
    put(logs.logs[T0], b"more" * 40, epoch=3)
    logs.logs[T0].flush()
    disk.lose_power(0.0, Random(seed))
    again = opened(disk, lost)
    assert not lost and again.directory_of(T0) == THERE and COUNT in values(again.logs[T0])


@pytest.mark.parametrize("is_offline", [False, True])
def test_a_start_removes_a_note_when_it_sees_that_nothing_is_there(is_offline: bool) -> None:
    before = filled()
    before.replace(f"{HERE}/{T0}/{MOVED_FROM}", THERE.encode())
    disk = FaultyDisk(before)
    if is_offline:
        disk.fail("listdir", THERE)
    assert (THERE in opened(disk, []).places.offline) == is_offline
    assert disk.exists(f"{HERE}/{T0}/{MOVED_FROM}") == is_offline


def test_a_log_that_is_not_here_yet_is_made_where_it_is_wanted() -> None:
    logs = opened(SimDisk(), [])
    for number in range(4):
        logs.preferred[T0._replace(partition=number)] = THERE
        logs.create(T0._replace(partition=number), None, TopicConfig.of(CONFIG))
    assert {logs.directory_of(each) for each in logs.logs} == {THERE} and not logs.preferred


def test_the_loop_copies_little() -> None:
    disk = SimDisk()
    logs = opened(disk, [], StorageConfig())
    log = logs.create(T0, None, TopicConfig.of(StorageConfig()))
    put(log, b"x" * (TAIL_BYTES + 1000))
    copy = logs.relocation(T0, THERE, COPY)
    for _ in range(2):
        step = copy.next_step()
        assert step is not None, "more than that is for a thread"
        step.run()
        copy.copied(step)
        put(log, b"x" * (TAIL_BYTES + 1000), at=START_MS)
    assert copy.end_offset == 0 and copy.nbytes > 0
    step = copy.next_step()
    assert step is not None
    step.run()
    copy.copied(step)
    put(log, b"x" * 1000)
    assert copy.next_step() is None


@pytest.mark.parametrize("changes", [False, True])
def test_the_loop_syncs_small_files_only_if_they_have_changed(changes: bool) -> None:
    """A thread has copied them with the last records; what is in them counts as of the end of the move."""
    disk, lost = FaultyDisk(filled()), list[str]()
    logs = opened(disk, lost)
    log = logs.logs[T0]
    copy = copied(logs)
    if changes:
        put(log, b"more" * 10, epoch=9)
        log.save_epochs()
    assert copy.next_step() is None, "little has changed"
    expected, begun = values(log), len(disk.calls)
    epochs = disk.read(f"{HERE}/{T0}/{EPOCHS}")
    logs.take_over(copy, THERE, COMMITTED)
    assert disk.read(f"{THERE}/{T0}/{EPOCHS}") == epochs
    within = [(call, path) for call, path in disk.calls[begun:] if path.startswith(copy.path + "/")]
    assert sum(call == "replace" for call, _ in within) == changes
    logs.close(clean=False)
    again = opened(disk, lost)
    assert not lost and again.directory_of(T0) == THERE and values(again.logs[T0]) == expected
    assert again.logs[T0].epochs.latest == (9 if changes else (COUNT - 1) // 10)
