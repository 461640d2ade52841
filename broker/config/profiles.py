"""What a semantics profile does to a configuration: it sets defaults, and needs consent if it loses records.

An option that is given wins over the profile. A profile that loses acknowledged records by design is refused
without `strandline.semantics.accept.loss=true`: a name like `0.10` reads like compatibility, which it is not.
Left to others: the profiles (replication/profiles.py), the options (broker.py), the rules themselves.
"""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from ...replication.profiles import DEFAULT, PROFILES, TODAY, Semantics

SETS: dict[tuple[str, str], str] = {
    # (section, option) -> the rule of the profile that gives its default
    ("storage", "unclean_leader_election_enable"): "unclean_election",
    ("storage", "unclean_recovery_strategy"): "unclean_recovery",
    ("replication", "lag_time_max_ms"): "lag_time_max_ms",
    ("replication", "strict_min_isr"): "strict_min_isr",
}


def with_defaults(given: dict[str, Any]) -> dict[str, Any]:
    """`given`, with defaults of its profile for options that are not given."""
    semantics = PROFILES.get(given.get("semantics_profile", DEFAULT), TODAY)
    if semantics is TODAY:
        return given
    completed = dict(given)
    for (section, name), rule in SETS.items():
        known = completed.get(section) or {}
        known = known.model_dump(exclude_unset=True) if isinstance(known, BaseModel) else known
        completed[section] = {name: getattr(semantics, rule), **known}
    return completed


def wrong_profile(name: str, accepts_loss: bool) -> Iterator[str]:
    """Why a broker must not start under this profile."""
    semantics = PROFILES.get(name)
    if semantics is None:
        yield f"strandline.semantics.profile = {name!r}: must be one of {', '.join(PROFILES)}"
    elif semantics.loses and not accepts_loss:
        yield (
            f"strandline.semantics.profile = {name}: this profile loses acknowledged records by "
            f"design ({semantics.loses}), to demonstrate the loss. To use it, set "
            "strandline.semantics.accept.loss=true; otherwise remove the profile"
        )


def warnings(semantics: Semantics, given: set[str]) -> Iterator[str]:
    """Warnings for a broker that starts under this profile."""
    if semantics.loses:
        yield (
            f"strandline.semantics.profile = {semantics.name}: ACKNOWLEDGED RECORDS WILL BE LOST "
            f"in failures that other profiles survive, because {semantics.loses}; do not store "
            "data under it"
        )
    if "replica.lag.max.messages" in given and not semantics.lag_by_messages:
        yield (
            "replica.lag.max.messages has no effect under strandline.semantics.profile = "
            f"{semantics.name}: lag is measured in time (replica.lag.time.max.ms); only profile "
            "0.8 counts records"
        )
