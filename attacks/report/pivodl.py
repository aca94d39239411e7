"""PIVODL's attacks: guesses of other parties' labels, what announced gains give away, and what messages disclose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from treetap.attacks.document import Document, Party
from treetap.attacks.pivodl.schema import GainInversionFigures, GuessFigures, SourceColumns
from treetap.attacks.report.glossary import count, either_way, score, share
from treetap.attacks.schema import Findings
from treetap.pages.pictures import Dots, DottedTable, Table, dots


class Kind(NamedTuple):
    """A way to guess: its name, its class in the style sheet, its meaning."""

    label: str
    style: str
    meaning: str


#: Field of the label guess ("" is the guess itself) → what it is.
KINDS = {
    "": Kind("as received", "received", "sums of the leaf weights that the party received, as they came"),
    "without_noise": Kind("without noise", "own", "the same sums with exact weights, which other parties received"),
    "after_inversion": Kind(
        "after gain inversion", "quotient", "the same sums, with the exact weights that announced gains give away"
    ),
    "own_labels_and_spaces": Kind(
        "own labels and nodes", "chunked", "a model of the party's own labels by the nodes that it knows, no weights"
    ),
    "own_labels_and_columns": Kind(
        "own labels and columns", "cl", "a model of the party's own labels by its own columns: without taking part"
    ),
}
#: Ways to guess that are no attack: the one has what noise hides, the other takes no part.
_HIDDEN, _ALONE = "without_noise", "own_labels_and_columns"
GUESS_HEADS = ("party", "records guessed", *(kind.label for kind in KINDS.values()))
ACCURACY_HEADS = ("party", "guess", "records", "accuracy", "largest class", "AUC")
#: Attack → head and field of each of its counts; no field: the share of the splits that is solved.
COUNTS: dict[str, tuple[tuple[str, str], ...]] = {
    "gain_inversion": (
        *(("splits", "splits"), ("gains at hand", "announced"), ("equations", "tried"), ("solved", "solved")),
        *(("right", "exact"), ("solved ÷ splits", "")),
        *(("weights with noise", "noised_weights"), ("noise removed", "noise_removed")),
    ),
    "differential": (
        *(("candidates opened by their source", "opened_by_source"), ("sets with sums", "known_sums")),
        *(("smallest", "smallest_set"), ("labels that follow", "labels"), ("right", "labels_right")),
        *(("labels with solved gains", "labels_by_inversion"), ("right", "labels_right_by_inversion")),
    ),
    "disclosed": (
        *(("bins received", "bins"), ("ids in lists", "listed")),
        *(("nodes that continue", "continuing_nodes"), ("ids in them", "continuing_ids")),
        *(("leaves", "leaves"), ("below own splits", "leaves_as_source")),
        *(("of these exact by sums", "exact_weight_known"), ("exact beside an open sibling", "exact_beside_open")),
        *(("barred from sums", "barred"), ("without a split party", "without_split_party")),
    ),
}


COLUMN_HEADS = (
    *("reader", "columns of", "columns", "bins received", "other cells"),
    *("placed by left sets", "placed by all", "of these wrong", "sums opened", "told apart", "best rank correlation"),
)


@dataclass(frozen=True)
class SharedLabels:
    """The section's content. `noise`: the job has epsilon."""

    noise: bool
    announced: bool
    kinds: list[Kind]
    guesses: DottedTable
    accuracies: Table
    inversions: Table
    differentials: Table
    disclosed: Table
    columns: Table


def shared_labels(document: Document) -> SharedLabels | None:
    """The section of a PIVODL job; None of another one."""
    parties = {name: party for name, party in document.parties.items() if party.label_guess is not None}
    if not parties:
        return None
    # a job without noise has fewer ways to guess
    used = [key for key in KINDS if any(_guess(party, key) is not None for party in parties.values())]
    return SharedLabels(
        noise=any(party.label_guess.epsilon is not None for party in parties.values() if party.label_guess),
        announced=any(party.gain_inversion.announced for party in parties.values() if party.gain_inversion),
        kinds=[KINDS[key] for key in used],
        guesses=DottedTable(
            GUESS_HEADS, 1, "AUC, 0 to 1", [(_guess_row(name, party), _dots(party)) for name, party in parties.items()]
        ),
        accuracies=Table(ACCURACY_HEADS, [row for name, party in parties.items() for row in _accuracies(name, party)]),
        inversions=_counts(parties, "gain_inversion"),
        differentials=_counts(parties, "differential"),
        disclosed=_counts(parties, "disclosed"),
        columns=_columns(parties),
    )


def column_words(columns: SourceColumns) -> tuple[str, str] | None:
    """The party whose columns are read best, and what was read, which follows the reader's name; None of no party."""
    shares = {
        name: (it.placed - (it.wrong or 0)) / max(1, it.cells) for name, it in columns.sources.items() if it.cells
    }
    name = max(shares, key=lambda one: shares[one], default=None)
    if name is None:
        return None
    it = columns.sources[name]
    whose = f"{name}'s cells ({count(it.records)} records that it does not label × {count(it.columns)} columns)"
    most = "" if len(shares) == 1 else ", and no more of another party's"
    if it.wrong is None:
        return name, f"claims the bins of {share(it.placed, it.cells)} of {whose}{most}; no table scores that."
    return name, (
        f"placed {share(shares[name], 1)} of {whose} in their bins{most}; {count(it.wrong)} of its {count(it.placed)} "
        "claims are wrong, which the audit alone knows."
    )


def _guess_row(name: str, party: Party) -> list[str]:
    """Party, records, AUC of each way to guess."""
    guess = party.label_guess
    guesses = [_guess(party, key) for key in KINDS]
    records = None if guess is None else guess.records
    return [name, count(records), *(either_way(None if it is None else it.auc) for it in guesses)]


def _dots(party: Party) -> Dots:
    aucs = {key: None if (guess := _guess(party, key)) is None else guess.auc for key in reversed(KINDS)}
    placed = ((KINDS[key].style, None if auc is None else max(auc, 1 - auc)) for key, auc in aucs.items())
    return dots(placed, limit=0.5)


def _guess(party: Party, key: str) -> GuessFigures | None:
    if party.label_guess is None or not key:
        return party.label_guess
    guess: GuessFigures | None = getattr(party.label_guess, key)
    return guess


def _accuracies(name: str, party: Party) -> list[list[str]]:
    rows = []
    for key, kind in KINDS.items():
        guess = _guess(party, key)
        if guess is not None:
            right = score(guess.accuracy) if guess.inverted is None else either_way(guess.accuracy)
            rows.append([name, kind.label, count(guess.records), right, score(guess.majority), either_way(guess.auc)])
    return rows


def _counts(parties: Mapping[str, Party], attack: str) -> Table:
    """The counts of an attack by party; dashes for a party without it."""
    heads = [head for head, _ in COUNTS[attack]]
    rows = [
        [name, *(_count(getattr(party, attack), field) for _, field in COUNTS[attack])]
        for name, party in parties.items()
    ]
    return Table(("party", *heads), rows)


def _columns(parties: Mapping[str, Party]) -> Table:
    """The columns of each party as each other one reads them."""
    rows = []
    for name, party in parties.items():
        for source, it in (party.source_columns.sources if party.source_columns is not None else {}).items():
            best = "" if it.best_column is None else f" (column {it.best_column})"
            rows.append(
                [
                    *(name, source, count(it.columns), count(it.received), count(it.cells)),
                    *(share(it.by_left_sets, it.cells), share(it.placed, it.cells), count(it.wrong)),
                    *(count(it.opened), count(it.linked), f"{score(it.rank_correlation)}{best}"),
                ]
            )
    return Table(COLUMN_HEADS, rows)


def _count(figures: Findings | None, field: str) -> str:
    if isinstance(figures, GainInversionFigures) and not field:
        return share(figures.solved, figures.splits)
    return count(getattr(figures, field, None))
