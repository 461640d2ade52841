"""All checks: facts in, findings out, the worst first. Pure.

Left to others: the checks (checks_*.py), how facts are collected (collect.py).
"""

from collections.abc import Callable, Iterable, Iterator

from .checks_cluster import check_cluster
from .checks_groups import check_groups
from .checks_machines import check_machines
from .checks_network import check_addresses
from .checks_topics import check_topics
from .facts import Facts
from .findings import Finding, Severity, by_severity

CHECKS: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    check_addresses,
    check_cluster,
    check_machines,
    check_topics,
    check_groups,
)


def judge(facts: Facts) -> list[Finding]:
    """All findings, the worst first."""
    return by_severity(finding for check in CHECKS for finding in check(facts))


def problems(findings: Iterable[Finding]) -> list[Finding]:
    """Those that are problems, which is all but notes."""
    return [finding for finding in findings if finding.severity is not Severity.NOTE]
