"""Bugs that Kafka once had, in what a log keeps; docs/known-bugs.md names them all."""

from pathlib import Path

from tests.storage.bare_log import BareLog


def test_epochs_without_records_go_when_a_follower_cuts_at_its_end(tmp_path: Path) -> None:
    """KAFKA-10706: a cut at the end cut nothing, and epochs without records stayed for ever."""
    held = BareLog(tmp_path / "t-0")
    held.put(b"a", b"b")
    held.log.assign_epoch(3)
    held.log.assign_epoch(7)
    assert held.log.epochs.latest == 7
    held.log.truncate_to(held.log.end_offset)
    assert held.log.epochs.latest == 0
    assert held.log.end_offset == 2
