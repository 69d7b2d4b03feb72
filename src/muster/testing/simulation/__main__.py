"""Replay one history, or look for a broken one: `python -m muster.testing.simulation --seed 7 [--count 100]`."""

from __future__ import annotations

import argparse
import logging
import sys

from muster.testing.simulation.history import play


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m muster.testing.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed to play")
    parser.add_argument("--count", type=int, default=1, help="how many seeds to play")
    parser.add_argument("--trace", action="store_true", help="print the whole trace")
    parser.add_argument("--log", action="store_true", help="show the house's own log")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO if args.log else logging.CRITICAL)
    for seed in range(args.seed, args.seed + args.count):
        report = play(seed)
        told = f"{report.clusters} clusters, {report.steps} steps, {report.crashes} crashes, digest {report.digest}"
        print(f"seed {seed}: {told}", flush=True)
        if args.trace:
            print("\n".join(report.trace))
        if report.broken:
            print(report.story())
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
