"""Value classes behave as the standard ones, but for what type checkers hold; little is compiled for them."""

import dataclasses
import pickle
import subprocess
import sys
from dataclasses import field, fields, replace
from typing import Any

import pytest

from strandline.base.values import dataclass
from strandline.protocol.messages.metadata import MetadataRequest, MetadataResponseTopic
from strandline.protocol.primitives import NO_UUID


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 0
    note: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Same:
    x: int
    y: int = 0


@dataclass(frozen=True, slots=True)
class Nothing:
    pass


@dataclass(slots=True)
class Growing:
    some: list[int] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Unlike:
    x: int


@dataclass(frozen=True, slots=True)
class Told:
    x: int

    def __repr__(self) -> str:
        return "told"

    def __eq__(self, other: object) -> bool:
        return True


def test_values_are_compared_and_hashed_by_their_fields() -> None:
    assert Point(1, 2) == Point(1, 2, "other") != Point(2, 1)
    assert len({Point(1, 2), Point(1, 2, "other"), Point(2, 1)}) == 2
    assert Point(1, 2) != Same(1, 2), "another class is another value"
    assert Point(1, 2) != (1, 2)
    assert {Nothing(): 1}[Nothing()] == 1
    assert Growing([1]) == Growing([1]) != Growing()
    assert Unlike(1) != Unlike(1) and len({Unlike(1), Unlike(1)}) == 2


def test_what_may_change_cannot_be_hashed() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(Growing())


def test_they_are_shown_replaced_and_pickled_as_the_standard_ones() -> None:
    assert repr(Point(1, 2, "n")) == "Point(x=1, y=2)"
    assert replace(Point(1, 2), y=3) == Point(1, 3)
    assert pickle.loads(pickle.dumps(Point(1, 2))) == Point(1, 2)
    assert [each.name for each in fields(Point)] == ["x", "y", "note"]
    match Point(1, 2):
        case Point(x, y):
            assert (x, y) == (1, 2)
    assert not hasattr(Point(1), "__dict__")
    assert Growing().some is not Growing().some


def test_what_a_class_says_itself_stands() -> None:
    assert repr(Told(1)) == "told" and Told(1) == Told(2)


def test_a_message_takes_its_fields_by_name_from_the_first_time_on() -> None:
    for _ in range(2):
        topic = MetadataResponseTopic(name="t", topic_id=NO_UUID, partitions=[])
        assert (topic.name, topic.error_code, topic.is_internal) == ("t", 0, False)
        assert MetadataRequest(topics=[]).topics is not MetadataRequest(topics=[]).topics
        with pytest.raises(TypeError):
            wrong: Any = {"nonsense": 1}
            MetadataResponseTopic(**wrong)
        with pytest.raises(TypeError):
            positional: Any = MetadataRequest
            positional([])
    assert dataclasses.replace(topic, name="u").name == "u"


COUNT = """
import dataclasses, sys
compiled = []
create = dataclasses._create_fn
dataclasses._create_fn = lambda name, *more, **how: compiled.append(name) or create(name, *more, **how)
from strandline.cli.main import spare_imports
spare_imports()
import strandline.broker.node, strandline.cli.serve
print(len(compiled))
"""


@pytest.mark.skipif(not hasattr(dataclasses, "_create_fn"), reason="this Python compiles all at once")
def test_a_broker_compiles_few_methods_of_value_classes_when_it_starts() -> None:
    """1,300 were a third of what a start costs a processor."""
    done = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 500
