"""Answers of `strandline why` and of `/why`: combines what several brokers said about one partition. Pure.

Each document is what one broker reported (inspection.py), or what was found in its files. The leader
is the broker that leads in the newest epoch. Decisions of all brokers are merged by wall time.
Left to others: asking (cli/why/command.py, web/why.py).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..base.types import NO_LEADER

Values = Mapping[str, Any]

UNTOLD = (
    "does not answer such questions, as brokers of Apache Kafka do not: whether it leads is not known here"
)


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

    @property
    def stranger_to(self) -> int | None:
        """The controller, if it answers and does not know the partition."""
        if self.view is not None:
            return None
        asked = self.documents.items()
        return next((broker for broker, document in asked if document.get("controller") == broker), None)

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
            *_candidates(election["candidates"], "then "),
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
    standing = None if view is None else view["candidates"].get(preferred)
    now = f", which is now {standing}" if standing else ""
    return (f"the preferred leader is broker {preferred}{now}",)


def _lossy(evidence: Evidence, broker: int, epoch: int) -> Iterator[str]:
    for each in evidence.decisions("controllers_decisions", ("may_have_lost",)):
        if (each["leader"], each["epoch"]) == (broker, epoch):
            told = ", ".join(f"broker {b}: epoch {e}, end {end}" for b, (e, end) in each["ends"].items())
            yield (f"it may lack acknowledged records; log ends of the replicas: {told or 'not asked'}")


def _candidates(standings: Mapping[int, str], when: str = "") -> Iterator[str]:
    for broker, standing in standings.items():
        yield f"broker {broker}: {when}{standing}"


def offline(evidence: Evidence) -> Answer:
    """Why the partition has no leader."""
    found = evidence.leader
    if found is not None:
        return Answer(
            f"{evidence.partition} is not offline: broker {found[0]} leads it in epoch {found[1]['epoch']}",
            (),
            {"offline": False, "leader": found[0]},
        )
    ended = evidence.decisions("controllers_decisions", ("went_offline", "elected", "created"))
    last = ended[-1] if ended else None
    view = evidence.view
    if view is not None and view["leader"] != NO_LEADER:
        return _led_in_silence(evidence, view)
    known = view if view is not None else last
    if (controller := evidence.stranger_to) is not None:
        return Answer(
            f"nothing is known about {evidence.partition}: the controller, broker {controller}, has no such "
            "partition",
            tuple(_silence(evidence)),
            {"offline": None},
        )
    if known is None:
        return Answer(
            (
                f"nothing is known about {evidence.partition}: no controller answers, and no broker has "
                "kept its decisions"
            ),
            tuple(_silence(evidence)),
            {"offline": None},
        )
    if view is None and known["what"] != "went_offline":
        return _led_once(evidence, known)
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


def _led_in_silence(evidence: Evidence, view: Values) -> Answer:
    """Somebody was elected, and does not say that it leads; it may be one that is never asked."""
    is_silent = view["leader"] in evidence.silent
    then = f"but {UNTOLD}" if is_silent else "but does not report that it leads"
    return Answer(
        f"broker {view['leader']} was elected leader of {evidence.partition} in epoch "
        f"{view['leader_epoch']} {then}",
        (*_candidates(view["candidates"]), *_silence(evidence)),
        {
            "offline": None if is_silent else True,
            "leader": view["leader"],
            "candidates": view["candidates"],
        },
    )


def _led_once(evidence: Evidence, election: Values) -> Answer:
    """All that is left are decisions of the past."""
    return Answer(
        f"no controller answers, and no broker that leads {evidence.partition}: the last leader that is "
        f"known of is broker {election['leader']}, elected {evidence.before(election['at_ms'])} in epoch "
        f"{election['epoch']}",
        (*_candidates(election.get("candidates", {}), "then "), *_silence(evidence)),
        {"offline": None, "leader": election["leader"]},
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


# ------------------------------------------------------------ the ISR


def left_isr(evidence: Evidence, broker: int | None) -> Answer:
    """Why a replica is not in the ISR: when it left, who decided that and why, what it waits for now. Without
    `broker`, every one that is missing.

    A replica leaves because its leader saw it lag (a proposal with both log end offsets, then the change in
    ZooKeeper), or because the controller saw its broker gone.
    """
    found = evidence.leader
    view = evidence.view
    leading: Values | None = None if found is None else found[1]["leading"]
    known = leading or view
    if known is None and evidence.stranger_to is None:
        last = evidence.decisions("controllers_decisions", ("elected", "isr_reduced", "went_offline"))
        known = {"isr": last[-1]["isr"], "replicas": list(last[-1]["candidates"])} if last else None
    if known is None:
        return offline(evidence)
    missing = [each for each in known["replicas"] if each not in known["isr"]]
    values: dict[str, Any] = {"isr": known["isr"], "replicas": known["replicas"], "missing": missing}
    if broker is not None and broker not in known["replicas"]:
        return Answer(f"broker {broker} has no replica of {evidence.partition}", (), values)
    asked = missing if broker is None else [broker]
    if not asked:
        return Answer(
            f"every replica of {evidence.partition} is in its ISR {numbers(known['isr'])}", (), values
        )
    departures = {each: departure(evidence, each) for each in asked}
    sentences = [_told(evidence, each, each in known["isr"], departures[each]) for each in asked]
    because = [line for each in asked for line in _now(evidence, leading, each)]
    told = [{"broker": each, "departure": departures[each]} for each in asked]
    return Answer("; ".join(sentences), tuple(because), {**values, "left": told})


def departure(evidence: Evidence, broker: int) -> Values | None:
    """The last decision by which this replica left the ISR, with the proposal that led to it."""
    found: list[Values] = []
    for change in evidence.decisions(what=("isr_changed",)):
        if broker in change["left"]:
            found.append({**change, "proposal": _proposal(evidence, change, broker)})
    for decided in evidence.decisions("controllers_decisions", ("elected", "isr_reduced", "went_offline")):
        if broker in decided["isr_before"] and broker not in decided["isr"]:
            found.append(decided)
    return max(found, key=lambda each: int(each["at_ms"]), default=None)


def _proposal(evidence: Evidence, change: Values, broker: int) -> Values | None:
    made = [
        {**each, "follower": follower}
        for each in evidence.decisions(what=("isr_shrink_proposed",))
        if each["by"] == change["by"]
        and each["epoch"] == change["epoch"]
        and each["at_ms"] <= change["at_ms"]
        for follower in each["leaving"]
        if follower["broker"] == broker
    ]
    return made[-1] if made else None


def _told(evidence: Evidence, broker: int, is_member: bool, left: Values | None) -> str:
    if left is None:
        stands = "is in the ISR" if is_member else "is not in the ISR"
        return (
            f"broker {broker} {stands} of {evidence.partition}; no broker has kept a decision that removed it"
        )
    when = evidence.before(left["at_ms"])
    intro = (
        f"broker {broker} is in the ISR of {evidence.partition}; it last left it"
        if is_member
        else (f"broker {broker} left the ISR of {evidence.partition}")
    )
    if left["what"] != "isr_changed":
        standing = left["candidates"].get(broker, "unknown")
        if standing in left["cause"]:  # it is the cause
            return f"{intro} {when}, because {left['cause']}"
        return f"{intro} {when}: to the controller it was {standing}, because {left['cause']}"
    proposal = left["proposal"]
    if proposal is None:
        return f"{intro} {when}: its leader, broker {left['by']}, removed it in epoch {left['epoch']}"
    follower = proposal["follower"]
    if not follower["has_fetched"]:
        seen = f"it had not fetched in epoch {proposal['epoch']}"
    else:
        seen = f"its log end offset was {follower['end']}, the leader's {proposal['leader_end']}"
    late = seconds(follower["caught_up_ago_s"])
    return (
        f"{intro} {when}: {seen}, and it had last caught up {late} before; the limit is "
        f"{seconds(proposal['lag_max_s'])} (replica.lag.time.max.ms); the leader was broker "
        f"{left['by']} in epoch {left['epoch']}"
    )


def _now(evidence: Evidence, leading: Values | None, broker: int) -> Iterator[str]:
    """What keeps a replica out of the ISR now."""
    if leading is None:
        view = evidence.view
        if view is not None and broker in view["candidates"]:
            yield (
                f"now there is no leader, and to the controller broker {broker} is "
                f"{view['candidates'][broker]}"
            )
        return
    follower = next((each for each in leading["followers"] if each["broker"] == broker), None)
    if follower is None:
        return
    yield f"now: {follower_told(follower, leading)}"
    if follower["in_isr"]:
        return
    if not follower["registered"]:
        yield f"broker {broker} is not registered: start it, or find out why it has no ZooKeeper session"
    elif leading["proposed"] is not None:
        yield f"the leader is changing the ISR to {numbers(leading['proposed'])} and waits for ZooKeeper"
    else:
        needed = max(leading["epoch_began_at"], 0)
        yield (
            f"it joins when its log end offset reaches the high watermark and {needed}, where this "
            f"leader epoch began; the leader's is {leading['end']}"
        )
    refusals = [
        each
        for each in evidence.decisions(what=("isr_refused",))
        if broker in each["asked"] and broker not in leading["isr"]
    ]
    if refusals:
        last = refusals[-1]
        times = f", {last['times']} times" if last.get("times", 1) > 1 else ""
        yield (
            f"ZooKeeper refused to add it {evidence.before(last.get('until_ms', last['at_ms']))}{times}: "
            f"{last['condition']} had changed"
        )
    own = [each for each in evidence.decisions() if each["by"] == broker]
    if own and own[-1]["what"] == "cut_waits":
        yield (
            f"broker {broker} must truncate its log first, and cannot keep a copy of the removed records: "
            f"{own[-1]['why']}"
        )
    document = evidence.documents.get(broker)
    if document is None and broker in evidence.silent:
        yield f"broker {broker} does not answer: {evidence.silent[broker]}"
    elif document is not None and document["replica"] and document["replica"]["offline"]:
        yield f"the replica on broker {broker} is offline: {document['replica']['offline']}"
