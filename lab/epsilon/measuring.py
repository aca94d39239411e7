"""Runs of the mechanisms that a file of `treetap measure-epsilon` names, kept on disk; and the bounds that follow.

Finished runs are kept a batch a line, by the settings and the code of their mechanism and the seed: with more `runs`,
or after an interruption, those that are there count. A batch's chance depends on the settings, the seed and its number
alone, so that the result does not depend on where a measurement was cut.
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from treetap import terminal
from treetap.arrays import Floats
from treetap.attacks.epsilon import Whitening, by_mu, by_ratio, in_one_run, rates
from treetap.commands.jobs import progress_view
from treetap.errors import BadInput
from treetap.lab.epsilon.games import FEWEST, LEARNING, Measured
from treetap.lab.epsilon.mechanisms import Mechanism
from treetap.lab.local_federation import clean_end
from treetap.models.durable import make_ignored_folder, write_whole
from treetap.models.line_file import LineFile
from treetap.strict import Strict, load

REPORT, VERSION = "epsilon.json", 2


class MeasureFile(Strict):
    """The file that `treetap measure-epsilon` reads.

    `confidence`: of what is shown. `false_alarm`: the probability that a file of honest mechanisms is accused.
    `limit_s`: seconds after which a call begins no further batch of runs.
    """

    measure: Annotated[list[Mechanism], Field(min_length=1)]
    seed: int = 0
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    false_alarm: Annotated[float, Field(gt=0, le=0.05)] = 1e-6
    limit_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 600.0


@dataclass(frozen=True)
class Estimate:
    """One way to a bound: `at_least` at the file's confidence, `surely` at its rate of false alarms."""

    way: str
    at_least: float
    surely: float
    figures: dict[str, float]


@dataclass(frozen=True)
class Result:
    """The bounds of one mechanism, and the modules that were measured.

    `by_noise`: the claimed ε without the slack of its accounting.
    """

    mechanism: str
    settings: dict[str, Any]
    claimed: float
    delta: float
    by_noise: float
    at_least: float
    surely: float
    finished: bool
    runs: int
    canaries: int
    seconds: float
    estimates: list[Estimate]
    carried_out: tuple[str, ...]

    @property
    def broken(self) -> bool:
        """True if ε is greater than claimed, or than the claimed noise gives, but for the rate of false alarms."""
        return self.surely > min(self.claimed, self.by_noise) * (1 + 1e-9)


def _kept(
    folder: Path,
    code: str,
    until: float,
    kind: str,
    identity: dict[str, Any],
    count: int,
    made: Callable[[random.Random], dict[str, Any]],
    told: Callable[[int], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """The lines of one kind of draws of a mechanism, kept under what they depend on, `identity` and `code`.

    Lines are added up to a number, or until it is late; `told`: how many there are.
    """
    text = json.dumps({"version": VERSION, **identity}, sort_keys=True)
    digest = hashlib.sha256(f"{code} {text}".encode()).hexdigest()
    file = LineFile(folder / f"{identity['mechanism']}-{kind}-{digest[:12]}.jsonl", lambda: text)
    lines = file.read()
    while len(lines) < count and time.monotonic() < until:
        line = made(random.Random(f"{kind} {text} {len(lines)}"))  # noqa: S311 - repeatable on purpose
        file.put(line, len(lines))
        lines.append(line)
        told(len(lines))
    return lines


def measured(file: Path, folder: Path) -> tuple[MeasureFile, list[Result]]:
    """Measure what is missing and write the report. Raises `BadInput` if the file or the folder cannot be used."""
    asked, began, results = load(file, MeasureFile), time.monotonic(), []
    try:
        make_ignored_folder(folder)
        for place, row in enumerate(asked.measure, 1):
            with clean_end(), progress_view.steps(f"{row.mechanism} {place}/{len(asked.measure)}") as progress:
                results.append(_measured(row, asked, folder, began + asked.limit_s, progress))
        write_whole(folder / REPORT, json.dumps(document(asked, results), indent=1).encode(), mode=0o644)
    except OSError as fault:
        raise BadInput(f"--workdir {folder}: cannot be used: {fault.strerror or fault}") from None
    except (KeyboardInterrupt, SystemExit):
        terminal.err.print("stopped; the same command goes on with the runs that are missing", soft_wrap=True)
        raise
    return asked, results


def document(asked: MeasureFile, results: list[Result]) -> dict[str, Any]:
    """The report as JSON types."""
    head = asked.model_dump(include={"seed", "confidence", "false_alarm"})
    return {"version": VERSION, **head, "measured": [{**asdict(it), "broken": it.broken} for it in results]}


def _measured(
    row: Mechanism, asked: MeasureFile, folder: Path, until: float, progress: Callable[[int, int, str], None]
) -> Result:
    began = time.monotonic()
    settings = row.model_dump(exclude={"runs", "canaries"})
    identity = {**settings, "seed": asked.seed}
    batches = -(-row.runs // (2 * row.batch))

    def played(chance: random.Random) -> dict[str, Any]:
        (change, play), noise = row.neighbours(chance), Whitening.from_plain(learned[0])
        numbers = {"without": play(False, row.batch, chance), "given": play(True, row.batch, chance)}
        return {
            name: noise.scores(of, noise.change if change is None else change).tolist() for name, of in numbers.items()
        }

    def once(chance: random.Random) -> dict[str, Any]:
        coins = [chance.random() < 0.5 for _ in range(row.canaries)]
        guesses = row.guesses(row.play_once(coins, chance))
        return {"guesses": len(guesses), "right": sum(coins[place] == guess for place, guess in guesses.items())}

    has_one = bool(row.canaries) and not row.no_one_run
    progress(0, batches, "one run" if has_one else "")
    keep = partial(_kept, folder, row.code(), until)
    one = keep("one-run", {**identity, "canaries": row.canaries}, int(has_one), once)
    learned = keep("noise", identity, int(bool(batches)), partial(_noise, row))
    games = keep(
        "runs", identity, batches, played, lambda done: progress(done, batches, f"{2 * row.batch * done} runs")
    )
    lines = games[:batches]
    estimates = _estimates(row, lines, one if has_one else [], asked)
    return Result(
        mechanism=row.mechanism,
        settings=settings,
        claimed=row.claimed,
        delta=row.claimed_delta,
        by_noise=row.by_noise,
        at_least=max((it.at_least for it in estimates), default=0.0),
        surely=max((it.surely for it in estimates), default=0.0),
        finished=len(lines) == batches and len(one) >= has_one,
        runs=2 * row.batch * len(lines),
        canaries=row.canaries if has_one and one else 0,
        seconds=time.monotonic() - began,
        estimates=estimates,
        carried_out=row.carried_out,
    )


def _noise(row: Measured, chance: random.Random) -> dict[str, Any]:
    """The noise of a mechanism, by plays of their own: as many canaries as batches; a line of its file."""
    without, given = list[Floats](), [np.empty((0, row.numbers))]
    while sum(map(len, without)) < max(FEWEST, LEARNING * row.numbers):
        change, play = row.neighbours(chance)
        without.append(play(False, row.batch, chance))
        if change is None:
            given.append(play(True, row.batch, chance))
    return Whitening.of(np.concatenate(without), np.concatenate(given)).plain()


def _estimates(
    row: Measured, lines: list[dict[str, Any]], one: list[dict[str, Any]], asked: MeasureFile
) -> list[Estimate]:
    """Every way to a bound. The shown ones hold all at once, and so do all of the file that could accuse."""
    ways = (1 + row.gaussian) * bool(row.runs) + (not row.no_one_run and bool(row.canaries))
    shown, sure = (1 - asked.confidence) / ways, asked.false_alarm / ways / len(asked.measure)
    delta, estimates = row.claimed_delta, []
    without, given = (np.array([score for line in lines for score in line[key]]) for key in ("without", "given"))
    for way, gaussian in (("runs", False), ("gaussian", True))[: 1 + row.gaussian]:
        bound = by_mu if gaussian else by_ratio
        both = [rates(without, given, delta, level, gaussian=gaussian) for level in (shown, sure)]
        if both[0] is not None and both[1] is not None:
            figures = asdict(both[0])
            estimates.append(Estimate(way, bound(both[0], delta), bound(both[1], delta), figures))
    for line in one:
        right, guesses = line["right"], line["guesses"]
        at_least, surely = (in_one_run(row.canaries, guesses, right, delta, level) for level in (shown, sure))
        figures = {"canaries": row.canaries, "guesses": guesses, "right": right}
        estimates.append(Estimate("one_run", at_least, surely, figures))
    return estimates


#: Way to a bound → its words.
_WAYS = {"runs": "repeated runs", "gaussian": "repeated runs, noise taken for Gaussian", "one_run": "one run"}


def print_result(asked: MeasureFile, result: Result, *, details: bool) -> None:
    """Say what is claimed of a mechanism and what it has at least; `details`: also each way to a bound."""
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
