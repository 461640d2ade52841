"""`strandline broker`: one broker in the foreground. SIGTERM and SIGINT are a controlled shutdown.

It parses its own arguments, so that a broker starts without what only people at a terminal need. Ports for
clients are bound before the rest of the broker is loaded, which takes the most time of a start.
Exit status: 0 stopped; 1 environment (port, lock, ZooKeeper, disk) or broken invariant; 2 configuration.
"""

import argparse
import asyncio
import gc
import os
import signal
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import uvloop

from ..broker.config.files import LoadedConfig, load
from ..broker.errors import BrokerConfigError, StartFailed, StorageLost
from ..broker.network.early_listeners import Doors, open_doors
from .log_format import to_stderr
from .watchdog import Watchdog

HELP = "Run one broker in the foreground."


def main(arguments: Sequence[str]) -> int:
    """Run a broker until it is told to stop. Returns the exit status."""
    parser = argparse.ArgumentParser("strandline broker", description=HELP)
    parser.add_argument("--config", metavar="FILE", type=Path, help="server.properties, with Kafka's names")
    parser.add_argument(
        "--override",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="set an option; overrides the file and the environment",
    )
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    options = parser.parse_args(list(arguments))
    try:
        loaded = _load(options.config, options.override)
    except BrokerConfigError as error:
        for sentence in error.sentences:
            _say(sentence)
        return 2
    to_stderr(options.log_level)
    for warning in loaded.warnings:
        _say(f"warning: {warning}")
    doors = open_doors(loaded.config)
    try:
        uvloop.run(_run(loaded, doors))
    except (StartFailed, StorageLost) as error:
        _say(str(error))
        return 1
    except AssertionError as error:
        _say(f"stopped on a broken invariant (a bug, please report it): {error}")
        return 1
    return 0


def _load(path: Path | None, overrides: list[str]) -> LoadedConfig:
    text = ""
    if path is not None:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BrokerConfigError(f"cannot read --config {path}: {error}") from None
    return load(text, os.environ, overrides, path=str(path))


async def _run(loaded: LoadedConfig, doors: Doors) -> None:
    from ..broker.node import serve
    from ..broker.replicas.per_directory import threads_for

    gc.freeze()  # modules and classes live forever: the collector need not scan them
    gc.enable()
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for sign in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sign, stop.set)
    threads = threads_for(len(loaded.config.directories))
    loop.set_default_executor(ThreadPoolExecutor(threads, thread_name_prefix="disk"))
    session_s = loaded.config.zookeeper.session_timeout_ms / 1000
    with Watchdog(loop, limit_s=2 * session_s):
        await serve(loaded.config, stop, doors)


def _say(sentence: str) -> None:
    sys.stderr.write(f"strandline: {sentence}\n")
