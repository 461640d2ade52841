"""`strandline configs`: show and change the settings of a topic, a consumer group, a broker, or all brokers.

Changes take effect without a restart, on every replica. Brokers refuse options that need a restart.
Left to others: the meaning of the settings (docs/configuration.md).
"""

from typing import Annotated, Any

import typer

from ..client.admin.configs import ConfigChange, ConfigEntry, ConfigSource, ResourceType, changes_of
from .completion import group_names, topic_names
from .console import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    WrongUsage,
    clear_errors,
    counted,
    pair,
    show,
    tell,
)
from .reach import connect

app = typer.Typer(
    no_args_is_help=True, help="Show and change the settings of topics, consumer groups and brokers."
)

SHOWN_SOURCES = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG: "topic",
    ConfigSource.DYNAMIC_GROUP_CONFIG: "group",
    ConfigSource.DYNAMIC_BROKER_CONFIG: "this broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "all brokers",
    ConfigSource.STATIC_BROKER_CONFIG: "configuration file",
    ConfigSource.DEFAULT_CONFIG: "default",
}
EXAMPLE = "retention.ms=3600000"

Topic = Annotated[
    str | None,
    typer.Option("--topic", help="topic whose settings to use", autocompletion=topic_names),
]
Broker = Annotated[int | None, typer.Option("--broker", min=0, help="id of the broker whose settings to use")]
Group = Annotated[
    str | None,
    typer.Option(
        "--group",
        help="consumer group (KIP-848) whose settings to use; it need not exist",
        autocompletion=group_names,
    ),
]
Everywhere = Annotated[bool, typer.Option("--default", help="use the cluster-wide defaults of all brokers")]


@app.command()
def describe(
    topic: Topic = None,
    broker: Broker = None,
    default: Everywhere = False,
    group: Group = None,
    every: Annotated[bool, typer.Option("--all", help="include settings at their defaults")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show what was set, and where; with --all or --json every setting in force."""
    with clear_errors():
        resource = _resource(topic, broker, default, group)
        with connect(bootstrap) as admin:
            found = admin.describe_configs(**resource, documentation=as_json)
        if as_json:
            show([_in_full(entry) for entry in found], True)
            return
        chosen = [entry for entry in found if every or entry.source != ConfigSource.DEFAULT_CONFIG]
        show([_row(entry) for entry in sorted(chosen)], False, _title(topic, broker, group))


@app.command("list")
def list_groups(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """List the consumer groups that have settings of their own, whether they exist or not."""
    with clear_errors(), connect(bootstrap) as admin:
        found = admin.list_config_resources(ResourceType.GROUP)
        show([{"group": one.name} for one in sorted(found)], as_json)


@app.command()
def alter(
    topic: Topic = None,
    broker: Broker = None,
    default: Everywhere = False,
    group: Group = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help=f"name=value, e.g. {EXAMPLE}; may be repeated")
    ] = None,
    delete: Annotated[
        list[str] | None,
        typer.Option("--delete", help="name of a setting to reset to its default; may be repeated"),
    ] = None,
    validate_only: Annotated[
        bool, typer.Option("--validate-only", help="check the change without making it")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Set or delete settings; all others stay."""
    with clear_errors():
        resource, changes = _resource(topic, broker, default, group), changes_from(settings, delete)
        if not changes:
            raise WrongUsage("nothing to change: give --set NAME=VALUE or --delete NAME")
        with connect(bootstrap) as admin:
            admin.incremental_alter_configs(changes, **resource, validate_only=validate_only)
        done = "can be changed (nothing was: --validate-only)" if validate_only else "changed"
        told = {
            **resource,
            "set": {change.name: change.value for change in changes if change.value is not None},
            "deleted": [change.name for change in changes if change.value is None],
            "validate_only": validate_only,
        }
        tell(f"{_title(topic, broker, group)}: {counted(len(changes), 'setting')} {done}.", told, as_json)


def changes_from(
    settings: list[str] | None,
    delete: list[str] | None,
    option: str = "--set",
    delete_option: str = "--delete",
) -> list[ConfigChange]:
    """The changes that `--set name=value` and `--delete name` ask for."""
    wanted = dict(pair(text, option, EXAMPLE) for text in settings or [])
    names = list(dict.fromkeys(delete or []))
    if both := sorted(wanted.keys() & set(names)):
        raise WrongUsage(f"{both[0]} is given to both {option} and {delete_option}: choose one")
    return changes_of(wanted, names)


def _resource(topic: str | None, broker: int | None, default: bool, group: str | None) -> dict[str, Any]:
    given: dict[str, Any] = {}
    if topic is not None:
        given["topic"] = topic
    if group is not None:
        given["group"] = group
    if broker is not None:
        given["broker"] = broker
    if default:
        given["all_brokers"] = True
    if len(given) != 1:
        raise WrongUsage("expected exactly one of --topic T, --broker N, --default, --group G")
    return given


def _title(topic: str | None, broker: int | None, group: str | None) -> str:
    if group is not None:
        return f"group {group}"
    return (
        f"topic {topic}" if topic is not None else f"broker {broker}" if broker is not None else "all brokers"
    )


def _row(entry: ConfigEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": "(hidden)" if entry.is_sensitive else entry.value,
        "set_for": SHOWN_SOURCES.get(entry.source, entry.source.name),
        "needs_restart": "yes" if entry.is_read_only else "no",
    }


def _in_full(entry: ConfigEntry) -> dict[str, Any]:
    synonyms = [{**one._asdict(), "source": one.source.name} for one in entry.synonyms]
    return {**entry._asdict(), "source": entry.source.name, "type": entry.type.name, "synonyms": synonyms}
