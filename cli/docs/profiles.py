"""Renders docs/profiles.md from the profiles, and from the points on which descriptions of Kafka disagree.

Left to others: the profiles (replication/profiles.py), the points (replication/disagreements.py).
"""

from collections.abc import Iterator
from enum import Enum

from ...replication.disagreements import POINTS, Point
from ...replication.profiles import PROFILES

PREFACE = """# Semantics profiles

Descriptions of Kafka contradict each other, mostly because each was true of some version. A profile
says whose rules hold: `strandline.semantics.profile`, the same on all brokers of a cluster. The default
is `strandline`, and nothing else is meant for data that somebody needs. The others are there so that a
difference can be seen: the same events end in opposite ways, as the transcripts named below show.

## Profiles that lose records

{losing}

Such a profile is refused at the start unless `strandline.semantics.accept.loss=true` stands beside it:
`0.10` reads like a promise of compatibility, and a broker that somebody configured so by mistake must
not run. With the consent the broker starts, and says at every start that acknowledged records will be
lost. To see the loss of a course, set both:

```
strandline.semantics.profile=0.10
strandline.semantics.accept.loss=true
```

A profile also sets the defaults of its time for four options; what is given stands. It changes no file
format, so a cluster may be started again under another profile; what was lost stays lost.

## One profile for all

Two brokers under different rules would have the faults of both, so a broker whose profile is not that of
the brokers that are registered already does not start:

```
strandline: strandline.semantics.profile = 3.9, but broker 2 runs under strandline, and all brokers of a
cluster must have the same profile: start this one with strandline, or stop all of them and start them
with 3.9
```

It says so at once in its log (`profile_mismatch`), and waits for one `zookeeper.session.timeout.ms` before it
gives up: the registered broker may have been killed a moment ago. Of brokers that start at the same time
under different profiles, the one that registers later is refused.

*To change the profile, stop all brokers, and start all of them under the new one.* There is no rolling
change, broker by broker: while one of them runs by the old rules, another by the new ones is refused. The
first that starts writes the new profile to `/cluster/id`. A rolling upgrade of the software is another
matter: a broker of a version that names no profile in its registration is held for one of the same.

## The rules that differ

| point | {names} |
|---|{dashes}|
{rules}

## Point by point

| point | question | what descriptions say | here | shown by |
|---|---|---|---|---|
{points}

## What no profile changes

- *The maximal ISR.* Versions before 2.7 had none: they waited for ZooKeeper's answer before anything
  else. While a change is on its way here, the watermark counts both sets under every profile, which
  comes to the same.
- *Incarnations and the proof of data.* No version of Kafka with ZooKeeper had them; no description
  denies them.
- *The watermark of a new leader* is what its replica knew, at the start what was last written down; a
  follower's end is unknown until it fetches.
- *Who may lead*: a member of the ISR whose data is whole, or a replica that an unclean election may
  choose.

This page is rendered by `strandline docs` from `replication/profiles.py` and
`replication/disagreements.py`.
"""


def profiles() -> str:
    """The whole page."""
    losing = "\n".join(f"- `{each.name}`: {each.loses}." for each in PROFILES.values() if each.loses)
    return PREFACE.format(
        losing=losing,
        names=" | ".join(f"`{name}`" for name in PROFILES),
        dashes="---|" * (len(PROFILES) - 1) + "---",
        rules="\n".join(rule(point) for point in POINTS if point.varies),
        points="\n".join(row(point) for point in POINTS),
    )


def rule(point: Point) -> str:
    """What each profile does at one point of disagreement."""
    return f"| {point.number} `{point.varies}` | {' | '.join(answers(point.varies))} |"


def answers(name: str) -> Iterator[str]:
    """The values of one rule, profile by profile."""
    for each in PROFILES.values():
        value = getattr(each, name)
        if isinstance(value, bool):
            yield "yes" if value else "no"
        else:
            yield str(value.value if isinstance(value, Enum) else value)


def row(point: Point) -> str:
    """One point of disagreement, and what we do."""
    shown = (
        f"[{point.shown.rpartition('/')[2]}](../{point.shown.removeprefix('docs/../')})"
        if point.shown
        else ""
    )
    return f"| {point.number} | {point.question} | {point.descriptions} | {point.here} | {shown} |"
