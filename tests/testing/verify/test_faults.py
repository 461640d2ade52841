"""Which faults can be done to which clients and brokers, and what a fault that does not come about means."""

import time
from collections import Counter
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest

from strandline.broker.config.sections import ControllerConfig
from strandline.testing import waiting
from strandline.testing.verify.clients.client import LIVES_OF_A_CLIENT, VALUES_OF_A_LIFE
from strandline.testing.verify.faults import FAULTS, Power
from strandline.testing.verify.kinds import KINDS
from strandline.testing.verify.nemesis import Nemesis, NotDone, leave_alone, wait_brought_about
from strandline.testing.verify.places import Place
from strandline.testing.verify.run import Blind, Run, check
from strandline.testing.verify.scenario import ClientPart, Scenario, ScenarioError, parsed, unfit
from strandline.testing.verify.schedule import Strike, strikes

WRITERS = '[topics.t]\n[[clients]]\nkind = "writer"\n[faults]\ndrawn = "all"\n'


def story(text: str = WRITERS, brokers: int = 3) -> Scenario:
    return parsed(f"{text}[cluster]\nbrokers = {brokers}", "story", "story.toml")


class Empty(Place):
    """So many brokers that do not exist."""

    name = "nowhere"
    is_ours = True

    def __init__(self, brokers: int) -> None:
        self._count = brokers
        self.mended = 0
        self.powers = frozenset().union(*(fault.needs for fault in FAULTS.values()))

    @property
    def bootstrap(self) -> str:
        return "127.0.0.1:1"

    def _ids(self) -> range:
        return range(1, self._count + 1)

    def start(self) -> None: ...

    def wait_ready(self, wait_s: float) -> None: ...

    def mend(self) -> None:
        self.mended += 1

    def close(self) -> None: ...


def drawn(scenario: Scenario, place: Place, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The faults of a run on such a place, which are not done."""
    struck: Counter[str] = Counter()
    monkeypatch.setattr(Run, "_rest", lambda self, seconds: None)
    made = Run(scenario, place, folder, Blind())

    class Hand:
        def strike(self, strike: Strike) -> None:
            struck[strike.fault] += 1
            if sum(struck.values()) == 200:
                raise InterruptedError

    with pytest.raises(InterruptedError):
        made._strike(cast(Any, Hand()), time.monotonic())
    return struck


@pytest.mark.parametrize("brokers", [1, 2, 3])
def test_of_all_faults_those_are_drawn_that_can_hit_somebody(
    brokers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a run would end in the middle: there is no client to freeze, no other broker to cut off."""
    found = drawn(story(brokers=brokers), Empty(brokers), tmp_path, monkeypatch)
    assert {"kill-leader", "kill-two", "restart", "kill-group-coordinator"} <= found.keys()
    assert not found.keys() & {"kill-a-client", "zombie-client", "sleeping-client"}
    assert ("cut-from-a-peer" in found) is (brokers > 1)
    assert ("only-an-outsider" in found) is (brokers > 2)


def test_a_fault_by_name_is_refused_where_it_hits_nobody() -> None:
    one = story(WRITERS.replace('"all"', '["last-isr-empty-disk"]'))
    with pytest.raises(ScenarioError, match="fault last-isr-empty-disk: it needs three brokers, not 1"):
        check(one, Empty(1))
    check(one, Empty(3))
    zombie = ClientPart(kind="transactions")
    assert unfit("zombie-client", [zombie], 1) is None
    assert (
        unfit("zombie-client", [ClientPart(kind="subscriber")], 3) == "there is no client with transactions"
    )
    assert unfit("kill-a-client", [ClientPart(kind="subscriber")], 3) is None
    assert unfit("cut-from-a-peer", [zombie], 1) == "it needs two brokers, not 1"


@pytest.mark.parametrize("power", [Power.ISOLATION, Power.LINKS])
def test_resets_are_told_of_where_single_links_are_cut(power: Power) -> None:
    """Elsewhere a broker is taken from its network, which resets nothing."""
    said: list[str] = []

    class Networks(Empty):
        def isolate(self, broker: int, *, reset: bool = False) -> None: ...

    place = Networks(3)
    place.powers = frozenset({power})
    nemesis = Nemesis(place, story(), "", cast(Any, None), cast(Any, Mock()), said.append)
    for _ in range(20):
        nemesis._isolate("broker", 2)
    cut = "cut broker from everybody broker 2"
    assert set(said) == ({f"{cut}, with resets", f"{cut}, silently"} if power is Power.LINKS else {cut})


def test_every_fault_fits_somewhere() -> None:
    everybody = [
        ClientPart(kind=kind, **({"topics": ("t",), "to": "u"} if what.copies else {}))
        for kind, what in KINDS.items()
    ]
    assert [name for name in FAULTS if unfit(name, everybody, 3)] == []


def test_a_fault_that_does_not_come_about_is_no_violation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster whose followers leave the ISR later than a run waits has lost nothing."""
    place = Empty(3)
    monkeypatch.setattr(Run, "_rest", lambda self, seconds: None)
    made = Run(story(WRITERS.replace('"all"', '["kill-leader-ahead", "restart"]')), place, tmp_path, Blind())
    told: list[str] = []

    class Hand:
        def strike(self, strike: Strike) -> None:
            told.append(strike.fault)
            if strike.fault == "kill-leader-ahead":
                wait_brought_about(lambda: False, 0.01, "2 has left the ISR (t-0)")

    made._strike(cast(Any, Hand()), -1000.0)
    assert told == ["kill-leader-ahead", "restart"] and place.mended == 1
    (unknown,) = made.record.unknowns
    assert unknown.startswith("kill-leader-ahead was not done: ") and "2 has left the ISR (t-0)" in unknown
    assert made.record.violations == []


def test_what_a_fault_waits_for_is_named() -> None:
    with pytest.raises(NotDone, match="its session is over"):
        wait_brought_about(lambda: False, 0.01, "its session is over")
    wait_brought_about(lambda: True, 0.01, "at once")
    assert issubclass(NotDone, Exception) and not issubclass(NotDone, AssertionError)
    assert callable(Nemesis.strike)


def test_on_a_slow_machine_too_the_others_come_before_the_controller_stops_waiting_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the one that lost data leads by `unclean.recovery.timeout.ms`, and the run tells of losses."""
    now = [0.0]
    monkeypatch.setattr(waiting, "machine_is_slower", lambda: 100.0)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    leave_alone(lambda: False)
    assert now[0] < ControllerConfig().unclean_recovery_timeout_ms / 1000 / 2


def test_no_value_is_sent_twice_though_clients_have_thousands_of_lives() -> None:
    """A client that is killed every ten seconds for a week has 60,000 lives; values have 8 bytes."""
    assert LIVES_OF_A_CLIENT > 60_000
    assert 50 * 1000 * LIVES_OF_A_CLIENT * VALUES_OF_A_LIFE < 1 << 63
    assert [strike.fault for strike, _ in zip(strikes(story(), ["restart"]), range(2), strict=False)] == [
        "restart"
    ] * 2
