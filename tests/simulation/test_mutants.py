"""The tester is tested: with a rule taken away, a seed must find what the rule is there for.

Each mutant stands with a seed that finds it. That the same seed passes with the rule in place is shown too,
or the seed would prove nothing.
"""

from collections.abc import Callable

import pytest

from strandline.replication import follower, isr
from strandline.replication.effects import Effects, Truncate
from strandline.simulation.world import run_seed

Break = Callable[[pytest.MonkeyPatch], None]


def truncate_to_the_watermark(patch: pytest.MonkeyPatch) -> None:
    """A follower cuts to its high watermark instead of where its leader says (KIP-101)."""

    def part(self: follower.Follower, *answer: int) -> Effects:
        return (Truncate(self.high_watermark, settled=True),)

    patch.setattr(follower.Follower, "_part", part)


def count_the_proposed_isr(patch: pytest.MonkeyPatch) -> None:
    """The leader counts the smaller set already while ZooKeeper may still hold the larger one."""
    patch.setattr(isr.Growing, "must_ack", property(lambda change: change.members))
    patch.setattr(isr.Shrinking, "must_ack", property(lambda change: change.members - change.leaving))


@pytest.mark.parametrize(("mutant", "seed"), [(truncate_to_the_watermark, 19), (count_the_proposed_isr, 2)])
def test_a_broken_rule_is_found(mutant: Break, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_seed(seed).violation is None
    mutant(monkeypatch)
    violation = run_seed(seed).violation
    assert violation is not None and violation.startswith("Violation: I1"), f"{mutant.__doc__}: {violation}"
