"""Renders docs/configuration.md from the declarations of the options, so that it is never out of date.

Left to others: the declarations (broker.py, sections.py, storage/config.py).
"""

from collections.abc import Iterator
from typing import Literal, get_args, get_origin

from ...base.options import Option, text_of
from .broker import OPTIONS, OptionPlace
from .files import NO_EFFECT, NO_EFFECT_PREFIXES, OTHER_NAMES, environment_name, within

HEADINGS = {
    "": "The broker and its listeners",
    "storage": "Logs",
    "replication": "Replication",
    "groups": "Consumer groups",
    "transactions": "Transactions",
    "controller": "Topics and the controller",
    "web": "The HTTP server",
    "zookeeper": "ZooKeeper",
}
PREFACE = """# Configuration

A broker reads `server.properties` (Kafka's names and format), then the environment, then
`--override name=value`; the later wins. The variable of `log.segment.bytes` is
`STRANDLINE_LOG_SEGMENT_BYTES`. An unknown name or a bad value ends the start with one sentence each and
exit status 2. An option that needs no restart can be changed while brokers run, for one or for all
(`strandline configs alter`); so can what topics have of their own.

This page is rendered by `broker/config/document.py` from the declarations in `broker/config/broker.py`,
`broker/config/sections.py` and `storage/config.py`.
"""


def render() -> str:
    """The whole page."""
    lines = [PREFACE]
    for section, heading in HEADINGS.items():
        lines += [
            f"## {heading}",
            "",
            "| name | default | values | change needs a restart | meaning |",
            "|---|---|---|---|---|",
        ]
        lines += [row(name, place) for name, place in OPTIONS.items() if place.section == section]
        lines.append("")
    lines += list(other_names())
    return "\n".join(lines)


def row(name: str, place: OptionPlace) -> str:
    """One option as a row of the table."""
    option = place.option
    default = (
        "required" if option.default is ... or "Undefined" in str(option.default) else text_of(option.default)
    )
    shown = "" if option.default is None else f"`{default}`"
    restart = "yes" if option.restart else "no"
    return (
        f"| `{name}` | {shown} | {values(option)} | {restart} | {option.help.replace('|', chr(92) + '|')} |"
    )


def values(option: Option) -> str:
    """The values an option may have."""
    if option.type is bool:
        return "true, false"
    if option.type is int:
        return "whole number" + within(option)
    if option.type is float:
        return "number" + within(option)
    if get_origin(option.type) is Literal:
        return ", ".join(get_args(option.type))
    return "text"


def other_names() -> Iterator[str]:
    """Kafka's names that set another option, and those that have no effect here."""
    yield "## Other accepted names"
    yield ""
    for name, (precise, factor) in OTHER_NAMES.items():
        yield f"- `{name}` sets `{precise}`" + (f" (times {factor})" if factor else "")
    yield ""
    yield "## Kafka's names without effect"
    yield ""
    yield (
        "They are accepted with a warning, so that a `server.properties` written for Kafka works (`*` stands "
        "for all names that are not in the tables above):"
    )
    names = [*sorted(NO_EFFECT), *(f"{prefix}*" for prefix in NO_EFFECT_PREFIXES)]
    yield ", ".join(f"`{name}`" for name in names) + "."
    yield ""
    yield f"Environment variables follow the same rule, e.g. `{environment_name('broker.id')}`."
    yield ""
