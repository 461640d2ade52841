"""All checks before a move: facts in, findings and what is fine out. Pure.

What is wrong with the cluster as it is comes along: it is mended first. That brokers are of two kinds, and
offer different requests, is the move itself.
Left to others: the checks (checks_*.py, and those of any cluster in the folder above).
"""

from collections.abc import Callable, Iterator

from ..checks_cluster import check_cluster
from ..checks_machines import check_machines
from ..checks_network import check_addresses
from ..checks_topics import check_topics
from ..facts import Facts
from ..findings import Finding, Fine, Severity, by_severity
from .checks_records import check_records
from .checks_security import check_security
from .checks_settings import check_settings
from .checks_state import check_state
from .facts import MigrationFacts

OF_ANY_CLUSTER: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    check_addresses,
    check_cluster,
    check_machines,
    check_topics,
)
OF_A_MOVE: tuple[Callable[[MigrationFacts], Iterator[Finding | Fine]], ...] = (
    check_state,
    check_settings,
    check_security,
    check_records,
)
THE_MOVE_ITSELF = frozenset(("software_differs", "requests_differ", "protocol_versions_differ"))


def judge_migration(facts: MigrationFacts) -> tuple[list[Finding], list[Fine]]:
    """All findings, the worst first, and what is fine."""
    wrong = [
        one for check in OF_ANY_CLUSTER for one in check(facts.cluster) if one.check not in THE_MOVE_ITSELF
    ]
    told = [one for check in OF_A_MOVE for one in check(facts)]
    fine = [one for one in told if isinstance(one, Fine)]
    if facts.cluster.live and not any(one.severity is not Severity.NOTE for one in wrong):
        fine.insert(0, Fine("cluster", "nothing is wrong with the cluster as it is"))
    return by_severity([*wrong, *(one for one in told if isinstance(one, Finding))]), fine
