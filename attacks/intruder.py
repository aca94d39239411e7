"""A motivated intruder test of a published model: what an intruder knew, tried and got.

1. Records are drawn, as many of the training as others, for which the bounds of work suffice.
2. Shadow models are trained on halves of them.
3. The attacks of the registry on published models run, and verdicts say what they add to guesses without.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

import numpy as np
from threadpoolctl import threadpool_limits

from treetap.attacks.published.model import SEED, Bounds, Intruder, Target, affordable, shadows
from treetap.attacks.published.schema import HELD, ColumnGuess, Membership, PublishedDocument
from treetap.attacks.registry import Needs, rows
from treetap.attacks.verdict import Compared, Verdict, judged
from treetap.version import package_version

#: Of whom verdicts are: the training has members, one of its records has columns.
TRAINING, RECORD = "the training", "a training record"


def intrude(target: Target, say: Callable[[int, int, str], None], bounds: Bounds | None = None) -> PublishedDocument:
    """Audit a published model. `say`: parts that are done, all parts, and the next one.

    Raises:
        BadInput: the table has too few records of one kind, or the bounds allow too few shadow models.
    """
    bounds, begun, draw = bounds or Bounds(), time.process_time(), np.random.default_rng(SEED)
    attacks = rows(Needs.PUBLISHED)
    with threadpool_limits(1):  # the time of a processor is bounded
        say(0, 1 + len(attacks), "shadow models")
        chosen = affordable(target, bounds, draw)
        taken = target.take(chosen)
        intruder = Intruder(taken, *shadows(taken, bounds, begun, draw), bounds, begun)
        figures = {}
        for number, (name, row) in enumerate(attacks.items(), start=1):
            say(number, 1 + len(attacks), row.label)
            figures[name.replace("-", "_")] = row.run(intruder)
    intruder.reasons["columns by the card"] = "it has no figure that depends on one column of one record"
    left_out = len(target.members) - len(chosen)
    half = int(taken.members.sum())
    drawn = f"; {left_out:,} further records of the table are left out" if left_out else ""
    count, limits = len(intruder.inside), intruder.bounds
    lacking = "; ".join(intruder.target.lacking)
    return PublishedDocument(
        model=target.name,
        protocol=target.protocol,
        parties=list(target.tables),
        records=len(chosen),
        members=int(taken.members.sum()),
        left_out=left_out,
        shadow_models=len(intruder.inside),
        most_shadow_models=bounds.shadows,
        seconds=intruder.spent,
        most_seconds=bounds.seconds,
        seed=SEED,
        created=datetime.now(UTC),
        treetap=package_version(),
        knew=[
            f"All columns and the label of {2 * half:,} records, of which {half:,} are of the training, not which"
            f"{drawn}. To guess a column: the other columns and the label of a record of the training, and all of the "
            f"{half:,} others.",
            "The parameters of the training, which the card has.",
            *(f"As a holder of {name}: {held}." for name, held in HELD.values()),
        ],
        tried=[
            f"{count} shadow models, of at most {limits.shadows}, each trained on half of the records; in all "
            f"{intruder.spent:.0f} of at most {limits.seconds:g} seconds of a processor.",
            *(
                [f"The shadow models are trained without {lacking}, which the training had: a floor."]
                if lacking
                else []
            ),
            *(f"{row.label}: {row.line}." for row in rows(Needs.PUBLISHED).values()),
            *(f"Not measured: {what}: {why}." for what, why in intruder.reasons.items()),
        ],
        verdicts=_verdicts(figures["membership"], figures["member_columns"], intruder.reasons),
        reasons=intruder.reasons,
        **figures,
    )


def _verdicts(membership: list[Membership], columns: list[ColumnGuess], reasons: dict[str, str]) -> list[Verdict]:
    """For each artefact whether a record was of the training, and the column of which most is learned."""
    verdicts = []
    for artefact, (name, _) in HELD.items():
        of: list[Compared] = [row.compared for row in membership if row.artefact == artefact]
        if of:
            verdicts.append(judged(f"a holder of {name}", "members", TRAINING, of, reason="", details="membership"))
    for artefact, (name, _) in HELD.items():
        guesses = [row.compared for row in columns if row.artefact == artefact]
        why = reasons["columns by the card"] if artefact == "card" else "no column could be guessed"
        verdicts.append(judged(f"a holder of {name}", "columns", RECORD, guesses, reason=why, details="member-columns"))
    return verdicts
