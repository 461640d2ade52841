"""Checks what clients did and were told for lost, duplicate and reordered records, as in the simulator."""

from ..simulation.checks.history import (
    SEARCHES,
    Anomaly,
    End,
    Evidence,
    History,
    Outcome,
    Place,
    Poll,
    Report,
    Send,
    judge,
)

__all__ = [
    "SEARCHES",
    "Anomaly",
    "End",
    "Evidence",
    "History",
    "Outcome",
    "Place",
    "Poll",
    "Report",
    "Send",
    "judge",
]
