"""What a run has shown: the verdict on its histories, its audits, and what each client has done.

All of it can be had again from the folder of a run (`judged`). Left to others: the run (run.py), the
anomalies (testing/anomalies/).
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from ..anomalies import DamagedHistory, read_history
from ..anomalies.checker import NAMES, Verdict, judge_operations
from .clients.stuck import blame
from .enough import done, lacking, traceback_in
from .kinds import KINDS
from .scenario import ClientPart, Scenario, ScenarioError

FILE, FORMAT, VERSION = "run.json", "strandline-verify", 1


class State(StrEnum):
    """The verdict in one word."""

    HELD = "HELD"
    BROKEN = "BROKEN"  # something was seen that must never be
    UNKNOWN = "UNKNOWN"  # nothing was, but the run does not show that there was nothing


@dataclass
class Record:
    """What a run keeps in `run.json` beside its histories."""

    scenario: Scenario
    place: str
    kind: str  # whose brokers
    prefix: str
    left_out: list[str] = field(default_factory=list)  # entries of clients whose library is not installed
    loaded_s: float = 0.0
    took_s: float = 0.0
    lives: dict[str, int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)  # beside those that the histories show
    unknowns: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def clients(self) -> list[ClientPart]:
        """The entries whose clients ran."""
        return [each for each in self.scenario.clients if each.called not in self.left_out]

    def readers(self) -> dict[str, Sequence[str]]:
        """Those that must come to the ends of these topics."""
        return {
            each.called: [self.prefix + topic for topic in self.scenario.topics_of(each)]
            for each in self.clients
            if KINDS[each.kind].reads_all
        }

    def save(self, folder: Path) -> None:
        """Write it."""
        content = {
            "format": FORMAT,
            "version": VERSION,
            **{name: value for name, value in vars(self).items() if name != "scenario"},
            "scenario": self.scenario.model_dump(mode="json", exclude_defaults=True),
        }
        (folder / FILE).write_text(json.dumps(content, indent=2) + "\n")

    @classmethod
    def read(cls, folder: Path) -> Self:
        """What `save` wrote. Raises ScenarioError."""
        path = folder / FILE
        try:
            content: dict[str, Any] = json.loads(path.read_text())
        except OSError as error:
            raise ScenarioError(
                f"{path} cannot be read ({error.strerror}): {folder} is not the folder of a run, as "
                "`strandline verify --keep` leaves it"
            ) from None
        except ValueError as error:
            raise ScenarioError(f"{path} is damaged: {error}") from None
        if not isinstance(content, dict):
            raise ScenarioError(f"{path} is damaged: expected an object")
        if (content.pop("format", None), content.pop("version", None)) != (FORMAT, VERSION):
            raise ScenarioError(f"{path} was not written by this version of strandline verify")
        try:
            return cls(**{**content, "scenario": Scenario.model_validate(content["scenario"])})
        except (KeyError, TypeError, ValueError) as error:
            raise ScenarioError(f"{path} is damaged: {error}") from None


@dataclass
class Outcome:
    """The verdict on a run."""

    record: Record
    folder: Path
    verdict: Verdict
    counts: dict[str, Counter[str]]
    violations: list[str]
    unknowns: list[str]
    stuck: list[str]  # calls of librdkafka that did not return, by its own fault

    @property
    def state(self) -> State:
        """The verdict in one word."""
        if self.verdict.found or self.violations:
            return State.BROKEN
        return State.HELD if self.verdict.good and not self.unknowns else State.UNKNOWN

    @property
    def good(self) -> bool:
        """Whether everything held, and that much was tested."""
        return self.state is State.HELD

    def explanation(self) -> list[str]:
        """What is wrong, the shortest evidence first; empty if nothing is."""
        lines: list[str] = []
        shortest = sorted(
            (min(len(each.values) for each in found), name) for name, found in self.verdict.found.items()
        )
        for _, name in shortest:
            found = self.verdict.found[name]
            lines += [f"{name}, the shortest of {len(found)}:"]
            evidence = min(found, key=lambda each: len(each.values))
            lines += [f"  {line}" for line in self.verdict.explanation(evidence)]
        lines += [f"violated: {each}" for each in self.violations]
        lines += [f"not known: {each}" for each in self.unknowns]
        return lines

    def figures(self) -> list[str]:
        """What was done, for people."""
        record, verdict = self.record, self.verdict
        loaded_s = max(record.loaded_s, 0.001)
        lines = [
            f"{record.scenario.name}, seed {record.scenario.seed}, {record.kind} in {record.place}: "
            f"{record.loaded_s:.0f} s of load, {record.took_s:.0f} s in all",
            f"transactions: {verdict.committed} committed, {verdict.aborted} aborted, {verdict.unknown} "
            f"unknown",
            f"records: {verdict.sent} sent, {verdict.acknowledged} acknowledged for good "
            f"({verdict.acknowledged / loaded_s:.0f}/s), {verdict.read} read in the end; {verdict.polls} "
            f"polls",
            f"faults: {sum(verdict.faults.values())}",
        ]
        lines += [f"  {count:5}  {fault}" for fault, count in sorted(verdict.faults.items())]
        for name, of_client in self.counts.items():
            lives = sum(n for client, n in record.lives.items() if client.rpartition("-")[0] == name)
            what = ", ".join(f"{count} {what}" for what, count in of_client.items())
            lines.append(f"{name:24} {what or 'nothing'}; lives: {lives}")
        lines += [f"left out, for confluent-kafka is not installed: {name}" for name in record.left_out]
        lines += [f"stuck: {line}" for line in self.stuck]
        return lines + [f"note: {line}" for line in record.notes]

    def anomalies(self) -> dict[str, int]:
        """How often each was found, by name."""
        return {str(name): len(self.verdict.found.get(name, ())) for name in NAMES}

    def document(self) -> dict[str, Any]:
        """For programs."""
        verdict, record = self.verdict, self.record
        return {
            "verdict": self.state.value,
            "scenario": record.scenario.name,
            "seed": record.scenario.seed,
            "brokers": record.kind,
            "place": record.place,
            "load_s": round(record.loaded_s, 3),
            "took_s": round(record.took_s, 3),
            "transactions": {
                "committed": verdict.committed, "aborted": verdict.aborted, "unknown": verdict.unknown,
            },
            "records": {"sent": verdict.sent, "acknowledged": verdict.acknowledged, "read": verdict.read},
            "polls": verdict.polls,
            "faults": dict(sorted(verdict.faults.items())),
            "anomalies": self.anomalies(),
            "violations": self.violations,
            "unknowns": self.unknowns,
            "stuck": self.stuck,
            "clients": {name: dict(of_client) for name, of_client in self.counts.items()},
            "lives": record.lives,
            "left_out": record.left_out,
            "notes": record.notes,
            "explanation": self.explanation(),
        }  # fmt: skip

    def __str__(self) -> str:
        return "\n".join([*self.explanation(), *self.figures(), self.state])


def judged(folder: Path) -> Outcome:
    """Judge the histories in the folder of a run. Raises ScenarioError if it is none."""
    record = Record.read(folder)
    try:
        operations = read_history(*sorted(folder.glob("*.history")))
    except DamagedHistory as error:
        raise ScenarioError(str(error)) from None
    verdict = judge_operations(operations)
    counts = done(operations, record.clients)
    violations, unknowns, stuck = list(record.violations), list(record.unknowns), list[str]()
    unknowns += lacking(counts, record.clients)
    for log in sorted(folder.glob("*.log")):
        text = log.read_text(errors="replace")
        if found := traceback_in(text):
            unknowns.append(f"a client met what it did not expect: {log}: {found}")
        by_client, by_broker = blame(text)
        stuck += [f"{log.stem}: {line}" for line in by_client]
        violations += [f"{log.stem}: {line}" for line in by_broker]
    if not verdict.acknowledged:
        unknowns.append("nothing was acknowledged, so nothing was tested")
    if verdict.uncovered:
        unknowns.append(
            "acknowledged, and not read in the end, so that much may be lost there: "
            + ", ".join(map(str, verdict.uncovered))
        )
    return Outcome(record, folder, verdict, counts, violations, unknowns, stuck)
