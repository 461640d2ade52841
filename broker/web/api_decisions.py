"""What brokers and controllers decided: the newest, with reasons, and a timeline of leaderships. Pure.

A partition's epochs give the timeline its order, because clocks of brokers differ: an epoch begins when the
controller decided it, or, if no controller that answers has kept that, when its leader learned of it.
Left to others: keeping decisions (broker/recorder.py), fetching them from all brokers (api.py), what one
means in words (broker/decision_words.py).
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from ...base.types import NO_LEADER
from ..decision_words import Values, reasons, sentence

ISR_POINTS_MAX = 200  # of one partition


def merged(parts: Mapping[int, Iterable[Values]], limit: int) -> list[dict[str, Any]]:
    """The newest decisions of all brokers, newest first, each with the broker that made it and a sentence."""
    found = [{**one, "by": by} for by, each in parts.items() for one in each]
    found.sort(key=lambda one: (int(one["at_ms"]), one["by"]), reverse=True)
    return [as_told(one) for one in _creations_joined(found)[:limit]]


def _creations_joined(found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """A topic that was created is one decision, not one for each partition."""
    made: dict[tuple[str, int, int], dict[str, Any]] = {}
    kept = []
    for one in found:
        if one["what"] == "created":
            topic = str(one["about"]).rpartition("-")[0]
            key = (topic, int(one["at_ms"]), int(one["by"]))
            if key in made:
                made[key]["partitions"] += 1
                made[key]["about"] = topic
                continue
            one = made[key] = {**one, "partitions": 1}
        kept.append(one)
    return kept


def as_told(one: Values) -> dict[str, Any]:
    """A decision for the page: the sentence, its reasons, and when."""
    return {
        "at_ms": one["at_ms"],
        "by": one["by"],
        "by_controller": one["controller"],
        "about": one["about"],
        "what": one["what"],
        "times": one.get("times", 1),
        "sentence": told_as(one),
        "because": reasons(one),
    }


def told_as(one: Values) -> str:
    """A decision in a few words."""
    return sentence(str(one["what"]), one, bool(one["controller"]))


# ------------------------------------------------------------ the timeline


def lanes(
    wanted: Iterable[tuple[str, int]], decisions: Iterable[Values], now: Mapping[str, Values], until_ms: int
) -> list[dict[str, Any]]:
    """One lane for each partition: who led it from when until when, and each change of its ISR.

    `now` has the present leader, epoch and ISR by partition, for those about which nothing was kept.
    """
    about: dict[str, list[Values]] = {}
    for one in decisions:
        about.setdefault(str(one["about"]), []).append(one)
    found = []
    for topic, number in wanted:
        name = f"{topic}-{number}"
        known = about.get(name, [])
        found.append(
            {
                "topic": topic,
                "partition": number,
                "spans": spans(known, now.get(name), until_ms),
                "isr": isr_points(known),
            }
        )
    return found


def spans(decisions: Iterable[Values], now: Values | None, until_ms: int) -> list[dict[str, Any]]:
    """Leaderships, oldest first. `from_ms` None: it began before anything that was kept; `to_ms` None: it has
    not ended. A leader of None: there was none.
    """
    begun = _epochs(decisions)
    if now is not None and now["epoch"] not in begun and now["epoch"] > max(begun, default=-1):
        begun[now["epoch"]] = {"leader": now["leader"], "from_ms": None if not begun else until_ms}
    ordered = [{"epoch": epoch, **begun[epoch]} for epoch in sorted(begun)]
    for earlier, later in pairwise(ordered):  # clocks of brokers differ: time does not go back
        at_ms = later["from_ms"]
        earlier["to_ms"] = at_ms if earlier["from_ms"] is None else max(earlier["from_ms"], at_ms)
        later["from_ms"] = earlier["to_ms"]
    if ordered:
        ordered[-1]["to_ms"] = None
    return _joined(ordered)


def _epochs(decisions: Iterable[Values]) -> dict[int, dict[str, Any]]:
    """For each leader epoch, who leads in it and when it began: by the controller, or else by its leader."""
    begun: dict[int, dict[str, Any]] = {}
    for one in sorted(decisions, key=lambda each: (not each["controller"], int(each["at_ms"]))):
        if not (one["controller"] or str(one["what"]).startswith("became_")):
            continue
        epoch, leader = one.get("epoch"), one.get("leader")
        if isinstance(epoch, int) and isinstance(leader, int) and epoch not in begun:
            begun[epoch] = {
                "leader": None if leader == NO_LEADER else leader,
                "from_ms": int(one["at_ms"]),
                "cause": one.get("cause"),
            }
    return begun


def _joined(ordered: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Epochs in a row with the same leader are one leadership."""
    found: list[dict[str, Any]] = []
    for one in ordered:
        if found and found[-1]["leader"] == one["leader"]:
            found[-1] |= {"to_ms": one["to_ms"], "epoch": one["epoch"]}
        else:
            found.append({"cause": None, **one})
    return found


ISR_DECISIONS = frozenset({"isr_changed", "isr_reduced", "elected", "went_offline", "created"})


def isr_points(decisions: Iterable[Values]) -> list[dict[str, Any]]:
    """Each change of the ISR, oldest first."""
    found: dict[tuple[int, tuple[int, ...]], dict[str, Any]] = {}
    for one in sorted(decisions, key=lambda each: int(each["at_ms"])):
        what = str(one["what"])
        if what not in ISR_DECISIONS and not what.startswith("became_"):
            continue
        if "isr" in one and isinstance(one.get("epoch"), int):
            key = (int(one["epoch"]), tuple(sorted(one["isr"])))
            told = {
                "at_ms": one["at_ms"],
                "isr": sorted(one["isr"]),
                "sentence": told_as(one),
                "by": one["by"],
            }
            found.setdefault(key, told)
    points = sorted(found.values(), key=lambda one: int(one["at_ms"]))
    changes = [
        later for earlier, later in pairwise([{"isr": None}, *points]) if later["isr"] != earlier["isr"]
    ]
    return changes[-ISR_POINTS_MAX:]


BROKER_EVENTS = {
    "broker_gone": "gone",
    "broker_suspected": "suspected",
    "broker_came": "came",
    "broker_started_again": "came",
    "broker_cleared": "came",
    "shutdown_wanted": "leaving",
}


def broker_points(decisions: Iterable[Values]) -> list[dict[str, Any]]:
    """What controllers saw of brokers, and who became the controller, oldest first; each once."""
    found: dict[tuple[str, int, int], dict[str, Any]] = {}
    for one in sorted(decisions, key=lambda each: int(each["at_ms"])):
        if not one["controller"]:
            continue
        what = str(one["what"])
        kind = "controller" if what == "became_controller" else BROKER_EVENTS.get(what)
        if kind is not None:
            broker = one["by"] if kind == "controller" else one.get("broker")
            told = {"at_ms": one["at_ms"], "broker": broker, "kind": kind, "sentence": told_as(one)}
            found[(what, int(broker or 0), int(one["at_ms"]))] = told
        for broker in one.get("suspected", ()) if kind == "controller" else ():
            gone = f"broker {broker} was found dead by a new controller"
            found[("found_dead", broker, int(one["at_ms"]))] = {
                "at_ms": one["at_ms"], "broker": broker, "kind": "suspected", "sentence": gone,
            }  # fmt: skip
    return list(found.values())
