"""What an alteration makes of settings, and what contradicts itself."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.controller.requests.config_changes import (
    Alteration,
    AnySettings,
    Kind,
    Operation,
    SettingChange,
    alteration_of,
    repeated_resources,
)
from strandline.controller.requests.configs import settings_of
from strandline.protocol.errors import InvalidConfig, InvalidRequest
from strandline.protocol.messages.config_changes import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    IncrementalConfig,
    IncrementalResource,
)

LISTS = {"cleanup.policy": "delete"}
KNOWN = {"retention.ms": "5", "cleanup.policy": "compact"}


def applied(
    settings: Mapping[str, str], *changes: SettingChange, replaces_all: bool = False
) -> dict[str, str]:
    return Alteration(2, "t", changes, replaces_all).applied_to(settings, LISTS.get)


def test_changes_concern_what_they_name() -> None:
    set_one = SettingChange("segment.ms", Operation.SET, "7")
    gone = SettingChange("retention.ms", Operation.DELETE)
    assert applied(KNOWN, set_one, gone) == {"cleanup.policy": "compact", "segment.ms": "7"}
    assert applied(KNOWN, set_one, replaces_all=True) == {"segment.ms": "7"}
    assert applied(KNOWN, SettingChange("never.set", Operation.DELETE)) == KNOWN


def test_lists_grow_and_shrink() -> None:
    append = SettingChange("cleanup.policy", Operation.APPEND, "delete")
    assert applied(KNOWN, append)["cleanup.policy"] == "compact,delete"
    assert applied({}, SettingChange("cleanup.policy", Operation.APPEND, "compact")) == {
        "cleanup.policy": "delete,compact"  # appended to what is the default
    }
    assert applied(
        {"cleanup.policy": "compact, delete"}, SettingChange("cleanup.policy", Operation.SUBTRACT, "compact")
    ) == {"cleanup.policy": "delete"}
    subtract = SettingChange("cleanup.policy", Operation.SUBTRACT, "compact")
    assert applied(KNOWN, subtract)["cleanup.policy"] == ""
    with pytest.raises(InvalidConfig, match=r"retention\.ms: append needs an option that is a list"):
        applied(KNOWN, SettingChange("retention.ms", Operation.APPEND, "5"))


@pytest.mark.parametrize("operation", [Operation.APPEND, Operation.SUBTRACT])
def test_a_list_grows_no_longer_than_a_string_of_the_protocol(operation: Operation) -> None:
    """Else no controller could tell any broker of the topic, nor of anything in the same request."""
    known = {"cleanup.policy": ",".join(f"{n:04}" for n in range(7_000)), "other": "y" * 40_000}
    wanted = Alteration(2, "t", [SettingChange("cleanup.policy", operation, "7777")])

    class Lists(AnySettings):
        def list_default(self, kind: Kind, name: str) -> str | None:
            return LISTS.get(name)

    with pytest.raises(InvalidConfig, match="would be longer than 32767 bytes"):
        settings_of(Lists(), wanted, known, {})
    less = {**known, "cleanup.policy": "0001"}
    assert settings_of(Lists(), wanted, less, {})["other"] == known["other"], "what is not changed stays"


names = st.sampled_from(("retention.ms", "segment.ms", "cleanup.policy"))
values = st.lists(st.sampled_from(("delete", "compact", "x")), min_size=1, max_size=3).map(",".join)


@given(
    st.dictionaries(names, values),
    st.lists(
        st.builds(SettingChange, names, st.sampled_from(Operation), values), unique_by=lambda each: each.name
    ),
    st.booleans(),
)
def test_twice_is_once(settings: dict[str, str], changes: list[SettingChange], replaces_all: bool) -> None:
    """A request whose answer was lost is sent again, and its first write may land in between."""
    lists = dict.fromkeys(("retention.ms", "segment.ms", "cleanup.policy"), "delete")
    wanted = Alteration(
        2, "t", [c for c in changes if not replaces_all or c.operation is Operation.SET], replaces_all
    )
    once = wanted.applied_to(settings, lists.get)
    assert wanted.applied_to(once, lists.get) == once


def test_what_contradicts_itself_is_refused() -> None:
    twice = [IncrementalConfig(name="a", config_operation=0, value=v) for v in "12"]
    with pytest.raises(InvalidRequest, match="configs are given more than once: a"):
        alteration_of(IncrementalResource(resource_type=2, resource_name="t", configs=twice))
    unknown = [IncrementalConfig(name="a", config_operation=4, value="1")]
    with pytest.raises(InvalidRequest, match="unknown operation 4"):
        alteration_of(IncrementalResource(resource_type=2, resource_name="t", configs=unknown))
    for operation in (0, 2, 3):
        missing = [IncrementalConfig(name="a", config_operation=operation)]
        with pytest.raises(InvalidRequest, match="a: expected a value"):
            alteration_of(IncrementalResource(resource_type=2, resource_name="t", configs=missing))
    resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[AlterableConfig(name="a")])
    with pytest.raises(InvalidRequest, match="expected a value"):
        alteration_of(resource)
    assert repeated_resources(AlterConfigsRequest(resources=[resource, resource])) == {(2, "t")}


def test_where_settings_stand() -> None:
    assert Alteration(2, "t", []).path == "/config/topics/t"
    assert Alteration(4, "7", []).path == "/config/brokers/7"
    assert Alteration(4, "", []).path == "/config/brokers/<default>"
    assert Alteration(4, "", []).entity == "brokers/<default>"
