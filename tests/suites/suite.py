"""What a suite is, and what a run of it came to: a table of tests with their outcomes.

A test is `passed`, `failed` or `skipped` (by the suite itself). `reasons/NAME.toml` says for which `version`
of the suite it was written, and of every test that does not pass why; it is read both ways: a failure without
a reason and a reason without a failure are told.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
REASONS, RESULTS = HERE / "reasons", HERE / "results"
EVERYWHERE = ("strandline", "kafka", "kafka-4")


class SuiteProblem(Exception):
    """A checkout or a tool that is missing or another; the message says what and how to get it."""


@dataclass(frozen=True)
class Reason:
    """Why tests do not pass (`on` which peers) or are left out; `sometimes` allows both outcomes. One that
    `hangs` would keep the others from being run: it is not run there, and counts as failed.
    """

    tests: tuple[str, ...]
    why: str
    on: tuple[str, ...] = EVERYWHERE
    sometimes: bool = False
    hangs: bool = False

    def covers(self, test: str) -> bool:
        return any(fnmatchcase(test, pattern) for pattern in self.tests)


@dataclass(frozen=True)
class Reasons:
    """All of a suite, of one release."""

    version: str = ""
    left_out: tuple[Reason, ...] = ()
    fails: tuple[Reason, ...] = ()

    def out(self, test: str) -> Reason | None:
        return next((one for one in self.left_out if one.covers(test)), None)

    def hanging(self, peer: str) -> list[str]:
        return [test for one in self.fails if one.hangs and peer in one.on for test in one.tests]

    def failing(self, test: str, peer: str) -> Reason | None:
        return next((one for one in self.fails if peer in one.on and one.covers(test)), None)


def read_reasons(name: str) -> Reasons:
    """`reasons/NAME.toml`."""
    path = REASONS / f"{name}.toml"
    found: dict[str, Any] = tomllib.loads(path.read_text()) if path.exists() else {}
    if odd := set(found) - {"version", "left_out", "fails"}:
        raise ValueError(f"{path}: {sorted(odd)} is unknown; expected version, [[left_out]] and [[fails]]")
    left_out, fails = (tuple(map(_reason, found.get(one, ()))) for one in ("left_out", "fails"))
    return Reasons(str(found.get("version", "")), left_out, fails)


def _reason(given: dict[str, Any]) -> Reason:
    on = given.get("on", "both")
    peers = EVERYWHERE if on == "both" else (on,)
    assert set(peers) <= set(EVERYWHERE), f"on = {on!r}: expected strandline, kafka or both"
    flags = {name: bool(given.get(name)) for name in ("sometimes", "hangs")}
    return Reason(tuple(given["tests"]), given["why"], peers, **flags)


@dataclass
class Run:
    """One run: what was run, on what, and the outcome of each test with what the suite said about it."""

    suite: str
    version: str
    peer: str
    seconds: float = 0.0
    tests: dict[str, str] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)

    def count(self, outcome: str, reasons: Reasons) -> int:
        return sum(one == outcome and not reasons.out(test) for test, one in self.tests.items())

    def surprises(self, reasons: Reasons) -> Iterator[str]:
        """What the list of reasons does not say, and what it says without need."""
        for test, outcome in self.tests.items():
            if reasons.out(test):
                continue
            known = reasons.failing(test, self.peer)
            if outcome == "failed" and known is None:
                yield f"FAILED, and no reason is known: {test}"
            if outcome == "passed" and known is not None and not known.sometimes:
                yield f"passed, though a reason is given why it fails: {test}"
        for one in reasons.fails:
            if self.peer in one.on and not any(map(one.covers, self.tests)):
                yield f"a reason for tests that were not run: {', '.join(one.tests)}"

    def save(self) -> None:
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"{self.suite}-{self.peer}.json"
        told = {**asdict(self), "seconds": round(self.seconds), "tests": dict(sorted(self.tests.items()))}
        told["said"] = {
            test: what for test, what in sorted(self.said.items()) if self.tests[test] == "skipped"
        }
        path.write_text(json.dumps(told, indent=1) + "\n")


def read_run(suite: str, peer: str) -> Run | None:
    """What the last complete run came to, or None when there was none."""
    path = RESULTS / f"{suite}-{peer}.json"
    if not path.exists():
        return None
    told: Mapping[str, Any] = json.loads(path.read_text())
    return Run(**told)
