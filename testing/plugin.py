"""A pytest plugin: a running cluster of three brokers, and scenarios of `strandline verify`."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .verify import Outcome


@pytest.fixture(scope="session")
def strandline_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """One `LocalCluster` for the whole session: each test should use its own topics."""
    from ..local.cluster import LocalCluster
    from .nursery import forked

    local = forked(LocalCluster(tmp_path_factory.mktemp("strandline"), 3, owned=True))
    local.start()
    yield local
    local.kill()


@pytest.fixture
def strandline_verify(tmp_path: Path) -> "Callable[..., Outcome]":
    """Runs a scenario as `strandline.testing.verify.verify` does, and fails the test if it does not hold.

    `strandline_verify("failover.toml", seed=7)`; histories and logs are in the test's own directory.
    """

    def held(scenario: str | Path, **options: Any) -> "Outcome":
        from .verify import verify

        outcome = verify(scenario, tmp_path / "verify", **options)
        if not outcome.good:
            pytest.fail(f"{outcome}\nhistories and logs: {outcome.folder}", pytrace=False)
        return outcome

    return held
