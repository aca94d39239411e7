"""What published models of public tables tell of records of their training: the intruder test of `treetap audit`.

    python benchmarks/published_models.py [--sets NAME …] [--trees 10 100] [--depth 6] [--records 4000] [--seed 0]

A model is trained on one half of the records; the other half are the records that are not of the training. Two parties
have half of the columns each. Prints a row of Markdown for each artefact: the AUC of membership with its interval, how
many records of the training are found where 1 % of others are named wrongly, and the column of which most of what was
left is learned. A model takes up to a minute of a processor.

Needs the `audit` extra, and TREETAP_DATA, the folder of the tables.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import treetap
from treetap.attacks.intruder import intrude
from treetap.attacks.published.schema import HELD, PublishedDocument
from treetap.lab.audit.audited import read_target
from treetap.lab.audit.options import PublishedOptions

sys.path.insert(0, str(Path(__file__).parent / "reproductions"))
from id2graph_sets import SETS, table_of

NAMES = ("breastcancer", "credit_default", "obesity")
HEAD = "| table | trees | a holder of | AUC | found at 1 % | column | before | with it | shadow models | processor s |"


def audited(name: str, trees: int, given: argparse.Namespace) -> PublishedDocument:
    """The audit of a model of one half of a set's records."""
    frame = table_of(name).to_pandas().sample(frac=1, random_state=given.seed)[: given.records].reset_index(drop=True)
    frame = frame.rename(columns={SETS[name].label: "label"}).rename_axis("id").rename(index=lambda row: f"r{row:06d}")
    columns = [column for column in frame.columns if column != "label"]
    parties = {"holder": columns[::2], "other": columns[1::2]}
    half = len(frame) // 2
    params = {"n_estimators": trees, "max_depth": given.depth, "seed": given.seed}
    model = treetap.FederatedClassifier(parties, label_holder="holder", encode="auto", simulate=True, **params)
    with TemporaryDirectory() as made:
        place, table = Path(made) / "model", Path(made) / "records.csv"
        model.fit(frame[columns][:half], frame["label"][:half]).save(place)
        frame.assign(member=(np.arange(len(frame)) < half).astype(int)).to_csv(table)
        return intrude(read_target(place, table, PublishedOptions()), lambda *_: None)


def rows(document: PublishedDocument, name: str, trees: int) -> Iterator[str]:
    """A row of each artefact."""
    members = {it.artefact: it for it in document.membership}
    work = [str(document.shadow_models), f"{document.seconds:.0f}"]
    for artefact, (words, _) in HELD.items():
        own, told = members.get(artefact), ["–", "–"]
        if own is not None:
            told = [f"{own.auc:.3f} ({own.low:.3f} to {own.high:.3f})", f"{100 * own.found:.1f} %"]
        guesses = [it for it in document.member_columns if it.artefact == artefact]
        best = max(guesses, key=lambda it: it.compared.share, default=None)
        column = ["–", "–", "–"]
        if best is not None:
            measure = "" if best.compared.measure == "accuracy" else " (R²)"
            column = [f"{best.column}{measure}", f"{best.compared.before:.3f}", f"{best.compared.after:.3f}"]
        yield f"| {' | '.join([name, str(trees), words, *told, *column, *work])} |"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(NAMES), metavar="NAME")
    parser.add_argument("--trees", nargs="+", type=int, default=[10, 100])
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--records", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print(HEAD, "|---" * HEAD.count(" |") + "|", sep="\n")
    for name in given.sets:
        for trees in given.trees:
            for row in rows(audited(name, trees, given), name, trees):
                print(row, flush=True)


if __name__ == "__main__":
    main()
