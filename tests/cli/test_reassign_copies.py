"""How far the copies of a move are, in words, and rates as people write them."""

import pytest

from strandline.cli.console import WrongUsage
from strandline.cli.reassign.copies import Copied, bytes_per_second, progress, told

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
