"""What a decision of a broker or a controller means in words: for the web page and for `strandline replay`.

A decision is a name and plain values, as a flight recorder keeps them (storage/decision_log.py). Who decided,
when, and about which partition stands beside these words. Another version may record other names and other
values: such a decision is told as it was noted, and never an error. Pure.
Left to others: keeping decisions (recorder.py), the page (web/api_decisions.py), replay (cli/replay/).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..base.types import NO_LEADER

Values = Mapping[str, Any]
Say = Callable[[Values], str]

OTHERWISE = (KeyError, TypeError, ValueError, AttributeError, IndexError)
"""What reading the values of another version may raise."""
BESIDE = frozenset({"at_ms", "until_ms", "times", "about", "what", "by", "controller"})
"""What is told beside the words, not in them."""


def sentence(what: str, values: Values, by_controller: bool) -> str:
    """What happened. The one who decided, as a controller or as a broker, is not named in it."""
    say = (OF_CONTROLLER if by_controller else OF_BROKER).get(what)
    if say is not None:
        try:
            return say(values)
        except OTHERWISE:
            pass  # an older or newer version records other values
    told = ", ".join(f"{name} {value}" for name, value in values.items() if name not in BESIDE)
    return f"{what.replace('_', ' ')}{f': {told}' if told else ''}"


def reasons(values: Values) -> list[str]:
    """Why, as far as the decision tells: the cause, first of all, then what was known of each broker."""
    found = [f"because {values['cause']}"] if values.get("cause") else []
    for name, say in (("candidates", _candidates), ("leaving", _leaving), ("ends", _ends)):
        try:
            found += say(values) if name in values else []
        except OTHERWISE:
            found.append(f"{name}: {values[name]}")
    return found


def at_length(what: str, values: Values, by_controller: bool) -> str:
    """The sentence and all reasons in one line."""
    cause, *others = [*reasons(values), ""]
    told = sentence(what, values, by_controller)
    if not cause:
        return told
    first = ", " if cause.startswith("because ") else "; "
    return f"{told}{first}{'; '.join(filter(None, (cause, *others)))}"


# ------------------------------------------------------------ why


def _candidates(values: Values) -> list[str]:
    return [f"broker {broker}: {standing}" for broker, standing in values["candidates"].items()]


def _leaving(values: Values) -> list[str]:
    return [_late(each, values["leader_end"]) for each in values["leaving"]]


def _late(follower: Values, leader_end: int) -> str:
    ago = follower["caught_up_ago_s"]
    when = "never caught up" if ago is None else f"last caught up {ago:.1f} s before"
    return f"broker {follower['broker']} is at {follower['end']} of {leader_end}, {when}"


def _ends(values: Values) -> list[str]:
    found = [f"the log of broker {by} ends at {end}, epoch {at}" for by, (at, end) in values["ends"].items()]
    return found or ["nobody was asked where its log ends"]


# ------------------------------------------------------------ what


def _ids(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, brokers)) or "none"


def _created(values: Values) -> str:
    if values.get("partitions", 1) > 1:
        return f"created with {values['partitions']} partitions"
    return f"created: broker {values['leader']} leads; ISR {_ids(values['isr'])}"


def _elected(values: Values) -> str:
    how = ""
    if values.get("unclean"):
        how = ", uncleanly"
    elif values.get("recovering"):
        how = ", without proof that its log is complete"
    before, was = values["leader_before"], values["isr_before"]
    came = f" after broker {before}" if before != NO_LEADER else ""
    shrunk = f", was {_ids(was)}" if sorted(was) != sorted(values["isr"]) else ""
    return f"broker {values['leader']} leads{came} in epoch {values['epoch']}{how}; " + (
        f"ISR {_ids(values['isr'])}{shrunk}"
    )


def _reduced(values: Values) -> str:
    before, isr = values["isr_before"], values["isr"]
    if sorted(before) == sorted(isr):  # all replicas are told anew
        return f"broker {values['leader']} leads on in epoch {values['epoch']}; ISR {_ids(isr)}"
    return f"ISR {_ids(before)} reduced to {_ids(isr)} in epoch {values['epoch']}"


def _became_controller(values: Values) -> str:
    suspected = f"; suspected: {_ids(values['suspected'])}" if values["suspected"] else ""
    return (
        f"became the controller in epoch {values['epoch']}; registered: {_ids(values['brokers'])}{suspected}"
    )


def _changed(values: Values) -> str:
    joined = f", joined by {_ids(values['joined'])}" if values["joined"] else ""
    left = f", left by {_ids(values['left'])}" if values["left"] else ""
    return f"ISR {_ids(values['isr'])} in epoch {values['epoch']}{joined}{left}"


def _grows(values: Values) -> str:
    joining = values["joining"]
    return (
        f"asks to add broker {joining['broker']} to the ISR {_ids(values['isr'])}: it is at {joining['end']} "
        f"of {values['leader_end']}"
    )


def _follows(values: Values) -> str:
    leader = values["leader"]
    return "has no leader to follow" if leader == NO_LEADER else f"follows broker {leader}"


def _log(values: Values) -> str:
    return f"in epoch {values['epoch']}: end {values['end']}, high watermark {values['watermark']}"


OF_CONTROLLER: dict[str, Say] = {
    # about a partition
    "created": _created,
    "elected": _elected,
    "isr_reduced": _reduced,
    "went_offline": lambda v: f"offline: no member of the ISR {_ids(v['isr'])} may lead",
    "may_have_lost": lambda v: f"broker {v['leader']} may lack acknowledged records",
    "write_overtaken": lambda v: "the decision was overtaken by another write",
    # about brokers
    "became_controller": _became_controller,
    "resigned": lambda v: f"resigned as the controller: {v['why']}",
    "broker_gone": lambda v: f"broker {v['broker']} is gone",
    "broker_came": lambda v: f"broker {v['broker']} came, incarnation {v['incarnation']}",
    "broker_started_again": lambda v: f"broker {v['broker']} started again, incarnation {v['incarnation']}",
    "broker_suspected": lambda v: f"broker {v['broker']} is suspected: unreachable, and silent in ZooKeeper",
    "broker_cleared": lambda v: f"broker {v['broker']} answers again",
    "shutdown_wanted": lambda v: f"broker {v['broker']} is shutting down",
    "replicas_offline": lambda v: f"broker {v['broker']} has {v['replicas']} replicas offline",
}

OF_BROKER: dict[str, Say] = {
    # of a leader, about its ISR
    "isr_changed": _changed,
    "isr_grow_proposed": _grows,
    "isr_shrink_proposed": lambda v: (
        f"asks to remove {_ids(each['broker'] for each in v['leaving'])} from the ISR {_ids(v['isr'])}"
    ),
    "isr_refused": lambda v: f"the ISR {_ids(v['asked'])} was refused: {v['condition']} has changed",
    "isr_unknown": lambda v: f"no answer about the ISR {_ids(v['asked'])}: {v['why']}",
    "leadership_lost": lambda v: (
        f"leads no more in epoch {v['epoch']}: broker {v['successor']} leads in epoch {v['successor_epoch']}"
    ),
    # of a replica
    "became_leading": lambda v: f"leads {_log(v)}; ISR {_ids(v['isr'])}",
    "became_following": lambda v: f"{_follows(v)} {_log(v)}",
    "became_idle": lambda v: f"neither leads nor follows {_log(v)}",
    "became_offline": lambda v: f"is offline {_log(v)}",
    "truncated": lambda v: f"truncated from {v['was']} to {v['end']}, as its leader {v['leader']} asked",
    "restarted": lambda v: (
        f"its log starts again at {v['leader_begins_at']}, where that of its leader starts"
    ),
    "cut_waits": lambda v: f"cannot truncate before the records are kept: {v['why']}",
    "cut_unkept": lambda v: f"truncates records that could not be kept: {v['why']}",
    "went_offline": lambda v: f"the replica is offline: {v['why']}",
    "stopped": lambda v: "the replica is deleted" if v["deleted"] else "the replica is stopped",
    # of a broker
    "started": lambda v: f"broker {v['broker']} started, incarnation {v['incarnation']}",
    "session": lambda v: f"ZooKeeper session: {v['state'].replace('_', ' ')}",
}
