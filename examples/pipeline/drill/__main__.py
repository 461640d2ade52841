"""`python -m examples.pipeline.drill`: exit status 0 only if every check held."""

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from strandline.base.extras import ExtraMissing
from strandline.cli.console import Failure, err, out
from strandline.local.embedded_zookeeper import EnvironmentProblem

from ..flights import YEAR
from .plot import svg
from .run import Drill
from .screen import final_screen

DAYS_MIN = 10


def main() -> int:
    """Run it, show it, keep its picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=YEAR, help=f"of flights, at least {DAYS_MIN}")
    parser.add_argument("--days-per-second", type=float, default=4.0)
    parser.add_argument("--outputs", default="parquet,topic")
    parser.add_argument("--plot", type=Path, help="where the picture goes")
    parser.add_argument("--dir", type=Path, help="for data and logs, kept afterwards (default: temporary)")
    given = parser.parse_args()
    if given.days < DAYS_MIN:
        parser.error(
            f"--days {given.days}: each kill wants flights before it and after it; give {DAYS_MIN} or more"
        )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # leaves nothing running then either
    directory = (given.dir or Path(tempfile.mkdtemp(prefix="strandline-pipeline-"))).resolve()
    drill = Drill(directory, given.days, given.days_per_second, given.outputs.split(","))
    good = False
    try:
        final_screen(drill.run())
        good = drill.outcome.good
    except* (Failure, EnvironmentProblem, ExtraMissing) as failed:
        for trouble in leaves(failed):
            err.print(str(trouble), style="red")
    if drill.outcome.samples and given.plot:
        given.plot.parent.mkdir(parents=True, exist_ok=True)
        title = f"{drill.outcome.flights:,} flights in {drill.outcome.took_s:.0f} s"
        given.plot.write_text(svg(title, drill.outcome.panels(), drill.outcome.events))
        out.print(f"the picture of it: {given.plot}")
    if good and not given.dir:
        shutil.rmtree(directory)
    else:
        out.print(f"data and logs: {directory}")
    return 0 if good else 1


def leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    """The exceptions themselves."""
    for each in group.exceptions:
        if isinstance(each, BaseExceptionGroup):
            yield from leaves(each)
        else:
            yield each


if __name__ == "__main__":
    sys.exit(main())
