"""The first hour on a bare machine: the README's command, then the tutorial, in a container, with a clock.

    python tests/containers/first_hour.py [--base IMAGE]

Prints the seconds of `make demo`, of each block of docs/tutorial.md and of both together. Status 1 if a block does not
do what the page says, or if a limit is passed: three minutes to the first verdict, ten to that on one's own table,
twenty until two processes have trained a model. Reading is not counted.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys

from tests.containers.bare_demo import BASE, sources

LIMIT_S = 1800
STEPS = """
set -e
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq && apt-get install -y -qq --no-install-recommends make git >/dev/null
mkdir /src && tar -x -C /src && cd /src
started=$EPOCHREALTIME
make demo
echo "DEMO $started $EPOCHREALTIME"
. .venv/bin/activate
python tests/documents.py docs/tutorial.md
"""
#: Moment → the block after which it is reached, by a part of its first line, and seconds.
MOMENTS = {"own table judged": ("treetap experiment exp.toml", 600), "two processes": ("sh federation/start.sh", 1200)}


def main() -> None:
    """Run it once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default=BASE)
    given = parser.parse_args()
    command = ["docker", "run", "--rm", "--interactive", "--network", "host", given.base, "bash", "-c", STEPS]
    ended = subprocess.run(
        ["timeout", "--kill-after=20", str(LIMIT_S), *command], input=sources(), stdout=-1, stderr=-2, check=False
    )
    output = ended.stdout.decode(errors="replace")
    print(output)
    if ended.returncode:
        sys.exit(f"ended with status {ended.returncode}")
    began, until = map(float, re.findall(r"DEMO ([\d.]+) ([\d.]+)", output)[0])
    reached = {"first verdict": (until - began, 180.0)}
    since = until - began
    for seconds, line in re.findall(r"^ *([\d.]+) s  line \d+: (.*)$", output, re.M):
        since += float(seconds)
        for moment, (part, limit) in MOMENTS.items():
            if part in line and moment not in reached:
                reached[moment] = (since, limit)
    missing = [moment for moment in MOMENTS if moment not in reached]
    late = [moment for moment, (seconds, limit) in reached.items() if seconds > limit]
    for moment, (seconds, limit) in reached.items():
        print(f"{moment}: {seconds:.0f} s of {limit:.0f}")
    sys.exit(f"not reached: {missing}; too late: {late}" if missing or late else 0)


if __name__ == "__main__":
    main()
