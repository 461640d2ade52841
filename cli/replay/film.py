"""Film: what each broker was and knew after each moment. Pure.

A frame is a plain value: brokers, the controller, and for each partition what the controller decided and
what every replica last said of itself. It changes by replacing whole brokers and whole partitions, so that a
film is the list of these changes, and any frame follows from those up to it.

Offsets are those of the last moment at which a replica noted them; between decisions nothing is recorded.
Left to others: which moments there are (moments.py), how a frame is shown (text.py, page.html).
"""

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from ...base.types import NO_LEADER
from ...broker.decision_words import OTHERWISE
from .moments import Moment

Plain = dict[str, Any]
PARTITION: Plain = {
    "leader": None,
    "epoch": None,
    "isr": None,
    "controller_epoch": None,
    "at_ms": None,
    "replicas": {},
}
REPLICA: Plain = {
    "role": "unknown", "leader": None, "epoch": None, "isr": None, "proposed": None, "end": None,
    "watermark": None, "note": None, "at_ms": None,
}  # fmt: skip
BROKER: Plain = {"state": "unknown", "incarnation": None, "session": None, "at_ms": None}


@dataclass(frozen=True, slots=True)
class Film:
    """The moments, and what each of them changed."""

    moments: Sequence[Moment]
    changes: Sequence[Plain]

    def frame(self, number: int) -> Plain:
        """The state after the moment with this number, from 0 on; before the first one with -1."""
        frame = empty()
        for change in self.changes[: number + 1]:
            merge(frame, change)
        return frame

    def at(self, at_ms: int) -> int:
        """The number of the last moment that is not later."""
        return sum(moment.at_ms <= at_ms for moment in self.moments) - 1


def empty() -> Plain:
    """A frame in which nothing is known."""
    return {"brokers": {}, "controller": None, "partitions": {}}


def merge(frame: Plain, change: Plain) -> None:
    """Make the next frame of this one."""
    frame["brokers"] |= change.get("brokers", {})
    frame["partitions"] |= change.get("partitions", {})
    if "controller" in change:
        frame["controller"] = change["controller"]


def film_of(moments: Iterable[Moment]) -> Film:
    """What the moments, in their order, come to."""
    frame, kept, changes = empty(), list(moments), []
    for moment in kept:
        change = _readable_change(frame, moment)
        merge(frame, change)
        changes.append(deepcopy(change))
    return Film(kept, changes)


def _readable_change(frame: Plain, moment: Moment) -> Plain:
    """Nothing, if another version noted other values: its words are shown all the same."""
    try:
        return _change(frame, moment)
    except OTHERWISE:
        return {}


def _change(frame: Plain, moment: Moment) -> Plain:
    if moment.partition is None:
        of_brokers = _OF_BROKERS.get(moment.what)
        return {} if of_brokers is None else of_brokers(frame, moment)
    known = deepcopy(frame["partitions"].get(moment.partition, PARTITION))
    if moment.is_controllers:
        if moment.what in ("created", "elected", "isr_reduced", "went_offline"):
            told = {name: moment.values[name] for name in ("leader", "epoch", "isr", "controller_epoch")}
            known |= told | {"at_ms": moment.at_ms}
    else:
        replica = known["replicas"].get(moment.by, REPLICA)
        known["replicas"][moment.by] = replica | _of_replica(moment) | {"at_ms": moment.at_ms}
        _heard_of(known, moment)
    return {"partitions": {moment.partition: known}}


def _of_replica(moment: Moment) -> Plain:
    """What a replica has said of itself, as far as it changes."""
    values = moment.values
    match moment.what:
        case "became_leading" | "became_following" | "became_idle" | "became_offline":
            told = {name: values[name] for name in ("leader", "epoch", "isr", "end", "watermark")}
            return {**told, "role": moment.what.removeprefix("became_"), "proposed": None, "note": None}
        case "isr_grow_proposed" | "isr_shrink_proposed":
            offsets = {"end": values["leader_end"], "watermark": values["watermark"]}
            return {**offsets, "isr": values["isr"], "proposed": values["asked"]}
        case "isr_changed":
            return {"isr": values["isr"], "proposed": None, "note": None}
        case "isr_refused":
            return {"proposed": None, "note": moment.sentence}
        case "leadership_lost":
            return {"role": "resigned", "leader": values["successor"], "proposed": None}
        case "truncated":
            return {"end": values["end"], "note": moment.sentence}
        case "restarted":
            return {"end": values["leader_begins_at"], "note": moment.sentence}
        case "went_offline":
            return {"role": "offline", "proposed": None, "note": values["why"]}
        case "stopped":
            return {"role": "stopped", "proposed": None, "note": None}
        case _:
            return {"note": moment.sentence}


def _heard_of(known: Plain, moment: Moment) -> None:
    """A broker speaks of a newer state than any controller whose recorder is here."""
    values, newest = moment.values, known["epoch"]
    if moment.what == "isr_changed" and newest in (None, values["epoch"]):
        known["isr"] = values["isr"]
    elif moment.what.startswith("became_") and (newest is None or values["epoch"] > newest):
        told = {name: values[name] for name in ("leader", "epoch", "isr", "controller_epoch")}
        known |= told | {"at_ms": moment.at_ms}


# ------------------------------------------------------------ brokers


def _broker(frame: Plain, broker: int, moment: Moment, **told: Any) -> Plain:
    known = frame["brokers"].get(broker, BROKER)
    return {"brokers": {broker: known | told | {"at_ms": moment.at_ms}}}


def _started(frame: Plain, moment: Moment) -> Plain:
    """What its replicas were before is over."""
    told = {"state": "up", "incarnation": moment.values["incarnation"], "session": "connected"}
    partitions = {
        name: known | {"replicas": known["replicas"] | {moment.by: dict(REPLICA)}}
        for name, known in frame["partitions"].items()
        if moment.by in known["replicas"]
    }
    return _broker(frame, moment.by, moment, **told) | {"partitions": partitions}


def _seen(state: str) -> Callable[[Plain, Moment], Plain]:
    def change(frame: Plain, moment: Moment) -> Plain:
        broker = moment.values["broker"]
        told = {"state": state}
        if "incarnation" in moment.values and state != "gone":
            told["incarnation"] = moment.values["incarnation"]
        return _broker(frame, broker, moment, **told)

    return change


def _became_controller(frame: Plain, moment: Moment) -> Plain:
    controller = {"broker": moment.by, "epoch": moment.values["epoch"], "at_ms": moment.at_ms}
    brokers: Plain = {}
    for broker in moment.values["brokers"]:
        state = "suspected" if broker in moment.values["suspected"] else "up"
        brokers |= _broker(frame, broker, moment, state=state)["brokers"]
    return {"controller": controller, "brokers": brokers}


def _resigned(frame: Plain, moment: Moment) -> Plain:
    now = frame["controller"]
    return {"controller": None} if now is not None and now["broker"] == moment.by else {}


_OF_BROKERS: dict[str, Callable[[Plain, Moment], Plain]] = {
    "started": _started,
    "session": lambda frame, moment: _broker(frame, moment.by, moment, session=moment.values["state"]),
    "became_controller": _became_controller,
    "resigned": _resigned,
    "broker_came": _seen("up"),
    "broker_started_again": _seen("up"),
    "broker_cleared": _seen("up"),
    "broker_gone": _seen("gone"),
    "broker_suspected": _seen("suspected"),
    "shutdown_wanted": _seen("leaving"),
}


# ------------------------------------------------------------ who knew what


def knowledge(frame: Plain, partition: str, broker: int) -> str | None:
    """What this replica does not know yet of its partition; None if it is up to date."""
    known = frame["partitions"][partition]
    replica, newest = known["replicas"].get(broker, REPLICA), known["epoch"]
    if newest is None or replica["epoch"] is None or replica["role"] in ("stopped", "offline"):
        return None
    if replica["epoch"] < newest:
        led = f", of broker {known['leader']}" if known["leader"] != NO_LEADER else ""
        lives = frame["brokers"].get(broker, BROKER)["state"] not in ("gone", "suspected")
        takes = ("" if lives else ", if it still runs") + ", and takes itself for the leader"
        return f"has not heard of epoch {newest}{led}" + (takes if replica["role"] == "leading" else "")
    agrees = known["isr"] is None or sorted(replica["isr"]) == sorted(known["isr"])
    if replica["role"] == "leading" and not agrees:
        return f"believes in the ISR {','.join(map(str, replica['isr']))}"
    return None
