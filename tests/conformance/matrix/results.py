"""What came of the cells: kept in results.json beside this file, written by `make compatibility`."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = Path(__file__).with_name("results.json")
PASSES, FAILS, NOT_OFFERED, FAULT = "passes", "fails", "not offered", "a fault of the client"


@dataclass(frozen=True)
class Outcome:
    """One cell: did it pass, why not, what the client saw of a kill, and how long it took. `again` is why it
    failed in the walk, when this is of a run after it, alone.
    """

    client: str
    feature: str
    event: str
    outcome: str
    reason: str = ""
    gap_s: float | None = None
    took_s: float = 0.0
    again: str = ""


@dataclass(frozen=True)
class Walked:
    """One client through all its cells. Those of one walk have the time at which it began in common."""

    version: str
    walk: str
    took_s: int
    cores: int
    load: float  # how many processes wanted a core, on average over the walk's last quarter of an hour
    outcomes: list[Outcome]


def load() -> dict[str, Walked]:
    """The last walk of each client."""
    told = json.loads(FILE.read_text(encoding="utf-8"))
    return {
        client: Walked(**{**walked, "outcomes": [Outcome(client, **one) for one in walked["outcomes"]]})
        for client, walked in told.items()
    }


def save(walks: dict[str, Walked]) -> None:
    """Write the file, a line for each cell."""
    FILE.write_text(text(walks), encoding="utf-8")


def text(walks: dict[str, Walked]) -> str:
    """The file's text."""
    return "{\n" + ",\n".join(_section(client, walked) for client, walked in walks.items()) + "\n}\n"


def _section(client: str, walked: Walked) -> str:
    head = {name: value for name, value in asdict(walked).items() if name != "outcomes"}
    rows = ",\n".join(f"    {_line(one)}" for one in walked.outcomes)
    fields = "".join(f"  {json.dumps(name)}: {json.dumps(value)},\n" for name, value in head.items())
    return f'{json.dumps(client)}: {{\n{fields}  "outcomes": [\n{rows}\n  ]\n}}'


def _line(one: Outcome) -> str:
    shown = {
        name: value for name, value in asdict(one).items() if name != "client" and value not in ("", None)
    }
    return json.dumps(shown, ensure_ascii=False)
