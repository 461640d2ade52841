"""`strandline lost` on directories: nothing is kept there, or there is nothing to look into."""

from pathlib import Path

from tests.cli.conftest import Shell

NOTHING = "no removed records are kept"


def test_a_directory_that_is_no_brokers_is_not_said_to_have_lost_nothing(
    alone: Shell, tmp_path: Path
) -> None:
    empty, data = tmp_path / "empty", tmp_path / "up" / "broker-1" / "data"
    empty.mkdir()
    for wrong in (empty, tmp_path / "none-such"):
        done = alone("lost", "--dir", wrong, expect=1)
        assert f"{wrong} is not the log directory of a broker" in done.err and NOTHING not in done.out
    data.mkdir(parents=True)
    (data / "meta.properties").write_text("version=0\n")
    for right in (data, tmp_path / "up"):
        assert NOTHING in alone("lost", "--dir", right).out
    (tmp_path / "gone.aside").mkdir()
    assert NOTHING in alone("lost", "--dir", tmp_path / "gone").out, "the disk is gone, what it kept is not"
