"""Replaces attributes for a while and puts them back: this is how tests break a rule, or watch calls.

Left to others: what is replaced, and by what (`mutants.py`, `checks/standing.py`).
"""

from __future__ import annotations

from typing import Any

MISSING = object()


class Patches:
    """Replaces attributes, and puts them back."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def put(self, owner: Any, name: str, value: Any) -> None:
        """Replace one attribute, even of a frozen dataclass."""
        before = owner.__dict__.get(name, MISSING) if isinstance(owner, type) else getattr(owner, name)
        self._before.append((owner, name, before))
        self._set(owner, name, value)

    def undo(self) -> None:
        """Put all back, the last one first."""
        while self._before:
            owner, name, before = self._before.pop()
            if before is MISSING:
                delattr(owner, name)
            else:
                self._set(owner, name, before)

    def _set(self, owner: Any, name: str, value: Any) -> None:
        (setattr if isinstance(owner, type) else object.__setattr__)(owner, name, value)
