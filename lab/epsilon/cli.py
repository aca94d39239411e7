"""`treetap measure-epsilon`: lower bounds of ε by canaries, beside what mechanisms claim."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treetap.commands.options import Json, needs

if TYPE_CHECKING:
    from treetap.lab.epsilon.measuring import MeasureFile, Result

_WAYS = {
    "runs": "repeated runs",
    "gaussian": "repeated runs, noise taken for Gaussian",
    "one_run": "one run",
}


def measure_epsilon(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Mechanisms to measure: tables [[measure]].")],
    as_json: Json = False,
    workdir: Annotated[
        Path | None,
        typer.Option(help="Finished runs and epsilon.json; without it in runs/FILE."),
    ] = None,
    details: Annotated[
        bool,
        typer.Option("--details", help="Also print each way to a bound, with the rates behind it, and the modules."),
    ] = False,
) -> None:
    """Measure by canaries how private noise is at best: a lower bound of ε, beside what is claimed.

    The party's own code runs on two neighbours, of which one has a canary of drawn signs and places. An attacker, who
    has measured how the noise of all numbers goes together, tells them apart; in one run many canaries are there or not
    by a coin. A file:

    [[measure]]
    mechanism = "label_dp"    # also: epsilon, stages, classes
    epsilon = 1.0
    runs = 2000               # of the game; 0: none
    canaries = 2000           # of the one run; 0: none

    Further mechanisms: "pivodl" (epsilon, delta, clip, learning_rate, n_estimators, max_depth, as_published: keys of
    the job), "dp_sgd" (noise, clip, epochs: keys of the feature party) and "column_privacy" (epsilon, delta, trees;
    max_depth, bins, scheme; forest = true: of a forest). --details names the modules that were carried out. Above the
    tables: seed, limit_s = 600 (no further runs begin after these seconds; the same command goes on), confidence = 0.95
    of what is shown, false_alarm = 1e-6.

    A bound says that ε is no smaller, never that it is no greater: an attack that nobody has tried may do better.

    Exit status 1 if ε is greater than claimed; honest noise is accused with probability false_alarm at most.

    treetap measure-epsilon noise.toml --details
    """
    with needs("audit"):
        from treetap.lab.epsilon.measuring import document, measured

    asked, results = measured(file, workdir or Path("runs", file.stem))
    if as_json:
        print(json.dumps(document(asked, results), indent=1, allow_nan=False), flush=True)
    else:
        for result in results:
            _print(asked, result, details=details)
    if any(result.broken for result in results):
        raise typer.Exit(1)


def _print(asked: MeasureFile, result: Result, *, details: bool) -> None:
    from treetap import terminal

    of_delta = f" at δ = {result.delta:g}" if result.delta else ""
    slack = f", {result.by_noise:.3g} by its noise" if result.by_noise < 0.999 * result.claimed else ""
    said = [
        f"{result.mechanism}: claimed {result.claimed:.4g}{of_delta}{slack}; at least {result.at_least:.3g} "
        f"({100 * asked.confidence:g} %)"
    ]
    if result.broken:
        said.append(f"BROKEN: ε is at least {result.surely:.3g}, but for one in {1 / asked.false_alarm:,.0f}")
    elif result.at_least > min(result.claimed, result.by_noise):
        said.append("above the claim, but not beyond chance: measure with more runs and another seed")
    if not result.finished:
        said.append(f"after {result.runs} runs the time was over: the same command goes on")
    for line in said:
        terminal.out.print(terminal.text(line), soft_wrap=True)
    if details:
        table = terminal.table("way", "at least", "but for false alarms", "figures")
        for it in result.estimates:
            figures = ", ".join(
                f"{name} {number:,}" if isinstance(number, int) else f"{name} {number:.4g}"
                for name, number in it.figures.items()
            )
            table.add_row(_WAYS[it.way], f"{it.at_least:.3f}", f"{it.surely:.3f}", figures)
        terminal.out.print(table)
        terminal.out.print(f"{result.runs} runs, {result.canaries} canaries, {result.seconds:.1f} s", soft_wrap=True)
        terminal.out.print(f"carried out: {', '.join(result.carried_out)}", soft_wrap=True)
