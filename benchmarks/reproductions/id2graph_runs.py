"""What both commands of the ID2Graph reproduction share: options, the loop over trials, the summary over seeds."""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from id2graph_sets import MODELS, PAPER_SETS, SETS
from id2graph_trial import WAYS, Trial, attacks_of, run
from resumable import Results

from treetap import terminal
from treetap.commands.jobs import progress_view
from treetap.errors import BadInput, TreetapError

SEEDS = (42, 43, 44, 45, 46)
RESULTS = Path("runs/id2graph.jsonl")


def parser_of(doc: str, sets: Sequence[str]) -> argparse.ArgumentParser:
    """The options that both commands have."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sets", nargs="+", choices=PAPER_SETS, default=list(sets), metavar="SET", help=_of(PAPER_SETS)
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), metavar="MODEL", help=_of(MODELS))
    parser.add_argument("--seeds", nargs="+", type=_seed, default=list(SEEDS), metavar="N", help="default: 42 to 46")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE", help=f"default: {RESULTS}")
    parser.add_argument("--show", action="store_true", help="run nothing, show what the results file holds")
    parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON")
    return parser


def collect(path: Path, trials: Sequence[Trial], *, only_stored: bool) -> list[dict[str, Any]]:
    """The results of the trials, in order: those in the file, the others run now unless `only_stored`."""
    results = Results(path)
    missing = [] if only_stored else [trial for trial in trials if _stored(results, trial) is None]
    if missing:
        done = len(trials) - len(missing)
        terminal.err.print(f"{len(trials)} trials, {done} of them in {path} already", highlight=False)
        with progress_view.steps("trials") as progress:
            for number, trial in enumerate(missing):
                progress(number, len(missing), " ".join(f"{value}" for value in vars(trial).values() if value))
                results.add(run(trial))
    found = [_stored(results, trial) for trial in trials]
    return [result for result in found if result is not None]


def summary(results: Sequence[dict[str, Any]], attack: str) -> tuple[float, float | None] | None:
    """Mean of an attack's V-measure over the results and its standard deviation, if there are several; None if none."""
    values = [each["attacks"][attack]["v_measure"] for each in results if attack in each["attacks"]]
    if not values:
        return None
    return statistics.mean(values), statistics.stdev(values) if len(values) > 1 else None


def ended(main: Callable[[], int]) -> None:
    """Run a command to its end: exit status 2 for bad input, 1 for a failure, 130 for Ctrl-C, never a traceback."""
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        terminal.err.print("stopped; the same command goes on with the trials that are missing", highlight=False)
        sys.exit(130)
    except TreetapError as failure:
        terminal.err.print(f"{Path(sys.argv[0]).name}: {failure}", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2 if isinstance(failure, BadInput) else 1)


def way(name: str, over: str) -> str:
    """How a set's models are trained: as asked, or the set's own way under `auto`."""
    return SETS[name].over if over == "auto" else over


def add_over(parser: argparse.ArgumentParser, default: str) -> None:
    """The option that says how models are trained."""
    parser.add_argument(
        "--over",
        choices=("auto", *WAYS),
        default=default,
        help=f"train over sockets or on the joined table; auto: sockets for the small sets (default: {default})",
    )


def _stored(results: Results, trial: Trial) -> dict[str, Any] | None:
    found = results.get(vars(trial))
    return found if found is not None and set(attacks_of(trial)) <= set(found["attacks"]) else None


def _seed(text: str) -> int:
    if not text.isdigit() or int(text) >= 1 << 31:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0")
    return int(text)


def _of(names: Sequence[str] | dict[str, Any]) -> str:
    return f"of {', '.join(names)}"
