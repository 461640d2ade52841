"""The page that `strandline replay --page` writes, opened as a file: a failover, stepped through by keys."""

from pathlib import Path

import pytest

from strandline.cli.replay.command import page_of
from tests.cli.test_replay import failover, film, note
from tests.web.chromium import COMMAND, chromium

pytestmark = [
    pytest.mark.skipif(COMMAND is None, reason="there is no chromium: apt-get install chromium"),
    pytest.mark.slow,
]

EVIL = "</script><script>window.stung = true</script><img src=x onerror='window.stung = true'>"
LAST = 11
SUSPECTED, ELECTED, LEADS, HEARD = 7, 8, 9, 10


def row(broker: int) -> str:
    """What is shown of a replica, as JavaScript."""
    return f"document.querySelectorAll('#state tbody tr')[{broker - 1}].innerText"


async def test_a_failover_is_stepped_through(tmp_path: Path) -> None:
    notes = failover()
    notes[2].append(note(3000, "t-0", "went_offline", why=EVIL))
    file = tmp_path / "film.html"
    file.write_text(page_of(film(notes), 0, LAST, "t-0"))
    async with chromium(tmp_path) as page:
        await page.open(f"{file.as_uri()}#{SUSPECTED}")
        assert "broker 1 is suspected" in await page.text("#said")
        assert "leading" in await page.evaluate(row(1)) and "has not heard" not in await page.evaluate(row(3))

        for key, moment in (("ArrowRight", ELECTED), ("ArrowRight", LEADS)):
            await page.press(key)
            await page.until(f"document.querySelector('[aria-current]').dataset.n === '{moment}'")
        assert "leader 2, epoch 5" in await page.text("#state caption")
        assert "has not heard of epoch 5" in await page.evaluate(row(3))
        assert "if it still runs, takes itself for the leader" in await page.evaluate(row(1))
        await page.press("ArrowRight")
        await page.until(f"{row(3)}.includes('following 2') && !{row(3)}.includes('has not heard')")
        await page.press("ArrowLeft")
        await page.until(f"document.querySelector('#slider').value === '{LEADS}'")

        await page.press(" ")
        await page.until(f"document.querySelector('[aria-current]').dataset.n === '{LAST}'")
        assert EVIL in await page.text("#said")
        assert await page.evaluate("document.querySelector('#play').innerText") == "play", "it ends by itself"
        assert not await page.evaluate("window.stung === true || document.querySelector('img') !== null")
        assert page.errors == [] and [each for each in page.asked if not each.startswith("file:")] == []
