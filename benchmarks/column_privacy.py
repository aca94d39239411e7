"""AUC of models whose feature party adds noise to its sums: the trial of docs/column-privacy.md, whatever the scheme.

    python benchmarks/column_privacy.py [--set breast_cancer credit bank credit-2 generated] [--records N]
        [--epsilon 1 4 16 64] [--delta 1e-6] [--trees 20] [--depth 4] [--bins 32] [--seeds 3]
        [--protocol boosting] [--bootstrap] [--cells] [--seconds 150]

The trainer on the joined table, 80 % of the records drawn by seed, AUC on the others, mean and deviation over seeds.
breast_cancer is of scikit-learn, generated is drawn (--records, 30,000 by default), the others need TREETAP_DATA. The
label holder has the first columns; "alone" is its model without the feature party, "exact" the one without noise.
Noise is drawn as a feature party draws it. Forests draw four fifths of the records, or as many as there are with
--bootstrap.

--cells, of boosting: further rows on the feature party's training cells (record and column), of the first seed, by the
attack of `treetap audit`: the share that its best guess of all cells names rightly, beside naming the most frequent bin
("before"), with links given where sums have noise; the same by left sets alone; the variance of places that it
explains; and the largest share that ε allows, given the left sets (docs/column-privacy.md, "Guesses").

--draws, of boosting: in the place of all that, a federation trains each set under Paillier with keys of 2048 bits, by
the simulator of the tests, with noise of the first ε; printed is the processor time of all parties, and of the draws.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from columns_from_sums import HOLDER, PARTY, DrawnNoise, view_of

sys.path.insert(0, str(Path(__file__).parents[1]))

from treetap import terminal
from treetap.attacks.sums.attack import ALONE, SumsEvidence, read_columns
from treetap.attacks.sums.propagation import Kept
from treetap.attacks.sums.schema import ColumnFigures, SumsSettings
from treetap.attacks.sums.scoring import TrueColumns
from treetap.errors import Interrupted
from treetap.privacy.column_privacy import ColumnPrivacy, drawn_sums, most_draws
from treetap.trees import metrics
from treetap.trees.binning import BinnedTable, bin_table, encode
from treetap.trees.centralised import CentralForest, CentralModel, train, train_forest
from treetap.trees.noised_sums import SumNoise
from treetap.trees.params import BoostingParams, ForestParams

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
#: Set → file, label, columns of the label holder.
FILES = {
    "credit": ("credit_default.parquet", "default.payment.next.month", 5),
    "bank": ("bank_marketing.parquet", "y", 8),
    "credit-2": ("give_me_some_credit.parquet", "SeriousDlqin2yrs", 3),
}


def case(name: str, records: int) -> tuple[Floats, Ints, int]:
    """Columns (n, d), labels (n,) and the number of the label holder's columns."""
    from sklearn import datasets

    if name == "breast_cancer":
        inputs, labels = datasets.load_breast_cancer(return_X_y=True)
        return inputs[:, :20], labels, 2
    if name == "generated":
        shape = {"n_informative": 12, "random_state": 1, "flip_y": 0.1, "class_sep": 0.7}
        inputs, labels = datasets.make_classification(records, 20, **shape)
        return inputs, labels, 10
    file, label, own = FILES[name]
    table = pq.read_table(Path(os.environ["TREETAP_DATA"]) / file)
    columns = [_numbered(table.column(column)) for column in table.column_names if column != label]
    return np.stack(columns, axis=1), _numbered(table.column(label)).astype(np.int64), own


def _numbered(column: Any) -> Floats:
    values = column.to_numpy(zero_copy_only=False)
    return (np.unique(values, return_inverse=True)[1] if values.dtype == object else values).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Trained:
    """A model of one seed's training records (`before`), of which the others are held out; tables by party.

    `noise`: None without.
    """

    model: CentralModel | CentralForest
    noise: DrawnNoise | None
    objective: str
    tables: dict[str, BinnedTable]
    labels: Ints
    before: Ints
    after: Ints


def trained(
    inputs: Floats,
    labels: Ints,
    own: int,
    params: BoostingParams | ForestParams,
    privacy: ColumnPrivacy | None,
    seed: int,
) -> Trained:
    """A training; privacy None: without noise."""
    order = np.random.default_rng(seed).permutation(len(labels))
    before, after = np.split(order, [int(0.8 * len(labels))])
    tables = {
        name: bin_table(block[before], [f"{name} {j}" for j in range(block.shape[1])], params.max_bin)
        for name, block in blocks(inputs, own).items()
    }
    noise = None if privacy is None else DrawnNoise(privacy, noise_of(params, privacy, len(before)))
    noised = {} if noise is None else {PARTY: noise.party(tables[PARTY], params)}
    if isinstance(params, ForestParams):
        rows = [(name, block[before]) for name, block in blocks(inputs, own).items()]
        forest = train_forest(rows, labels[before], params, 2, list(tables.items()), noised=noised)
        return Trained(forest, noise, params.objective, tables, labels, before, after)
    model = train(list(tables.items()), labels[before], params, noised=noised)
    return Trained(model, noise, params.objective, tables, labels, before, after)


def blocks(inputs: Floats, own: int) -> dict[str, Floats]:
    """Columns by party: the first are the label holder's."""
    return {HOLDER: inputs[:, :own]} | ({PARTY: inputs[:, own:]} if own < inputs.shape[1] else {})


def auc(here: Trained, inputs: Floats, own: int) -> float:
    """AUC on the records that are held out."""
    columns, model = blocks(inputs, own), here.model
    if isinstance(model, CentralForest):
        outcome = model.predict([(name, block[here.after]) for name, block in columns.items()])
    else:
        asked = [(name, encode(columns[name][here.after], table.features)) for name, table in here.tables.items()]
        outcome = model.ensemble.outcome(model.predict(asked))
    return metrics.evaluate(here.objective, outcome, here.labels[here.after])["auc"]


def cells_read(here: Trained, inputs: Floats, own: int, seconds: float) -> ColumnFigures:
    """The label holder's attack on the feature party's cells."""
    assert isinstance(here.model, CentralModel)
    params, columns = here.model.params, inputs[here.before, own:]
    truth = TrueColumns.of_numbers([str(j) for j in range(columns.shape[1])], columns, params.max_bin)
    opened = view_of(here.model, here.tables, here.labels[here.before], params, noise=here.noise)
    return read_columns(SumsEvidence(PARTY, opened, truth, SumsSettings(seconds=seconds), lambda _: None, Kept()))


def rows_of_cells(figures: list[ColumnFigures]) -> list[list[str]]:
    """The rows of --cells: a name, and a figure of each training."""
    ways: dict[str, list[float]] = {
        "cells named right": [max(it.named.values()) for it in figures],
        "by left sets alone": [it.named[ALONE] for it in figures],
        "before": [it.compared.before if it.compared else 0.0 for it in figures],
        "places explained": [it.explained.after if it.explained else 0.0 for it in figures],
        "ε allows": [it.noise.allowed if it.noise else 1.0 for it in figures],
    }
    return [[way, *(f"{share:.1%}" for share in shares)] for way, shares in ways.items()]


def noise_of(params: BoostingParams | ForestParams, privacy: ColumnPrivacy, records: int) -> SumNoise:
    """The noise of a party on sums of two classes."""
    if isinstance(params, ForestParams):
        return privacy.noise_of_forest(params, 2, most_draws(params, PARTY, records))
    return privacy.noise(params, 1)


def time_draws(
    name: str, inputs: Floats, labels: Ints, own: int, params: BoostingParams, privacy: ColumnPrivacy
) -> str:
    """Train a federation in this process; the processor time of draws and of everything, in seconds, and their ratio.

    Raises:
        Interrupted: the job has not finished.
    """
    from tests.simulator import Federation, run
    from tests.worlds import PARTIES, spec
    from treetap.party.defences.settings import ColumnPrivacyTable, Defences
    from treetap.party.growth import column_noise

    drawing = 0.0

    def timed(*about: Any) -> Ints:
        nonlocal drawing
        begun = time.thread_time()
        noise = drawn_sums(*about)
        drawing += time.thread_time() - begun
        return noise

    ids = pa.array([f"{row:07d}" for row in range(len(labels))])
    names = [f"c{number}" for number in range(inputs.shape[1])]
    tables = {}
    for party, columns, more in ((PARTIES[0], names[:own], {"y": pa.array(labels)}), (PARTIES[1], names[own:], {})):
        values = {column: pa.array(inputs[:, names.index(column)]) for column in columns}
        tables[party] = (columns, {"train": pa.table({"id": ids, **values, **more})})
    given = ColumnPrivacyTable(epsilon=privacy.epsilon, delta=privacy.delta, trees=privacy.trees)

    async def trained(folder: Path) -> Any:
        defences = {PARTIES[1]: Defences(column_privacy=given)}
        federation = Federation(
            folder, tables, defences=defences, policies={PARTIES[0]: {"labels": {"noised_sums": True}}}
        )
        status = await federation.train(spec(params, parties=2, key_bits=2048))
        await federation.close()
        return status

    with tempfile.TemporaryDirectory() as folder, patch.object(column_noise, "drawn_sums", timed):
        begun = time.process_time()
        status = run(trained(Path(folder)))
        whole = time.process_time() - begun
    if status.state != "finished":
        raise Interrupted(status.error or status.state)
    return f"{name}: draws {drawing:.2f} s of {whole:.1f} s of processor time, {drawing / whole:.1%}"


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sets = ["breast_cancer", *FILES, "generated"]
    parser.add_argument("--set", nargs="+", default=sets, choices=sets, dest="sets")
    parser.add_argument("--records", type=int, default=30_000)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--delta", type=float, default=1e-6)
    parser.add_argument("--trees", type=int, default=20)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--bins", type=int, default=32)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--protocol", choices=("boosting", "forest"), default="boosting")
    parser.add_argument("--bootstrap", action="store_true", help="of a forest: draw with replacement")
    parser.add_argument("--cells", action="store_true", help="run the attack on cells too, of the first seed")
    parser.add_argument("--seconds", type=float, default=SumsSettings.seconds, help="of each of its least squares")
    parser.add_argument("--draws", action="store_true", help="time draws in a federation, and nothing else")
    given = parser.parse_args()
    sizes = {"n_estimators": given.trees, "max_depth": given.depth, "max_bin": given.bins}
    boosted = BoostingParams(**sizes)
    params: BoostingParams | ForestParams = boosted
    if given.protocol == "forest":
        if given.cells or given.draws:
            parser.error("--cells and --draws are of boosting")
        params = ForestParams(**sizes, bootstrap=given.bootstrap, subsample=1.0 if given.bootstrap else 0.8)
    noises = [ColumnPrivacy(epsilon, given.delta, given.trees) for epsilon in given.epsilon]
    if given.draws:
        for name in given.sets:
            terminal.out.print(time_draws(name, *case(name, given.records), boosted, noises[0]))
        return
    table = terminal.table("set", "records", "alone", "exact", *(f"ε {epsilon:g}" for epsilon in given.epsilon))
    for name in given.sets:
        inputs, labels, own = case(name, given.records)
        ways = [(inputs[:, :own], None), (inputs, None), *((inputs, privacy) for privacy in noises)]
        cells, read = [], list[ColumnFigures]()
        for columns, privacy in ways:
            runs = [trained(columns, labels, own, params, privacy, seed) for seed in range(given.seeds)]
            reached = [auc(run, columns, own) for run in runs]
            cells.append(f"{np.mean(reached):.3f} ± {np.std(reached):.3f}")
            if given.cells and own < columns.shape[1]:
                read.append(cells_read(runs[0], columns, own, given.seconds))
        table.add_row(name, f"{len(labels):,}", *cells)
        for way, *shares in rows_of_cells(read) if read else []:
            table.add_row("", way, "", *shares)
        terminal.out.print(table)
        drawn = [noise_of(params, privacy, int(0.8 * len(labels))) for privacy in noises]
        sizes_of_noise = ", ".join(f"{float(noise.variance) ** 0.5:.1f}" for noise in drawn)
        terminal.out.print(f"{given.protocol}, {name}: z {sizes_of_noise}")


if __name__ == "__main__":
    main()
