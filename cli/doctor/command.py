"""`strandline doctor`: collects what can be seen of a cluster from here, judges it, and prints findings.

With --migration the cluster is Apache Kafka's, and the question is what would not work after its move to us.
Exit status 0: nothing is wrong (notes are no problem); 1: problems were found; 2: wrong usage.
Left to others: collecting (collect.py), judging (judge.py), both for a move (migration/).
"""

import asyncio
from dataclasses import replace
from math import isfinite
from pathlib import Path
from time import monotonic
from typing import Annotated

import typer

from ...client.config import ClientConfig, configure
from ..console import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    WrongUsage,
    clear_errors,
    counted,
    err,
    out,
    print_json,
)
from ..reach import own_cluster
from ..up_down import DEFAULT_DIRECTORY
from .collect import Wishes, collect
from .facts import Facts
from .findings import Finding, Fine, Severity
from .judge import judge, problems
from .migration.collect import Places, collect_migration
from .migration.judge import judge_migration

BeforeAMove = Annotated[
    bool,
    typer.Option(
        "--migration", help="of a cluster of Apache Kafka: what would not work after its move to Strandline"
    ),
]
ConfigFiles = Annotated[
    list[Path] | None,
    typer.Option("--config", help="with --migration: a server.properties to look into, too; may be repeated"),
]
LogDirectories = Annotated[
    list[Path] | None,
    typer.Option("--log-dir", help="with --migration: a log directory to look into, too; may be repeated"),
]
COLOURS = {Severity.CRITICAL: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}


def doctor(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    zookeeper: Annotated[
        str | None,
        typer.Option("--zookeeper", "-z", help="host:port of ZooKeeper (default: as the brokers name it)"),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, max=60, help="seconds to wait for any single answer")
    ] = 3.0,
    watch: Annotated[
        float,
        typer.Option(
            "--watch", min=0, max=600, help="seconds to watch groups that seem to stand still; 0: not at all"
        ),
    ] = 6.0,
    dir: Annotated[
        Path, typer.Option("--dir", "-d", help="directory of a cluster of strandline up, if it is that one")
    ] = DEFAULT_DIRECTORY,
    migration: BeforeAMove = False,
    config: ConfigFiles = None,
    log_dir: LogDirectories = None,
    as_json: AsJson = False,
) -> None:
    """Find out what is wrong with a cluster, seen from here, and what to do about it."""
    with clear_errors():
        if (config or log_dir) and not migration:
            raise WrongUsage("--config and --log-dir go with --migration")
        for option, seconds in (("--timeout", timeout), ("--watch", watch)):
            if not isfinite(seconds):
                raise WrongUsage(f"{option} {seconds}: expected a number of seconds")
        own = own_cluster()
        if bootstrap == DEFAULT_BOOTSTRAP and own is not None and dir == DEFAULT_DIRECTORY:
            bootstrap = own.bootstrap  # it may have been given other ports; whether it runs is the question
        places = tuple(configure(ClientConfig, bootstrap, {}).addresses)
        began = monotonic()
        wishes = Wishes(places, timeout, 0.0 if migration else watch, zookeeper, dir)
        with err.status("asking the brokers"):
            if migration:
                facts, findings, fine = _before_a_move(
                    wishes, Places(tuple(config or ()), tuple(log_dir or ()))
                )
            else:
                facts, fine = asyncio.run(collect(wishes)), []
                findings = judge(facts)
        took_s = monotonic() - began
        if as_json:
            print_json(document(facts, findings, took_s, fine if migration else None))
        else:
            show(facts, findings, took_s, fine)
        if problems(findings):
            raise typer.Exit(1)


def _before_a_move(wishes: Wishes, places: Places) -> tuple[Facts, list[Finding], list[Fine]]:
    seen = asyncio.run(collect_migration(wishes, places))
    findings, fine = judge_migration(seen)
    cluster = replace(seen.cluster, not_seen=(*seen.cluster.not_seen, *seen.not_seen))
    return cluster, findings, fine


def document(
    facts: Facts, findings: list[Finding], took_s: float, fine: list[Fine] | None = None
) -> dict[str, object]:
    """The result for --json; `fine` is told where it was asked for."""
    return {
        "healthy": not problems(findings),
        "findings": [finding.as_dict() for finding in findings],
        **({} if fine is None else {"fine": [{"check": one.check, "text": one.text} for one in fine]}),
        "checked": _counts(facts),
        "clocks": {
            str(id): {
                "ahead_ms": round(one.clock.ahead_ms, 1),
                "plus_minus_ms": round(one.clock.plus_minus_ms, 1),
            }
            for id, one in facts.brokers.items()
            if one.clock is not None
        },
        "not_checked": list(facts.not_seen),
        "seconds": round(took_s, 2),
    }


def _counts(facts: Facts) -> dict[str, int]:
    return {
        "brokers": len(facts.live),
        "topics": len(facts.topics),
        "partitions": len(facts.partitions()),
        "groups": len(facts.groups),
        "zookeeper_servers": len(facts.zookeeper.servers) if facts.zookeeper else 0,
    }


def show(facts: Facts, findings: list[Finding], took_s: float, fine: list[Fine] | None = None) -> None:
    """Print findings for people, the worst first, each with its remedy, and then what is fine."""
    for finding in findings:
        out.print(f"[{COLOURS[finding.severity]}]{finding.severity.value:<8}[/]", end="  ", soft_wrap=True)
        out.print(finding.problem, markup=False, soft_wrap=True)
        for line in finding.because:
            out.print(f"{'':10}{line}", markup=False, soft_wrap=True, style="dim")
        out.print(f"{'':10}do: {finding.remedy}", markup=False, soft_wrap=True)
    for one in fine or ():
        out.print(f"[green]{'fine':<8}[/]", end="  ", soft_wrap=True)
        out.print(one.text, markup=False, soft_wrap=True)
    for line in facts.not_seen:
        out.print(f"not checked: {line}", markup=False, soft_wrap=True)
    counts = _counts(facts)
    seen = ", ".join(
        counted(counts[key], noun)
        for key, noun in (("brokers", "broker"), ("topics", "topic"), ("partitions", "partition"),
                          ("groups", "group"), ("zookeeper_servers", "ZooKeeper server"))
    )  # fmt: skip
    wrong = problems(findings)
    verdict = counted(len(wrong), "problem") if wrong else "nothing is wrong"
    out.print(f"{verdict}; checked {seen} in {took_s:.1f} s", markup=False, soft_wrap=True)
