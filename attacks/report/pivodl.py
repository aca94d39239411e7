"""PIVODL's attacks: guesses of other parties' labels, what announced gains give away, and what messages disclose."""

from __future__ import annotations

from collections.abc import Mapping

from treetap.attacks.document import Document, Party
from treetap.attacks.pivodl.schema import GainInversionFigures, GuessFigures, SourceColumns
from treetap.attacks.report.glossary import count, either_way, score, share
from treetap.attacks.schema import Findings
from treetap.pages.pictures import dots
from treetap.pages.section import Entry, Key, Section, Table, Text

#: Field of the label guess ("" is the guess itself) → its label, its style, and what it is.
KINDS = {
    "": ("as received", "received", "sums of the leaf weights that the party received, as they came"),
    "without_noise": ("without noise", "own", "the same sums with exact weights, which other parties received"),
    "after_inversion": (
        "after gain inversion",
        "quotient",
        "the same sums, with the exact weights that announced gains give away",
    ),
    "own_labels_and_spaces": (
        "own labels and nodes",
        "chunked",
        "a model of the party's own labels by the nodes that it knows, no weights",
    ),
    "own_labels_and_columns": (
        "own labels and columns",
        "cl",
        "a model of the party's own labels by its own columns: without taking part",
    ),
}
GUESS_HEADS = ("party", "AUC, 0 to 1", "records guessed", *(label for label, _, _ in KINDS.values()))
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


def shared_labels(document: Document) -> Section | None:
    """The section of a PIVODL job; None of another one."""
    parties = {name: party for name, party in document.parties.items() if party.label_guess is not None}
    if not parties:
        return None
    # a job without noise has fewer ways to guess
    used = [KINDS[key] for key in KINDS if any(_guess(party, key) is not None for party in parties.values())]
    noise = (
        "The job adds noise to the weight that a leaf's source receives (partial differential privacy), and to no "
        "other message. "
        if any(party.label_guess.epsilon is not None for party in parties.values() if party.label_guess)
        else "The job adds no noise to leaf weights. "
    )
    equations = (
        "An announced gain is an equation for the sums of a split's children: **gain inversion** solves it, and has "
        "the exact weights of the leaves below."
        if any(party.gain_inversion.announced for party in parties.values() if party.gain_inversion)
        else "No gain is announced to these parties, so that gain inversion has no equation."
    )
    guesses = [_guess_row(name, party) for name, party in parties.items()]
    accuracies = [row for name, party in parties.items() for row in _accuracies(name, party)]
    told = [
        (name, column_words(party.source_columns))
        for name, party in parties.items()
        if party.source_columns is not None
    ]
    return Section(
        "Labels of other parties",
        [
            Text(
                "In this job several parties have labels. Each learns weights of leaves and adds up those of a "
                "record that another party labels: the **label guess** names the second class where the sum is above "
                "0. The **AUC** is the chance that a record of the second class has a larger sum than one of the "
                "first; 0.5 (the line) is no knowledge. Where the opposite guess does better, its figure stands "
                "here, “inverted”. What a party's own labels tell about the others is beside it: only what exceeds "
                "that came from the weights."
            ),
            Key("dot", [(style, f"{label}: {meaning}") for label, style, meaning in used]),
            Table(GUESS_HEADS, guesses, "Guesses of other parties' labels: AUC", words=(1,), style="cards"),
            Table(ACCURACY_HEADS, accuracies, "Accuracies of the guesses", folded=True, where="page"),
            Text(noise + equations),
            _counts(parties, "gain_inversion", "Gain inversion"),
            Text(
                "The **differential attack** needs sums over two known sets that differ in few records. A source "
                "would have them if it opened its own candidates; a split party opens them and knows no record."
            ),
            _counts(parties, "differential", "Differential attack"),
            Section(
                "What the messages disclose",
                [
                    Text(
                        "Bins of the records that a party labels, sets of records of nodes that continue, and sums "
                        "from which the exact weight of an own leaf follows. A leaf beside a sibling that may be "
                        "split has known records and, at parties other than its source, an exact weight."
                    ),
                    _counts(parties, "disclosed", "What the messages disclose"),
                ],
            ),
            Section(
                "Columns of other parties",
                [
                    Text(
                        "Each party was sent the bins of the records that it labels. **Other cells** are those of "
                        "the records that it does not label. Some follow from the sets of records that splits sent "
                        "left and right, and some from sums of candidates that it opened as split party, if its "
                        "policy recorded them (**told apart**: sums of which it could tell the cut). Claims are "
                        "compared with the tables of the parties that are audited too."
                    ),
                    Table(COLUMN_HEADS, _columns(parties), "Columns of other parties, as far as they are read"),
                    *(Text("{} ", name, said=words[1], where="terminal") for name, words in told if words is not None),
                    Text(
                        "A split party opens sums of candidates, and the weights of leaves that it keeps, from "
                        "ciphertexts. A transcript has no key and does not hold them, unless the party's policy says "
                        "`record_sums`: the counts above are of what plaintext messages say.",
                        style="soft",
                    ),
                ],
            ),
        ],
        "shared",
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


def _guess_row(name: str, party: Party) -> list[Entry]:
    """Party, AUC of each way to guess as dots, records, the AUCs."""
    guesses = {key: _guess(party, key) for key in KINDS}
    aucs = {key: None if guess is None else guess.auc for key, guess in guesses.items()}
    placed = [(KINDS[key][1], None if auc is None else max(auc, 1 - auc)) for key, auc in aucs.items()]
    records = None if guesses[""] is None else guesses[""].records
    return [name, dots(reversed(placed), limit=0.5), count(records), *map(either_way, aucs.values())]


def _guess(party: Party, key: str) -> GuessFigures | None:
    if party.label_guess is None or not key:
        return party.label_guess
    guess: GuessFigures | None = getattr(party.label_guess, key)
    return guess


def _accuracies(name: str, party: Party) -> list[list[str]]:
    rows = []
    for key, (label, _, _) in KINDS.items():
        guess = _guess(party, key)
        if guess is not None:
            right = score(guess.accuracy) if guess.inverted is None else either_way(guess.accuracy)
            rows.append([name, label, count(guess.records), right, score(guess.majority), either_way(guess.auc)])
    return rows


def _counts(parties: Mapping[str, Party], attack: str, label: str) -> Table:
    """The counts of an attack by party; dashes for a party without it."""

    def figure(figures: Findings | None, field: str) -> str:
        if isinstance(figures, GainInversionFigures) and not field:
            return share(figures.solved, figures.splits)
        return count(getattr(figures, field, None))

    heads = [head for head, _ in COUNTS[attack]]
    rows = [
        [name, *(figure(getattr(party, attack), field) for _, field in COUNTS[attack])]
        for name, party in parties.items()
    ]
    return Table(("party", *heads), rows, label)


def _columns(parties: Mapping[str, Party]) -> list[list[str]]:
    """The columns of each party as each other one reads them, under `COLUMN_HEADS`."""
    rows = []
    for name, party in parties.items():
        for source, read in (party.source_columns.sources if party.source_columns is not None else {}).items():
            best = "" if read.best_column is None else f" (column {read.best_column})"
            rows.append(
                [
                    *(name, source, count(read.columns), count(read.received), count(read.cells)),
                    *(share(read.by_left_sets, read.cells), share(read.placed, read.cells), count(read.wrong)),
                    *(count(read.opened), count(read.linked), f"{score(read.rank_correlation)}{best}"),
                ]
            )
    return rows
