"""A hundred thousand random frames to one broker: it answers them, its log has only what it accepted."""

from pathlib import Path

from tests.fuzzing.run import Fuzz, started

FRAMES = 100_000


def test_a_hundred_thousand_random_frames(tmp_path: Path) -> None:
    with started(tmp_path) as local:
        fuzz = Fuzz(local, seed="1")
        fuzz.run(FRAMES)
    sent = fuzz.lines.sent
    assert fuzz.complaints == []
    assert sent.whole.total() > FRAMES * 0.9 and sent.damaged > FRAMES * 0.03
    usual = {(api.name, version) for api, version in fuzz.lines.drawing.usual}
    assert set(sent.whole) >= usual, "each API and version was answered"
    assert all(sent.ended[each] > 50 for each in ("malformed", "endless", "silent"))
    assert fuzz.ledger.accepted_batches > 600, "requests come far"
    assert len(fuzz.judge.errors) > 160, "and go wrong in many ways"
