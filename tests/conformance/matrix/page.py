"""Renders docs/compatibility.md from results.json and declared.py: `python -m tests.conformance.matrix.page`.

Left to others: how results come about (walk.py).
"""

from collections.abc import Iterator
from pathlib import Path

from tests.conformance.matrix import results
from tests.conformance.matrix.declared import CLIENTS, EVENTS, FEATURES, PARTICULARS, STEADY, Client, Feature
from tests.conformance.matrix.results import NOT_OFFERED, PASSES, Outcome, Walked

PAGE = Path(__file__).resolve().parents[3] / "docs" / "compatibility.md"
PREFACE = """# Clients, features, failures

Unmodified clients against three broker processes of Strandline. Every client goes through the same list of
features with its default settings (but where to begin to read, and what the feature names), some of them
while a broker is killed with `kill -9` in the middle: the one that leads the partition, or the one that
coordinates the group or the transaction.

✓ says that what is [asserted](#what-is-asserted) held. Beside it stands, for a kill, the longest gap in
seconds that the client saw; what a gap is depends on the feature and is told there, too. – says that the
client does not offer it, and [why](#not-offered); ✗ that it does not pass, and [why](#what-does-not-pass).
"""
NOTE = """
{made}
It was made on a machine of {cores} cores that brokers, ZooKeeper, clients and other work shared; `load` is
how many processes wanted a core in the quarter of an hour before the end. Gaps are those of one run.
"""
ONE_WALK = "All of it is of one walk, begun on {walk} (UTC){but}."
WALKS = "It is of {count} walks{but}."
BUT = ", but {count} of {all} cells, which failed at first and were [run again](#run-again), alone"
AGAIN = """## Run again

These failed in the walk, and were run again, alone. What the tables say of them came of that; here is why
they failed at first.

"""
END = """
This page is rendered from `tests/conformance/matrix/results.json`; `make compatibility` tries everything anew
but the cells with ✗, and writes both. The features are in `tests/conformance/matrix/features.py`, written
once for all clients; how each client is driven is in `tests/conformance/` (`drive_*.py`) and
`tests/conformance/matrix/`.
"""


def render() -> str:
    """The whole page."""
    walks = results.load()
    told = [one for one in CLIENTS if one.name in walks]
    parts = [PREFACE, _clients(walks, told)]
    parts += [_table(walks, told, event) for event in EVENTS]
    parts += [_asserted(), _not_offered(walks), _failing(walks), _again(walks), _particulars()]
    return "\n".join(part for part in parts if part) + END


def _row(words: Iterator[str] | list[str]) -> str:
    return f"| {' | '.join(words)} |\n"


def _header(words: list[str]) -> str:
    return _row(words) + _row(["---"] * len(words))


def _clients(walks: dict[str, Walked], told: list[Client]) -> str:
    rows = [
        _row(
            [one.title, one.what, walked.version, walked.walk, _minutes(walked.took_s), f"{walked.load:.1f}"]
        )
        for one in told
        for walked in (walks[one.name],)
    ]
    note = NOTE.format(made=_made(walks), cores=max(walks[one.name].cores for one in told))
    return _header(["client", "", "version", "walk of", "took", "load"]) + "".join(rows) + note


def _made(walks: dict[str, Walked]) -> str:
    """Of how many walks it is."""
    began = {walked.walk for walked in walks.values()}
    outcomes = [one for walked in walks.values() for one in walked.outcomes]
    tried = [one for one in outcomes if one.outcome not in (NOT_OFFERED, results.FAULT)]
    count = sum(bool(one.again) for one in tried)
    but = BUT.format(count=count, all=len(tried)) if count else ""
    if len(began) == 1:
        return ONE_WALK.format(walk=began.pop(), but=but)
    return WALKS.format(count=len(began), but=but)


def _minutes(seconds: int) -> str:
    return f"{seconds // 60}:{seconds % 60:02} min"


def _table(walks: dict[str, Walked], told: list[Client], event: str) -> str:
    found = {
        (one.client, one.feature): one
        for walked in walks.values()
        for one in walked.outcomes
        if one.event == event
    }
    rows = [
        _row([feature.name, *(_cell(found.get((one.name, feature.name))) for one in told)])
        for feature in FEATURES
        if event in feature.events
    ]
    heading = f"## {event[0].upper()}{event[1:]}\n\n"
    return heading + _header(["", *(one.title for one in told)]) + "".join(rows)


def _cell(outcome: Outcome | None) -> str:
    if outcome is None:
        return "?"
    if outcome.outcome == NOT_OFFERED:
        return "–"
    if outcome.outcome != PASSES:
        return "✗"
    return "✓" if outcome.gap_s is None else f"✓ {outcome.gap_s:.1f}"


def _asserted() -> str:
    return (
        "## What is asserted\n\n"
        + _header(["feature", "what must hold", "the gap"])
        + "".join(map(_told, FEATURES))
    )


def _told(feature: Feature) -> str:
    return _row([feature.name, feature.asserted, feature.gap])


def _not_offered(walks: dict[str, Walked]) -> str:
    return "## Not offered\n\n" + _reasons(walks, NOT_OFFERED)


def _failing(walks: dict[str, Walked]) -> str:
    failing = _reasons(walks, results.FAILS) + _reasons(walks, results.FAULT)
    return f"## What does not pass\n\n{failing}" if failing else ""


def _again(walks: dict[str, Walked]) -> str:
    lines = [
        f"- {client.title}: {one.feature} ({one.event}): {one.again}\n"
        for client in CLIENTS
        for one in (walks[client.name].outcomes if client.name in walks else ())
        if one.again
    ]
    return AGAIN + "".join(lines) if lines else ""


def _particulars() -> str:
    return "## Particulars\n\n" + "".join(f"- {one}\n" for one in PARTICULARS)


def _reasons(walks: dict[str, Walked], outcome: str) -> str:
    lines = []
    for client in CLIENTS:
        by_reason: dict[str, dict[str, None]] = {}
        for one in walks[client.name].outcomes if client.name in walks else ():
            if one.outcome == outcome:
                what = (
                    one.feature
                    if one.event == STEADY or outcome == NOT_OFFERED
                    else f"{one.feature} ({one.event})"
                )
                by_reason.setdefault(one.reason, {})[what] = None
        lines += [
            f"- {client.title}: {'; '.join(features)}: {reason}\n" for reason, features in by_reason.items()
        ]
    return "".join(lines)


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
