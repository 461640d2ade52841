"""Moments: the decisions of all brokers in one order, and what each of them means in one sentence. Pure.

A broker's recorder holds its own decisions, and the controller's if it was the controller; what another
broker knew stands in that one's recorder. They are merged by wall time, after clocks that contradict each
other have been corrected (clocks.py).
Left to others: reading recorders (sources.py), what follows from the moments (film.py).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...base.types import NO_LEADER
from ...base.values import dataclass
from ...storage.decision_log import BROKER, CONTROLLER, controllers_ring

Values = Mapping[str, Any]
Rings = Mapping[str, Iterable[Values]]
"""The decisions of one broker by the name of the ring, as plain values, each ring oldest first."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One decision, about brokers if `partition` is None; made `times` times in a row, last at `until_ms`."""

    at_ms: int
    by: int
    is_controllers: bool
    partition: str | None
    what: str
    values: Values
    times: int = 1
    until_ms: int = 0

    @property
    def sentence(self) -> str:
        """What happened, in words."""
        say = _OF_CONTROLLER if self.is_controllers else _OF_BROKER
        told = say.get(self.what)
        try:
            return self.what.replace("_", " ") if told is None else told(self.values)
        except (KeyError, TypeError):  # of another version: it is shown as it was noted
            return f"{self.what.replace('_', ' ')} {dict(self.values)}"

    def as_dict(self) -> dict[str, Any]:
        """For programs, and for the page."""
        repeated = {"times": self.times, "until_ms": self.until_ms} if self.times > 1 else {}
        return {
            "at_ms": self.at_ms,
            "broker": self.by,
            "as_controller": self.is_controllers,
            "partition": self.partition,
            "what": self.what,
            "sentence": self.sentence,
            **repeated,
            "values": dict(self.values),
        }


def in_order(recorded: Mapping[int, Rings], later_ms: Mapping[int, int]) -> list[Moment]:
    """All moments, the oldest first. `later_ms` is what is added to the times of each broker.

    Of equal times a controller's decision comes first, then who carries it out.
    """
    found = [
        moment
        for broker, rings in sorted(recorded.items())
        for ring, decisions in rings.items()
        for moment in _of_ring(broker, ring, decisions, later_ms.get(broker, 0))
    ]
    return sorted(found, key=lambda moment: (moment.at_ms, not moment.is_controllers))


def _of_ring(broker: int, ring: str, decisions: Iterable[Values], later_ms: int) -> Iterable[Moment]:
    is_controllers = ring == CONTROLLER or ring.startswith(controllers_ring(""))
    partition = None if ring in (BROKER, CONTROLLER) else ring.removeprefix(controllers_ring(""))
    for decision in decisions:
        told = dict(decision)
        at_ms, what, times = told.pop("at_ms"), told.pop("what"), told.pop("times", 1)
        until_ms = told.pop("until_ms", at_ms)
        yield Moment(
            at_ms + later_ms, broker, is_controllers, partition, what, told, times, until_ms + later_ms
        )


# ------------------------------------------------------------ in words


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers)) or "none"


def _role(values: Values) -> str:
    return f"epoch {values['epoch']}, end {values['end']}, high watermark {values['watermark']}"


def _followed(values: Values) -> str:
    return (
        f"follows broker {values['leader']}" if values["leader"] != NO_LEADER else "has no leader to follow"
    )


def _lagging(values: Values) -> str:
    late = "; ".join(
        f"broker {each['broker']} is at {each['end']} of {values['leader_end']}, "
        + (
            f"caught up {ago:.1f} s ago"
            if (ago := each["caught_up_ago_s"]) is not None
            else "never caught up"
        )
        for each in values["leaving"]
    )
    return f"proposes the ISR {_ids(values['asked'])} instead of {_ids(values['isr'])}: {late}"


def _elected(values: Values) -> str:
    how = "elects uncleanly" if values["unclean"] else "elects"
    return (
        f"{how} broker {values['leader']} in epoch {values['epoch']}, ISR {_ids(values['isr'])} "
        f"(before: broker {values['leader_before']}, ISR {_ids(values['isr_before'])}), "
        f"because {values['cause']}"
    )


def _offline(values: Values) -> str:
    return f"finds no leader, epoch {values['epoch']}, ISR {_ids(values['isr'])}, because {values['cause']}"


def _changed(values: Values) -> str:
    joined = f"; joined: {_ids(values['joined'])}" if values["joined"] else ""
    left = f"; left: {_ids(values['left'])}" if values["left"] else ""
    return f"has the ISR {_ids(values['isr'])} in epoch {values['epoch']}{joined}{left}"


def _lost(values: Values) -> str:
    ends = ", ".join(f"broker {b}: epoch {e}, end {end}" for b, (e, end) in values["ends"].items())
    return f"broker {values['leader']} may lack acknowledged records; log ends: {ends or 'not asked'}"


Say = Callable[[Values], str]

_OF_BROKER: dict[str, Say] = {
    "started": lambda v: f"started, incarnation {v['incarnation']}",
    "session": lambda v: f"its ZooKeeper session is {v['state'].replace('_', ' ')}",
    "became_leading": lambda v: f"leads: {_role(v)}, ISR {_ids(v['isr'])}",
    "became_following": lambda v: f"{_followed(v)}: {_role(v)}",
    "became_idle": lambda v: f"neither leads nor follows: {_role(v)}",
    "became_offline": lambda v: f"is offline: {_role(v)}",
    "isr_grow_proposed": lambda v: (
        f"proposes the ISR {_ids(v['asked'])} instead of {_ids(v['isr'])}: broker "
        f"{v['joining']['broker']} is at {v['joining']['end']} of {v['leader_end']}"
    ),
    "isr_shrink_proposed": _lagging,
    "isr_changed": _changed,
    "isr_refused": lambda v: f"the ISR {_ids(v['asked'])} is refused, because {v['condition']} has changed",
    "isr_unknown": lambda v: f"hears no answer about the ISR {_ids(v['asked'])}: {v['why']}",
    "leadership_lost": lambda v: (
        f"leads no more in epoch {v['epoch']}: broker {v['successor']} leads in epoch {v['successor_epoch']}"
    ),
    "truncated": lambda v: f"truncates its log from {v['was']} to {v['end']}, as broker {v['leader']} has it",
    "restarted": lambda v: f"restarts its log at {v['leader_begins_at']}, where that of its leader starts",
    "cut_waits": lambda v: f"cannot truncate before the records are kept: {v['why']}",
    "cut_unkept": lambda v: f"truncates records that could not be kept: {v['why']}",
    "went_offline": lambda v: f"its replica goes offline: {v['why']}",
    "stopped": lambda v: "its replica is deleted" if v["deleted"] else "its replica is stopped",
}

_OF_CONTROLLER: dict[str, Say] = {
    "became_controller": lambda v: (
        f"is the controller, epoch {v['epoch']}; sees brokers {_ids(v['brokers'])}"
    ),
    "resigned": lambda v: f"is the controller no more, epoch {v['epoch']}: {v['why']}",
    "broker_came": lambda v: f"sees broker {v['broker']} come, incarnation {v['incarnation']}",
    "broker_started_again": lambda v: f"sees broker {v['broker']} again, incarnation {v['incarnation']}",
    "broker_gone": lambda v: f"sees the registration of broker {v['broker']} go",
    "broker_suspected": lambda v: f"counts broker {v['broker']} as dead: unreachable, silent in ZooKeeper",
    "broker_cleared": lambda v: f"hears broker {v['broker']} again",
    "shutdown_wanted": lambda v: f"hears that broker {v['broker']} wants to shut down",
    "replicas_offline": lambda v: f"hears of {v['replicas']} offline replicas of broker {v['broker']}",
    "created": lambda v: (
        f"creates it: broker {v['leader']} leads in epoch {v['epoch']}, ISR {_ids(v['isr'])}"
    ),
    "elected": _elected,
    "isr_reduced": lambda v: (
        f"reduces the ISR from {_ids(v['isr_before'])} to {_ids(v['isr'])}, epoch {v['epoch']}, "
        f"because {v['cause']}"
    ),
    "went_offline": _offline,
    "may_have_lost": _lost,
    "write_overtaken": lambda v: "finds that another has written this state meanwhile",
}
