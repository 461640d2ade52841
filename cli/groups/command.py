"""`strandline groups`: consumer groups, their members and their lag.

Left to others: moving what a group has committed (reset.py).
"""

from typing import Annotated

import typer

from ...client.admin.descriptions import GroupDescription, MemberDescription
from ...client.admin.groups import MemberToRemove
from ...protocol.messages.offsets import LATEST
from ..completion import group_names, topic_names
from ..console import (
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
from ..reach import connect
from .reset import reset_offsets

Group = Annotated[str, typer.Argument(autocompletion=group_names)]

app = typer.Typer(
    no_args_is_help=True, help="List, describe, reset and delete consumer groups; remove members."
)


@app.command("list")
def list_(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """List the groups and their states."""
    with clear_errors(), connect(bootstrap) as admin:
        show([one._asdict() for one in admin.list_groups()], as_json)


@app.command()
def describe(group: Group, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
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
        show(rows, as_json, _title(described))


app.command("reset-offsets")(reset_offsets)


@app.command()
def members(group: Group, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """Show the members of a group, and which partitions each one reads.

    Of the consumer protocol (KIP-848) also what it shall read, and the epoch that it has come to.
    """
    with clear_errors(), connect(bootstrap) as admin:
        (described,) = admin.describe_groups([group])
        if described.state == "Dead":
            raise Failure(f"group {group} does not exist")
        rows: list[dict[str, object]] = [
            {
                "member": one.member_id,
                "instance": one.instance_id,
                "client": one.client_id,
                "host": one.host,
                "partitions": [str(each) for each in sorted(one.assignment)],
                **({} if described.is_classic else _progress(one)),
            }
            for one in sorted(described.members, key=lambda each: each.member_id)
        ]
        show(rows, as_json, _title(described))


def _progress(member: MemberDescription) -> dict[str, object]:
    """How far a member of the consumer protocol is on the way to what it shall read."""
    return {
        "target": [str(each) for each in sorted(member.target or ())],
        "epoch": member.epoch,
        "protocol": "classic" if member.is_classic else "consumer",
    }


def _title(group: GroupDescription) -> str:
    epochs = "" if group.is_classic else f"epoch {group.epoch}, assigned for {group.target_epoch}"
    return "  ".join(each for each in (group.group, group.state, group.protocol, epochs) if each)


@app.command("remove-member")
def remove_member(
    group: Group,
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
    group: Group,
    topic: Annotated[str, typer.Argument(autocompletion=topic_names)],
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
def delete(group: Group, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """Delete a group that has no members, with its committed offsets."""
    with clear_errors(), connect(bootstrap) as admin:
        admin.delete_groups([group])
        tell(f"Deleted group {group}.", {"group": group, "deleted": True}, as_json)
