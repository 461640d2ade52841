"""The demo's last screen: timeline of the failover, ISR, the DataFrame, the verdict."""

from collections.abc import Mapping, Sequence

from rich.columns import Columns
from rich.console import Group
from rich.panel import Panel
from rich.table import Table

from ..console import out
from .failover import Accident, compact

SHOWN_CARRIERS = 8


def final_screen(
    accident: Accident,
    checks: Mapping[str, bool],
    carriers: Sequence[tuple[str, int, float]],
    took_s: float,
) -> None:
    """Print it."""
    good = all(checks.values())
    out.print()
    out.print(Panel(_timeline(accident), title="failover", title_align="left", expand=False))
    panels = [
        Panel(_verdict(checks), title="verdict", title_align="left", border_style="green" if good else "red")
    ]
    if carriers:
        panels.insert(0, Panel(_delays(carriers), title="Spark: delays by carrier", title_align="left"))
    out.print(Columns(panels))
    out.print(f"[bold]{'all checks passed' if good else 'CHECKS FAILED'}[/] in {took_s:.0f} s")


def _timeline(accident: Accident) -> Group:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(justify="right", style="cyan")
    table.add_column(justify="right", style="dim")
    table.add_column()
    over = (accident.gaps.over_at, "first acknowledgement after the longest gap, from the new leader")
    for at_s, what in sorted([*accident.events, over]):
        since = f"kill {at_s - accident.killed_at:+.3f} s"
        table.add_row(f"{at_s:.3f} s", since, what)
    isr = Table(box=None, show_header=False, pad_edge=False)
    for when in ("before", "during", "after"):
        isr.add_row(f"ISR {when}", compact(accident.isr.get(when, {}).values()))
    gaps = (
        f"longest gap between two acknowledgements: [bold]{accident.gaps.struck_s:.3f} s[/] on "
        f"partitions that lost their leader, {accident.gaps.all_s:.3f} s over all partitions"
    )
    return Group(table, "", isr, "", gaps)


def _delays(carriers: Sequence[tuple[str, int, float]]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("carrier")
    table.add_column("flights", justify="right")
    table.add_column("mean delay", justify="right")
    for carrier, count, delay in carriers[:SHOWN_CARRIERS]:
        table.add_row(carrier, f"{count:,}", f"{delay:.1f} min")
    return table


def _verdict(checks: Mapping[str, bool]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    for what, held in checks.items():
        table.add_row("[green]✔[/]" if held else "[red]✘[/]", what)
    return table
