"""What a route is asked and what it answers, as plain values: routes know no HTTP library.

Left to others: which routes there are (routes.py), how an answer is sent (server.py).
"""

import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from ...base.values import dataclass

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: the named parts of its path, its query, what the client likes to read, and its body."""

    parts: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    accept: str = ""
    body: bytes = b""

    def flag(self, name: str) -> bool:
        """Whether the query asks for this: `?name`, `?name=1` or `?name=true`."""
        return self.query.get(name, "0").lower() in ("", "1", "true", "yes")

    @property
    def wants_text(self) -> bool:
        """Whether the client reads text rather than JSON: it says so, or the query does."""
        wished = self.query.get("format")
        return wished == "text" if wished else self.accept.startswith("text/plain")


@dataclass(frozen=True, slots=True)
class Answer:
    """A response with a body that is complete."""

    body: bytes
    content_type: str = JSON
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


def as_json(document: Any, status: int = 200) -> Answer:
    """A document for programs, laid out for people too."""
    return Answer(json.dumps(document, indent=2).encode() + b"\n", JSON, status)


def as_text(text: str, status: int = 200) -> Answer:
    """Plain text."""
    return Answer(text.encode() if text.endswith("\n") else f"{text}\n".encode(), TEXT, status)


def refused(status: int, why: str) -> Answer:
    """An error with its reason."""
    return as_json({"error": why}, status)
