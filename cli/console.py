"""What all commands share: output, errors, and common options."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn

import structlog
import typer
from rich.console import Console
from rich.table import Table

from ..base.extras import ExtraMissing
from ..client.config import ConfigError
from ..client.producer.producer import BufferExhausted
from ..local.embedded_zookeeper import EnvironmentProblem
from ..protocol.errors import ApiError, NetworkException

DEFAULT_BOOTSTRAP = "localhost:9092,localhost:9093,localhost:9094"

PIPE_WIDTH = 1000
"""The width of tables that go to a file or a program, so that nothing is cut off."""

PATIENCE: dict[str, Any] = {"default_api_timeout_ms": 15_000, "request_timeout_ms": 10_000}
"""The longest that a person should wait for an answer."""

BRIEFLY_MS = 3_000
"""How long to wait for what only one broker knows; then the rest is shown without it."""


def _console(stream: Any, stderr: bool) -> Console:
    return Console(stderr=stderr, highlight=False, width=None if stream.isatty() else PIPE_WIDTH)


out, err = _console(sys.stdout, False), _console(sys.stderr, True)

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "--bootstrap-servers",
        "-b",
        envvar="BOOTSTRAP_SERVERS",
        help="host:port of one or more brokers, separated by commas",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON instead of a table")]


class Failure(Exception):
    """The command could not do what it was asked. One sentence; exit status 1."""


class WrongUsage(Exception):
    """The arguments make no sense. One sentence; exit status 2."""


@contextmanager
def clear_errors() -> Iterator[None]:
    """Turn expected errors into one sentence on stderr and an exit status, never a traceback."""
    try:
        yield
    except (WrongUsage, ConfigError) as error:
        fail(str(error), 2)
    except (Failure, EnvironmentProblem, ExtraMissing) as error:
        fail(str(error), 1)
    except NetworkException as error:
        fail(_unreachable(error), 1)
    except BufferExhausted as error:
        fail(f"the brokers are too slow for this input: {error}", 1)
    except ApiError as error:
        fail(str(error), 1)
    except BrokenPipeError:  # the reader of our output has gone: not a failure
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
    except OSError as error:
        if error.filename is not None:
            fail(f"{error.filename}: {error.strerror}", 1)
        fail(_unreachable(error), 1)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _unreachable(error: Exception) -> str:
    return f"no broker answers: {error}. Is the cluster running (strandline up)? Is --bootstrap-server right?"


def warnings_only() -> None:
    """Show only warnings of the library's log, on stderr."""
    structlog.configure(
        processors=[structlog.processors.add_log_level, structlog.dev.ConsoleRenderer(colors=False)],
        wrapper_class=structlog.make_filtering_bound_logger(30),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
    )


def pair(text: str, option: str, example: str) -> tuple[str, str]:
    """The two halves of `name=value`."""
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise WrongUsage(f"{option} {text}: expected name=value, e.g. {example}")
    return name.strip(), value.strip()


def counted(number: int, noun: str) -> str:
    """A number with its noun."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def tell(sentence: str, value: Any, as_json: bool) -> None:
    """Print what was done: a sentence for people, a value for programs."""
    if as_json:
        print_json(value)
    else:
        out.print(sentence, markup=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """Print JSON, laid out for a terminal, one line for a program."""
    if out.is_terminal:
        out.print_json(json.dumps(value, default=str))
    else:
        sys.stdout.write(json.dumps(value, default=str) + "\n")
        sys.stdout.flush()


def fail(sentence: str, status: int) -> NoReturn:
    """Print what is wrong, and exit."""
    err.print(f"strandline: {sentence}", markup=False, soft_wrap=True)
    raise typer.Exit(status)


def show(rows: list[dict[str, Any]], as_json: bool, title: str | None = None) -> None:
    """Print rows as a table, or as JSON."""
    if as_json:
        print_json(rows)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in rows[0] if rows else ():
        table.add_column(name.replace("_", " "), justify="right" if _numeric(rows, name) else "left")
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    if title:
        out.print(title, style="bold", markup=False)
    out.print(table if rows else "[dim](none)[/dim]")


def _numeric(rows: list[dict[str, Any]], name: str) -> bool:
    return all(isinstance(row[name], int | None) for row in rows)


def _cell(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return "-" if value is None else str(value)
