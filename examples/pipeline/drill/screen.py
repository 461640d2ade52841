"""The drill's last screen: what happened when, lag as a line, the verdict."""

from rich.panel import Panel
from rich.table import Table

from strandline.cli.console import out

from .plot import blocks, marks
from .timeline import Outcome

COLUMNS = 70


def final_screen(outcome: Outcome) -> None:
    """Print it."""
    out.print()
    out.print(Panel(_timeline(outcome), title="what happened", title_align="left", expand=False))
    out.print(Panel(_lines(outcome), title="lag over time", title_align="left", expand=False))
    border = "green" if outcome.good else "red"
    out.print(
        Panel(_verdict(outcome), title="verdict", title_align="left", border_style=border, expand=False)
    )
    told = "all checks passed" if outcome.good else "CHECKS FAILED"
    out.print(f"[bold]{told}[/] in {outcome.took_s:.0f} s")


def _grid() -> Table:
    return Table(box=None, show_header=False, pad_edge=False)


def _timeline(outcome: Outcome) -> Table:
    table = _grid()
    for number, event in enumerate(outcome.events):
        table.add_row(
            f"[dim]{chr(ord('a') + number)}[/]",
            f"[cyan]{event.at_s:6.1f} s[/]",
            f"[{event.color}]{event.what}[/]",
        )
    for each in outcome.recoveries:
        table.add_row(
            "",
            f"[bold]{each.took_s:6.1f} s[/]",
            f"until flights sent after {each.name} was killed were processed",
        )
    return table


def _lines(outcome: Outcome) -> Table:
    table = _grid()
    end_s = outcome.samples[-1].at_s if outcome.samples else 1.0
    lag, _ = outcome.panels()
    for name, line in lag.lines.items():
        most = max((value for _, value in line), default=0)
        table.add_row(name, blocks(line, end_s, COLUMNS), f"at most {most:,.0f} records")
    table.add_row("", f"[dim]{marks(outcome.events, end_s, COLUMNS)}[/]", f"[dim]{end_s:.0f} s[/]")
    return table


def _verdict(outcome: Outcome) -> Table:
    table = _grid()
    for what, held in outcome.checks().items():
        table.add_row("[green]✔[/]" if held else "[red]✘[/]", what)
    expected = outcome.expected
    told = (
        f"{outcome.flights:,} flights: {expected.never_left:,} never left, {expected.late:,} left after "
        f"their day; {outcome.unlisted_files} Parquet files of batches that were cut short are not listed"
    )
    table.add_row("", f"[dim]{told}[/]")
    return table
