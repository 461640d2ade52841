"""`strandline add` and `remove`: who belongs to the cluster that `up` started.

Left to others: how a broker joins and leaves (`local/roster.py`), moving replicas (`reassign/`).
"""

from typing import Annotated

import typer

from ..local.members import NoSuchMember
from ..local.roster import IDS_MAX, StillHolds
from ..local.roster import add as join
from ..local.roster import remove as take_out
from .completion import member_names
from .console import AsJson, Failure, WrongUsage, clear_errors, err, pair, tell
from .up_down import DEFAULT_DIRECTORY, Directory, naming


def add(
    id: Annotated[
        int | None,
        typer.Argument(metavar="[N]", min=1, max=IDS_MAX, help="its id (default: one more than the highest)"),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=55_000,
            show_default=False,
            help="its port for clients (default: in the row of the others)",
        ),
    ] = None,
    override: Annotated[
        list[str] | None,
        typer.Option("--override", help="name=value for this broker, e.g. broker.rack=b; may be repeated"),
    ] = None,
    dir: Directory = DEFAULT_DIRECTORY,
    as_json: AsJson = False,
) -> None:
    """Let one more broker join the cluster of `up`, with the settings that the others share.

    It holds nothing before replicas are moved to it: `strandline reassign --generate` proposes which.
    """
    with clear_errors():
        options = naming(dir)
        settings = dict(pair(text, "--override", "broker.rack=b") for text in override or [])
        with err.status("starting a broker"):
            broker = join(dir, id, port=port, settings=settings, options=options)
        tell(
            f"Broker {broker.id} at {broker.address} belongs to the cluster, and holds nothing yet. Move "
            "replicas to it: strandline reassign --generate > plan.json, then strandline reassign --execute "
            "plan.json --wait",
            {"id": broker.id, "address": broker.address, "web": broker.page},
            as_json,
        )


def remove(
    name: Annotated[str, typer.Argument(metavar="N", help="the id of a broker", autocompletion=member_names)],
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="also if it holds replicas: their partitions lack one from then on, or are lost"
        ),
    ] = False,
    dir: Directory = DEFAULT_DIRECTORY,
    as_json: AsJson = False,
) -> None:
    """Take a broker out of the cluster of `up`: a controlled shutdown, and `up` and `start` know it no more.

    It must hold no replica: `strandline reassign --generate --without N` proposes where they go. Its
    directory is kept beside the others, under another name.
    """
    with clear_errors():
        options = naming(dir)
        try:
            with err.status(f"removing broker {name}"):
                kept = take_out(dir, name, force=force, options=options)
        except NoSuchMember as error:
            raise WrongUsage(str(error)) from None
        except StillHolds as error:
            raise Failure(
                f"{error}: move them to the others with strandline reassign --generate --without {name} > "
                "plan.json and strandline reassign --execute plan.json --wait; or give them up with --force"
            ) from None
        tell(
            f"Broker {name} removed. Its directory is kept as {kept}: delete it when nobody needs it.",
            {"removed": name, "kept": str(kept)},
            as_json,
        )
