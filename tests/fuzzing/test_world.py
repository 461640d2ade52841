"""Three brokers in virtual time take what administrators ask for, whatever it is. What is drawn is wide
enough: bugs that there were are found again.
"""

from collections.abc import Callable

import pytest

from strandline.broker.config import dynamic
from strandline.broker.config.dynamic import KnownOptions
from strandline.broker.handlers import configs
from strandline.controller.requests import reassignments
from strandline.controller.requests.config_changes import Kind
from strandline.protocol import error_codes
from tests.fuzzing.world import FuzzedWorld

FRAMES = 3_000
SEEDS_MAX = 12


def test_frames_to_three_brokers_and_what_tools_write_meanwhile() -> None:
    world = FuzzedWorld(1)
    world.run(FRAMES)
    assert world.complaints == []
    assert world.sent >= FRAMES and world.restarts
    assert len(world.accepted) > 8, "most kinds of requests were carried out in full, each at least once"


def test_a_seed_repeats_itself() -> None:
    first, second = FuzzedWorld(2), FuzzedWorld(2)
    for world in (first, second):
        world.run(500)
    assert first.trace.fingerprint() == second.trace.fingerprint() and first.sent == second.sent


Plant = Callable[[pytest.MonkeyPatch], None]


def no_list_of_topics(patch: pytest.MonkeyPatch) -> None:
    """A list of settings of topics, added to for brokers, is looked for among those of brokers."""
    default = KnownOptions.list_default

    def list_default(self: KnownOptions, kind: Kind, setting: str) -> str | None:
        if setting in dynamic.LISTS and kind is Kind.BROKER:
            return str(dynamic.OPTIONS[setting].option.default)
        return default(self, kind, setting)

    patch.setattr(KnownOptions, "list_default", list_default)


def a_rate_without_an_option(patch: pytest.MonkeyPatch) -> None:
    """The rate of moves between directories is described as if it were an option."""
    patch.setattr(configs, "DIRECTORIES_RATE", "none")


def any_name_of_a_topic(patch: pytest.MonkeyPatch) -> None:
    """What is to be moved may have any name but none."""
    patch.setattr(reassignments, "is_topic_name", bool)


def whole_messages(patch: pytest.MonkeyPatch) -> None:
    """What is wrong is told in full, however long it is."""
    patch.setattr(error_codes, "MESSAGE_MAX", 1 << 40)


@pytest.mark.parametrize(
    ("plant", "told"),
    [
        (no_list_of_topics, "KeyError('cleanup.policy')"),
        (a_rate_without_an_option, "KeyError('replica.alter.log.dirs.io.max.bytes.per.second')"),
        (any_name_of_a_topic, "relative paths not allowed"),
        (whole_messages, ""),
    ],
)
def test_a_bug_that_there_was_is_found(monkeypatch: pytest.MonkeyPatch, plant: Plant, told: str) -> None:
    """Mostly by the first seed; which one does differs with each change of a broker."""
    plant(monkeypatch)
    complaints: list[str] = []
    for seed in range(1, SEEDS_MAX):
        world = FuzzedWorld(seed)
        world.run(FRAMES)
        complaints += world.complaints
        if complaints:
            break
    assert complaints and told in "".join(complaints)
