"""What clients did and were told, and the verdict on it: the checker is shared with the simulator."""

from ..simulation.checks.history import (
    SEARCHES,
    Anomaly,
    End,
    History,
    Outcome,
    Place,
    Poll,
    Report,
    Send,
    judge,
)

__all__ = ["SEARCHES", "Anomaly", "End", "History", "Outcome", "Place", "Poll", "Report", "Send", "judge"]
