"""`strandline groups`: consumer groups, their members and their lag."""

from typing import Annotated

import typer

from ..base.types import TopicPartition
from ..client.admin.groups import MemberToRemove
from ..client.sync import Admin
from ..protocol.messages.offsets import EARLIEST, LATEST
from .console import (
    BRIEFLY_MS,
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    Failure,
    WrongUsage,
    clear_errors,
    show,
    tell,
)
from .reach import connect

app = typer.Typer(
    no_args_is_help=True, help="List, describe, reset and delete consumer groups; remove members."
)


@app.command("list")
def list_(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """List the groups and their states."""
    with clear_errors(), connect(bootstrap) as admin:
        show([one._asdict() for one in admin.list_groups()], as_json)


@app.command()
def describe(group: str, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """Show the committed offset, lag and member of each partition."""
    with clear_errors(), connect(bootstrap) as admin:
        (described,) = admin.describe_groups([group])
        if described.state == "Dead":
            raise Failure(f"group {group} does not exist")
        committed = admin.list_group_offsets(group)
        readers = {partition: one for one in described.members for partition in one.assignment}
        partitions = sorted({*committed, *readers})
        asked = dict.fromkeys(partitions, LATEST)
        ends = admin.list_known_offsets(asked, timeout_ms=BRIEFLY_MS) if asked else {}
        rows: list[dict[str, object]] = []
        for partition in partitions:
            end, mark, reader = ends.get(partition), committed.get(partition), readers.get(partition)
            rows.append(
                {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "committed": mark.offset if mark else None,
                    "end": end.offset if end else None,
                    "lag": end.offset - mark.offset if end and mark else None,
                    "member": reader.member_id if reader else None,
                    "client": f"{reader.client_id} {reader.host}" if reader else None,
                }
            )
        show(rows, as_json, f"{group}  {described.state}  {described.protocol}".rstrip())


@app.command("reset-offsets")
def reset_offsets(
    group: str,
    topic: str,
    to: Annotated[
        str, typer.Option(help="new position: earliest, latest, an offset, or @TIME in ms since 1970")
    ],
    partition: Annotated[int | None, typer.Option(min=0, help="only this partition")] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Set the committed offsets of a group that has no members."""
    with clear_errors():
        offset, time = _goal(to)
        with connect(bootstrap) as admin:
            partitions = _partitions(admin, topic, partition)
            first, end = (admin.list_offsets(dict.fromkeys(partitions, at)) for at in (EARLIEST, LATEST))
            if offset is not None:
                goal = dict.fromkeys(partitions, offset)
            else:
                found = admin.list_offsets(dict.fromkeys(partitions, time))
                goal = {p: at.offset if at.offset >= 0 else end[p].offset for p, at in found.items()}
            for p, at in goal.items():
                if not first[p].offset <= at <= end[p].offset:
                    raise Failure(
                        f"offset {at} is out of range: {p} has {first[p].offset} to {end[p].offset}"
                    )
            admin.alter_group_offsets(group, goal)
        rows = [{"topic": p.topic, "partition": p.partition, "offset": at} for p, at in goal.items()]
        show(rows, as_json, group)


@app.command("remove-member")
def remove_member(
    group: str,
    member: Annotated[str | None, typer.Option("--member-id", help="the member that is to leave")] = None,
    instance: Annotated[
        str | None, typer.Option("--instance-id", help="or a static member, by its group.instance.id")
    ] = None,
    everyone: Annotated[bool, typer.Option("--all", help="or all members")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Let a member leave the group, above all a static one that is gone. Who is alive joins again.

    Brokers refuse it for members of the consumer protocol (KIP-848), as Kafka's do.
    """
    with clear_errors():
        named = [one for one in (member, instance) if one is not None]
        if len(named) + everyone != 1:
            raise WrongUsage("expected one of --member-id, --instance-id and --all")
        with connect(bootstrap) as admin:
            if member is not None:
                admin.remove_group_members(group, [MemberToRemove(member)])
            elif instance is not None:
                admin.remove_group_members(group, [MemberToRemove(instance_id=instance)])
            else:
                (described,) = admin.describe_groups([group])
                if described.state == "Dead":
                    raise Failure(f"group {group} does not exist")
                admin.remove_group_members(group)
        who = named[0] if named else "all members"
        tell(f"Removed {who} from group {group}.", {"group": group, "removed": who}, as_json)


@app.command("delete-offsets")
def delete_offsets(
    group: str,
    topic: str,
    partition: Annotated[int | None, typer.Option(min=0, help="only this partition")] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Forget what a group has committed for a topic that none of its members reads."""
    with clear_errors(), connect(bootstrap) as admin:
        committed = admin.list_group_offsets(group)
        gone = [p for p in sorted(committed) if p.topic == topic and partition in (None, p.partition)]
        if not gone:
            where = topic if partition is None else f"{topic}-{partition}"
            raise Failure(f"group {group} has committed nothing for {where}")
        admin.delete_group_offsets(group, gone)
        rows = [{"topic": p.topic, "partition": p.partition, "was": committed[p].offset} for p in gone]
        show(rows, as_json, group)


@app.command()
def delete(group: str, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """Delete a group that has no members, with its committed offsets."""
    with clear_errors(), connect(bootstrap) as admin:
        admin.delete_groups([group])
        tell(f"Deleted group {group}.", {"group": group, "deleted": True}, as_json)


def _partitions(admin: Admin, topic: str, wanted: int | None) -> list[TopicPartition]:
    (described,) = admin.describe_topics([topic])
    numbers = [one.partition for one in described.partitions]
    if wanted is not None and wanted not in numbers:
        raise Failure(f"{topic} has no partition {wanted}: expected {numbers[0]} to {numbers[-1]}")
    return [TopicPartition(topic, number) for number in numbers if wanted in (None, number)]


def _goal(text: str) -> tuple[int | None, int]:
    """An offset; or None, and the timestamp to look up."""
    named = {"earliest": EARLIEST, "latest": LATEST}
    if text in named:
        return None, named[text]
    if text.isdecimal():
        return int(text), LATEST
    if text.startswith("@") and text[1:].isdecimal():
        return None, int(text[1:])
    raise WrongUsage(f"--to {text}: expected earliest, latest, an offset, or @TIME in ms since 1970")
