"""Load and faults against a cluster from a scenario file, and the verdict: what `strandline verify` does.

    from strandline.testing.verify import verify

    def test_nothing_is_lost(tmp_path):
        outcome = verify("failover.toml", folder=tmp_path, seed=7)
        assert outcome.good, outcome

Left to others: the anomalies and how they are found (testing/anomalies/), the command (cli/verify/).
"""

from .outcome import Outcome, State, judged
from .run import run
from .scenario import Scenario, ScenarioError, load
from .start import verify

__all__ = ["Outcome", "Scenario", "ScenarioError", "State", "judged", "load", "run", "verify"]
