"""Options of `treetap model scorecard` and `treetap model stability`."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from pathlib import Path

from treetap.commands.options import option
from treetap.errors import BadInput, refuse

#: Endings of the names of files that a card is written to.
ENDINGS = (".csv", ".sql", ".pmml")
#: Fewest records of each class in a bin of which another party is told the points.
LEAST_TOLD = 10


@dataclass(frozen=True, kw_only=True)
class Frame:
    """Options that say what a score means."""

    base_points: float = option(600.0, "The score of a record whose odds of good to bad are --odds.")
    odds: float = option(50.0, "Odds of good to bad at the base points, such as 50: one bad record in 51.")
    pdo: float = option(20.0, "Points that double the odds.")

    def check(self) -> None:
        """Raise `BadInput` for a frame in which a better record would not have a higher score."""
        for name, value in vars(self).items():
            if not math.isfinite(value) or (name != "base_points" and value <= 0):
                raise BadInput(f"--{name.replace('_', '-')} {value:g}: must be a number above 0, such as 20")

    @property
    def factor(self) -> float:
        """Points of one unit of the log-odds."""
        return self.pdo / math.log(2)

    def score(self, margin: float) -> float:
        """The score at log-odds of bad to good."""
        return self.base_points - self.factor * (margin + math.log(self.odds))

    def bad(self, score: float) -> float:
        """The probability of bad at a score."""
        return 1 / (1 + self.odds * 2 ** ((score - self.base_points) / self.pdo))


#: Beginnings of the help of options that are one role's alone.
HOLDER, PARTNER = "Label holder: ", "Partner: "


@dataclass(frozen=True, kw_only=True)
class CardOptions:
    """What a card is made of, and what is written."""

    table: str | None = option(None, "With --config: a table of the party, by which records of bins are counted.")
    explained: Path | None = option(
        None, f"{HOLDER}predictions/NAME.explained.parquet of that table, which has other parties' sides."
    )
    bins: list[Path] | None = option(None, f"{HOLDER}what a partner wrote by --send-bins; may be repeated.")
    send_bins: Path | None = option(None, f"{PARTNER}write its bins by handles, without cuts, for the label holder.")
    send_points: Path | None = option(
        None, f"{HOLDER}write PARTY.points.json into this folder for each --bins, if the policy permits."
    )
    points: Path | None = option(None, f"{PARTNER}the points of its own bins, which the label holder has written.")
    send_rates: bool = option(
        False, f"{HOLDER}write the bad rates of these bins too, of those with --min-records of each class."
    )
    bad: str | None = option(None, f"{HOLDER}the bad class; by default the last one. Of several, each has a card.")
    good: str | None = option(None, f"{HOLDER}the class that it is compared with; by default the first of the others.")
    cut_off: list[float] | None = option(None, f"{HOLDER}a score from which to accept; may be repeated.")
    monotonic: bool = option(False, f"{HOLDER}merge bins until points rise or fall with a column's numbers.")
    min_share: float = option(0.0, f"{HOLDER}merge bins of less than this share of the records.", min=0, max=0.5)
    min_records: int = option(0, f"{HOLDER}merge bins with fewer records of either class.", min=0)
    reasons: Path | None = option(
        None, "Write the score of each record of --table, and by which columns it loses most points, as .csv."
    )
    out: list[Path] | None = option(
        None, "Write the card as .csv, or the party's own columns as .sql or .pmml; may be repeated."
    )

    def check(self, party: str, config: Path | None, *, holds_labels: bool) -> None:
        """Raise `BadInput` for options that do not go with the party's role or with each other."""
        wrong = PARTNER if holds_labels else HOLDER
        told = {it.name: str(it.metadata["typer"].help).startswith(wrong) for it in fields(self)}
        given = [f"--{name.replace('_', '-')}" for name, of in told.items() if of and getattr(self, name)]
        refuse(
            (given, f"{''.join(given[:1])} is not for {party}, which has the other role in this model: leave it out"),
            (config is None and self.table, "--table names a table of the party's configuration: add --config"),
            (
                not self.table and (self.monotonic or self.min_share or self.min_records or self.explained),
                "records of bins are counted and merged by a table: add --config and --table",
            ),
            (
                self.send_points and not (self.bins and self.explained and self.min_records >= LEAST_TOLD),
                f"--send-points needs --bins, --explained, and --min-records of {LEAST_TOLD} or more",
            ),
            (self.send_rates and not self.send_points, "--send-rates writes beside points: add --send-points"),
            *(
                (path.suffix not in ENDINGS, f"--out {path}: end the file's name with {', '.join(ENDINGS)}")
                for path in self.out or ()
            ),
            (
                (self.out or self.reasons) and not (holds_labels or self.points),
                "--out and --reasons write points, which a partner has by --points",
            ),
            (self.reasons and not self.table, "--reasons are of the records of a table: add --config and --table"),
            kind=BadInput,
        )


@dataclass(frozen=True, kw_only=True)
class StabilityOptions:
    """What is compared."""

    expected: str | None = option(None, "The party's table of before, mostly that of the training.")
    actual: str | None = option(None, "The table of now.")
    expected_scores: Path | None = option(None, f"{HOLDER}predictions of before, with a column score.")
    actual_scores: Path | None = option(None, f"{HOLDER}predictions of now.")
    points: Path | None = option(None, f"{PARTNER}the points of its bins, which the label holder has written.")

    def check(self, config: Path | None) -> None:
        """Raise `BadInput` for one of two tables or files of scores, for none at all, and for tables of nobody."""
        refuse(
            (
                (self.expected is None) != (self.actual is None)
                or (self.expected_scores is None) != (self.actual_scores is None)
                or not (self.expected or self.expected_scores),
                "name two tables, --expected and --actual, or two files, --expected-scores and --actual-scores",
            ),
            (self.expected and config is None, "--expected names a table of the party's configuration: add --config"),
            kind=BadInput,
        )
