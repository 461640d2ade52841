"""Finds what transactions and readers of committed records must never show, in histories of real clients.

    verdict = judge_operations(read_history(*files))
    assert verdict.good, verdict

What is looked for is told in docs/anomalies.md. Left to others: clients and faults (testing/verify/).
"""

from .checker import TransactionalAnomaly, Verdict, judge_operations
from .history import DamagedHistory, HistoryWriter, Notes, read_header, read_history
from .operations import UNKNOWN, Action, Operation, Record, Type
from .transcript import parse, told

__all__ = [
    "UNKNOWN",
    "Action",
    "DamagedHistory",
    "HistoryWriter",
    "Notes",
    "Operation",
    "Record",
    "TransactionalAnomaly",
    "Type",
    "Verdict",
    "judge_operations",
    "parse",
    "read_header",
    "read_history",
    "told",
]
