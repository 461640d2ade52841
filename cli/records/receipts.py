"""Receipts of `strandline produce --receipts`: where each record is, and who had it when it was acknowledged.

Left to others: sending (produce.py), what the brokers tell (client/results.py).
"""

from collections.abc import Callable
from typing import Annotated

import typer

from ...client.results import Receipt
from ..console import out, print_json

Printer = Callable[[Receipt], None]

Receipts = Annotated[
    bool,
    typer.Option("--receipts", help="print where each record is, and who had it when it was acknowledged"),
]


def printer(as_json: bool) -> Printer:
    """Prints each receipt on a line of its own, with who had the record if the brokers tell."""

    def show(receipt: Receipt) -> None:
        durability = receipt.durability
        if as_json:
            held = {} if durability is None else {"durability": durability.as_dict()}
            print_json({**receipt._asdict(), **held})
        else:
            place = f"{receipt.topic}-{receipt.partition}@{receipt.offset}"
            line = place if durability is None else f"{place}: {durability}"
            out.print(line, markup=False, soft_wrap=True)

    return show


def silent(receipt: Receipt) -> None:
    """Prints nothing."""
