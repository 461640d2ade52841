"""Answers of `strandline why`: combines what several brokers said about one partition. Pure.

Each document is what one broker reported (broker/inspection.py), or what was found in its files. The leader
is the broker that leads in the newest epoch. Decisions of all brokers are merged by wall time.
Left to others: asking (command.py), how a replica left the ISR (answers_isr.py).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Values = Mapping[str, Any]
NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer in one sentence, the sentences it follows from, and the values for programs."""

    sentence: str
    because: tuple[str, ...] = ()
    values: Values = field(default_factory=dict)

    def as_dict(self, question: str, partition: str) -> dict[str, Any]:
        """The answer for --json."""
        return {
            "question": question,
            "partition": partition,
            "answer": self.sentence,
            "because": list(self.because),
            **self.values,
        }


@dataclass(frozen=True, slots=True)
class Evidence:
    """What each broker said about a partition, and which brokers did not answer."""

    partition: str
    documents: Mapping[int, Values]
    silent: Mapping[int, str] = field(default_factory=dict)

    @property
    def now_ms(self) -> int:
        return max((int(document["now_ms"]) for document in self.documents.values()), default=0)

    @property
    def leader(self) -> tuple[int, Values] | None:
        """The broker that leads in the newest epoch, and its replica."""
        found = [
            (broker, document["replica"])
            for broker, document in self.documents.items()
            if document.get("replica") and document["replica"]["leading"] is not None
        ]
        best = max(found, key=lambda each: int(each[1]["epoch"]), default=None)
        view = self.view
        if best is not None and view is not None and view["leader_epoch"] > best[1]["epoch"]:
            return None  # it does not know yet that it no longer leads
        return best

    @property
    def view(self) -> Values | None:
        """The partition as the newest controller sees it."""
        views: list[Values] = [
            d["controllers_view"] for d in self.documents.values() if d["controllers_view"]
        ]
        return max(views, key=lambda view: int(view["controller_epoch"]), default=None)

    def decisions(self, ring: str = "decisions", what: Iterable[str] = ()) -> list[Values]:
        """The decisions of all brokers, oldest first; only those of the kinds in `what`, if given."""
        wanted = frozenset(what)
        found = [
            {**decision, "by": broker}
            for broker, document in self.documents.items()
            for decision in document[ring]
            if not wanted or decision["what"] in wanted
        ]
        return sorted(found, key=lambda each: int(each["at_ms"]))

    def before(self, at_ms: int) -> str:
        """How long ago that was."""
        return f"{seconds(max(self.now_ms - at_ms, 0) / 1000)} ago"


def seconds(value: float | None) -> str:
    """A duration as text for people."""
    if value is None:
        return "never"
    if value < 120:
        return f"{value:.1f} s"
    minutes = value / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.0f} h"


def numbers(brokers: Iterable[int]) -> str:
    """Broker ids as text."""
    return ",".join(map(str, brokers)) or "none"


def not_visible(evidence: Evidence, offset: int) -> Answer:
    """Why a consumer does not get this record."""
    found = evidence.leader
    if found is None:
        answer = offline(evidence)
        return Answer(f"offset {offset} is not visible: {answer.sentence}", answer.because, answer.values)
    broker, replica = found
    values = {
        "offset": offset,
        "leader": broker,
        "epoch": replica["epoch"],
        **{name: replica[name] for name in ("start", "end", "watermark")},
        "visible": replica["start"] <= offset < replica["watermark"],
    }
    if offset >= replica["end"]:
        return Answer(
            f"offset {offset} is not written yet: the log end offset of the leader, broker {broker}, "
            f"is {replica['end']}",
            (*_ever_cut(evidence, offset),),
            values,
        )
    if offset < replica["start"]:
        return Answer(
            f"offset {offset} is deleted: the log start offset is {replica['start']}",
            ("retention or DeleteRecords advanced the log start offset",),
            values,
        )
    if offset < replica["watermark"]:
        return Answer(f"offset {offset} is visible: the high watermark is {replica['watermark']}", (), values)
    causes, waits = _holders(evidence, replica, offset)
    first = causes[0] if causes else "nothing holds it back: it is about to advance"
    return Answer(
        f"offset {offset} is not visible: the high watermark is {replica['watermark']}; {first}",
        tuple(causes[1:]),
        {**values, "waits_for": waits, "isr": replica["leading"]["isr"]},
    )


def _holders(evidence: Evidence, replica: Values, offset: int) -> tuple[list[str], list[Values]]:
    """What keeps the high watermark at or below `offset`: sentences, and the followers with their values."""
    leading = replica["leading"]
    causes = []
    if leading["strict_min_isr"] and leading["under_min_isr"]:
        causes.append(
            f"strict.min.isr holds it back until {leading['min_isr']} replicas are in sync; the ISR "
            f"is {numbers(leading['isr'])}"
        )
    if leading["safe_end"] <= offset:
        causes.append(f"the leader has not flushed it: its disk has the log up to {leading['safe_end']}")
    waits = [each for each in leading["followers"] if each["holds"] and each["end"] <= offset]
    causes += [f"it waits for {follower_told(each, leading)}" for each in waits]
    if leading["proposed"] is not None:
        causes.append(
            f"the leader is changing the ISR from {numbers(leading['isr'])} to "
            f"{numbers(leading['proposed'])}; until ZooKeeper answers, {numbers(leading['must_ack'])} "
            "must have it"
        )
        if not evidence.documents[replica["leader"]]["registry_connected"]:
            causes.append("the leader has no connection to ZooKeeper, so the ISR cannot change")
    return causes, waits


def follower_told(each: Values, leading: Values) -> str:
    """A follower as its leader sees it."""
    where = f"log end offset {each['end']}" if each["has_fetched"] else "which has not fetched in this epoch"
    when = f"last caught up {_ago(each['caught_up_ago_s'])}, last fetched {_ago(each['fetched_ago_s'])}"
    if each["in_isr"]:
        stands = f"still in the ISR (removed after {seconds(leading['lag_max_s'])} of lag)"
    else:
        stands = "joining the ISR" if each["holds"] else "not in the ISR"
    gone = "" if each["registered"] else ", not registered"
    return f"broker {each['broker']}, {where}, {when}, {stands}{gone}"


def _ago(value: float | None) -> str:
    return "never" if value is None else f"{seconds(value)} ago"


def _ever_cut(evidence: Evidence, offset: int) -> Iterator[str]:
    for cut in evidence.decisions(what=("truncated",)):
        if cut["end"] <= offset < cut["was"]:
            yield (
                f"broker {cut['by']} had an offset {offset} and truncated it "
                f"{evidence.before(cut['at_ms'])}, because its leader, broker {cut['leader']}, did "
                f"not have it: see `strandline lost {evidence.partition}`"
            )


def leader(evidence: Evidence) -> Answer:
    """Why this broker leads."""
    found = evidence.leader
    elections = evidence.decisions("controllers_decisions", ("elected", "created", "went_offline"))
    if found is None:
        return offline(evidence)
    broker, replica = found
    values: dict[str, Any] = {
        "leader": broker,
        "epoch": replica["epoch"],
        "isr": replica["leading"]["isr"],
        "replicas": replica["leading"]["replicas"],
    }
    mine = [e for e in elections if e["leader"] == broker and e["epoch"] <= replica["epoch"]]
    if not mine:
        return Answer(
            f"broker {broker} leads {evidence.partition} in epoch {replica['epoch']}; no broker that "
            "answers has kept the decision that elected it",
            _not_preferred(evidence, broker, replica),
            values,
        )
    election = mine[-1]
    values |= {"election": election}
    when = evidence.before(election["at_ms"])
    if election["what"] == "created":
        return Answer(
            f"broker {broker} leads {evidence.partition} since its creation {when}: it was the first "
            "live replica",
            (),
            values,
        )
    how = "was elected"
    if election["unclean"]:
        how = "was elected uncleanly, because no in-sync replica was left"
    elif election["recovering"]:
        how = "was elected without proof that its log is complete"
    return Answer(
        f"broker {broker} leads {evidence.partition} in epoch {replica['epoch']}: it {how} {when}, "
        f"because {election['cause']}",
        (
            (
                f"the leader before was broker {election['leader_before']}, with the ISR "
                f"{numbers(election['isr_before'])}"
            )
            if election["leader_before"] != NO_LEADER
            else "there was no leader before",
            *_candidates(election["candidates"]),
            *_lossy(evidence, broker, replica["epoch"]),
            *_not_preferred(evidence, broker, replica),
        ),
        values,
    )


def _not_preferred(evidence: Evidence, broker: int, replica: Values) -> tuple[str, ...]:
    preferred = replica["leading"]["replicas"][0]
    view = evidence.view
    if preferred == broker:
        return ()
    now = f", which is {view['candidates'][preferred]}" if view and preferred in view["candidates"] else ""
    return (f"the preferred leader is broker {preferred}{now}",)


def _lossy(evidence: Evidence, broker: int, epoch: int) -> Iterator[str]:
    for each in evidence.decisions("controllers_decisions", ("may_have_lost",)):
        if (each["leader"], each["epoch"]) == (broker, epoch):
            told = ", ".join(f"broker {b}: epoch {e}, end {end}" for b, (e, end) in each["ends"].items())
            yield (f"it may lack acknowledged records; log ends of the replicas: {told or 'not asked'}")


def _candidates(standings: Mapping[int, str]) -> Iterator[str]:
    for broker, standing in standings.items():
        yield f"broker {broker}: {standing}"


def offline(evidence: Evidence) -> Answer:
    """Why the partition has no leader."""
    found = evidence.leader
    if found is not None:
        return Answer(
            f"{evidence.partition} is not offline: broker {found[0]} leads it in epoch {found[1]['epoch']}",
            (),
            {"offline": False, "leader": found[0]},
        )
    ended = evidence.decisions("controllers_decisions", ("went_offline", "elected"))
    last = ended[-1] if ended else None
    view = evidence.view
    if view is not None and view["leader"] != NO_LEADER:
        return Answer(
            f"broker {view['leader']} was elected leader of {evidence.partition} in epoch "
            f"{view['leader_epoch']} but does not report that it leads",
            (*_candidates(view["candidates"]), *_silence(evidence)),
            {"offline": True, "leader": view["leader"], "candidates": view["candidates"]},
        )
    known = view if view is not None else last
    if known is None:
        return Answer(
            (
                f"nothing is known about {evidence.partition}: no controller answers, and no broker has "
                "kept its decisions"
            ),
            tuple(_silence(evidence)),
            {"offline": None},
        )
    since = ""
    if last is not None and last["what"] == "went_offline":
        since = f" (for {seconds((evidence.now_ms - last['at_ms']) / 1000)}, because {last['cause']})"
    unclean = view["unclean_allowed"] if view is not None else None
    because = [
        *_candidates(known["candidates"]),
        *(
            ["a replica outside the ISR may not lead (unclean.leader.election.enable=false)"]
            if unclean is False
            else []
        ),
        *_searched(view),
        *_broken(evidence),
        *_silence(evidence),
    ]
    return Answer(
        f"{evidence.partition} is offline{since}: no member of its ISR {numbers(known['isr'])} may lead",
        tuple(because),
        {
            "offline": True,
            "isr": known["isr"],
            "candidates": known["candidates"],
            "unclean_allowed": unclean,
            "since_ms": last["at_ms"] if last is not None and last["what"] == "went_offline" else None,
        },
    )


def _searched(view: Values | None) -> Iterator[str]:
    search = None if view is None else view.get("search")
    if search:
        told = ", ".join(
            f"broker {b}: epoch {epoch}, end {end}" for b, (epoch, end) in search["ends"].items()
        )
        yield (
            f"the controller is looking for the longest log ({search['strategy']}): "
            f"{told or 'no answer yet'}; waiting for brokers {numbers(search['no_answer_of'])}"
        )


def _broken(evidence: Evidence) -> Iterator[str]:
    for broker, document in evidence.documents.items():
        replica = document.get("replica")
        if replica and replica["offline"]:
            yield f"the replica on broker {broker} is offline: {replica['offline']}"


def _silence(evidence: Evidence) -> Iterator[str]:
    for broker, why in sorted(evidence.silent.items()):
        yield f"broker {broker} does not answer: {why}"
