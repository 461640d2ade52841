"""Random histories of a consumer group, as many as are wanted."""

import argparse

from tests.simulation.group_copies import CopyingWorld
from tests.simulation.group_histories import STEPS, GroupWorld


def main() -> None:
    """Histories from the command line."""
    parser = argparse.ArgumentParser(description="Random histories of a consumer group.")
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--copies", action="store_true", help="members copy in transactions")
    parser.add_argument("--trace", type=int, default=0, help="lines of the trace that are shown")
    given = parser.parse_args()
    for seed in range(given.seed, given.seed + given.seeds):
        world = (CopyingWorld if given.copies else GroupWorld)(seed)
        told = "; ".join(world.run(given.steps)[:2]) or "as it must be"
        print(
            f"seed {seed}: {world.born} members, {world.loop.now:.0f} s of virtual time: {told}", flush=True
        )
        if given.trace:
            print(*world.trace.lines[-given.trace :], sep="\n")


if __name__ == "__main__":
    main()
