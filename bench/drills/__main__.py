"""`make drills`: does each drill of docs/drills.md on a cluster of its own, and draws it into docs/drills/.

python -m bench.drills                 all of them, three minutes
python -m bench.drills --only 1,2      some
python -m bench.drills --into DIR      elsewhere
"""

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from strandline.local.cluster import LocalCluster, find
from strandline.local.owned import temporary_prefix
from strandline.testing.history import judge
from strandline.testing.workload import Workload

from .page import PICTURES, sections
from .picture import longest_gap_s, svg
from .run import CREATE, DRILLS, PARTITIONS, TOPIC, Shell, done, mend


def main() -> None:
    """Do them, and say for each what it came to. Exit status 1 if anything acknowledged was lost."""
    parser = argparse.ArgumentParser(prog="python -m bench.drills", description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="numbers of drills, separated by commas", default="")
    parser.add_argument("--into", type=Path, default=PICTURES, help="directory of the pictures")
    asked = parser.parse_args()
    wanted = {int(number) for number in asked.only.split(",") if number}
    asked.into.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # no broker outlives it
    with tempfile.TemporaryDirectory(prefix=temporary_prefix()) as folder:
        home = Path(folder)
        cluster = LocalCluster(home / ".strandline", 3, owned=True)
        try:
            cluster.start()
            cluster.save()
            drill_all(home, wanted, asked.into)
        finally:
            cluster.kill()
            find(home / ".strandline").kill()  # those that the commands have started


def drill_all(home: Path, wanted: set[int], into: Path) -> None:
    """Do the drills with these numbers (none: all). Raises SystemExit if anything acknowledged was lost."""
    shell = Shell(home)
    shell.run(CREATE)
    shell.close()
    pages = {section.number: section for section in sections()}
    with Workload(find(home / ".strandline").bootstrap, TOPIC, PARTITIONS) as load:
        for drill in DRILLS:
            if wanted and drill.number not in wanted:
                continue
            mend(home)
            section = pages[drill.number]
            story = done(drill, section.title, section.commands, home, load)
            picture = into / f"{drill.name}.svg"
            picture.write_text(svg(story))
            gaps = ", ".join(f"{q} {longest_gap_s(story, q):.2f} s" for q in story.acknowledged)
            print(
                f"{picture.name}: {picture.stat().st_size:,} bytes; longest without one: {gaps}", flush=True
            )
        mend(home)
    report = judge(load.finish())
    if load.refused or load.troubles or not report.good:
        raise SystemExit(f"{report}\n{load.refused[:3]}\n{load.troubles[:3]}")
    print(f"{load.acknowledged:,} records acknowledged, none lost")


if __name__ == "__main__":
    main()
