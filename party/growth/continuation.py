"""A published model from which a training continues, at one of its parties: its trees are the job's first ones.

The label holder kept the raw scores of the records that it trained on. So a party needs nothing from the others to
continue on the same records, and no message tells more than those of a training. Other records would first have to pass
through the trees, which tells the label holder their directions at the others' splits: no training does that.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from treetap.errors import DataError
from treetap.models import keyed_ids
from treetap.models.arrays import Array, content_of, read_arrays
from treetap.models.store import (
    CLEAN_METRICS,
    CONTINUATION,
    HISTORY,
    LEAKAGE,
    SPACES,
    TREES,
    VALUES,
    read_arrays_of,
    read_history,
    read_job,
    read_kind,
    read_manifest,
)
from treetap.party.growth.rule import Draft, Part, Rule
from treetap.party.growth.stored_trees import KNOWN, StoredTrees, known_sets, stored_trees
from treetap.party.runtime.context import Rows, required
from treetap.protocols.job_spec import continued_from
from treetap.protocols.registry import training_name
from treetap.tables.labels import Labels
from treetap.tables.reading import Table
from treetap.trees.boosting_rounds import Start
from treetap.trees.params import BoostingParams

#: Arrays of `CONTINUATION`: places of the records in the label holder's table, sorted by ids, and their raw scores.
RECORDS, SCORES = "records", "scores"


class FirstTrees(Rule):
    """The trees with which a job begins: those of its base model, where it has one and has not published its own.

    Attributes:
        count: their number, also of those that the base model's predictions do not use: XGBoost continues from all.
        known: once they are the job's, the arrays of `KNOWN` after them, which are stored with the scores.
    """

    def __init__(self, part: Part) -> None:
        """Raises `DataError` if the base model is not there, or the job cannot continue from it."""
        super().__init__(part)
        context, spec = part.context, part.spec
        self._store, self._name = context.store, continued_from(spec)
        self._manifest: Mapping[str, Any] = {}  # of the base model; empty without
        if self._name and not context.store.published:
            self._folder = context.store.base(self._name, spec.base_submission)
            self._manifest = read_manifest(self._folder)
            faults = self._faults()
            noisy = part.labelled and part.config.defences.label_dp is not None
            if noisy and CLEAN_METRICS not in self._manifest["files"]:
                faults.append(
                    "its training had the labels as they are, and so would the scores from which the job continues: "
                    "label_dp would not cover them; train the base model with label_dp too"
                )
            if faults:
                raise DataError(f"base_model = {self._name!r}: {'; '.join(faults)}")
        self.count = int(self._manifest.get("trees", 0))

    def check_table(self, table: Table) -> None:
        """Check the party's table of the job before anything is sent.

        Raises:
            DataError: it is not the one that the base model was trained on.
        """
        if not self._manifest:
            return
        described = json.loads(json.dumps(table.described()))
        columns = {key: self._manifest.get(key) for key in described} == described
        if not columns or required(self._store.noted()) != read_job(self._folder).get("table"):
            raise DataError(
                f"{table.path}: is not the table on which base_model {self._name!r} was trained: "
                f"{'a cell or a constraint differs' if columns else 'its columns or their encodings differ'}. "
                "Scores of other records under that model would take all parties' directions, which a training does "
                "not send; restore the table, or train without base_model"
            )

    def rounds(self, stored: StoredTrees, trees: int) -> list[dict[str, float | None]]:
        """The metrics of the rounds of the first `trees` trees; if the job has none, of the base model's."""
        return read_history(self._folder) if self._manifest and not trees else stored.rounds(trees)

    async def seed(self, stored: StoredTrees) -> None:
        """Feature party: store the base model's trees, once."""
        if stored.count < self.count:
            await self.part.context.offload(self._seed, whole=True)
            await stored.read()

    async def start(self, stored: StoredTrees, records: Rows, labels: Labels) -> Start | None:
        """Label holder: the beginning on the common records (N,) after the base model's trees, stored once.

        Raises:
            DataError: a record is none of those that the base model was trained on, or their classes differ.
        """
        if not self._manifest:
            return None
        offload = self.part.context.offload
        if not stored_trees(self._store):  # which the scores include: they are stored last
            await offload(self._seed, whole=True)
            await stored.read()
        if labels.classes != self._manifest["classes"]:
            raise DataError(f"base_model = {self._name!r}: the labels of its training had other classes")
        arrays = await offload(lambda: self._arrays(records))
        self.known = {f"{KNOWN}{name}": array for name, array in arrays.items() if name not in (RECORDS, SCORES)}
        margin = np.array(self._manifest["base_margin"], dtype=np.float64)
        return Start(self.count, margin, arrays[SCORES])

    async def publish(self, draft: Draft) -> None:
        """The base model's name and trees, and how these were grown; the file from which a later training continues.

        It has of records (N,) their scores (N, outputs), and by feature party the sets of records that it knows (N,);
        with hashes of their ids, by which one can be forgotten.
        """
        if self._manifest:
            draft.entries |= {SPACES: self._manifest[SPACES]} if self._manifest.get(SPACES) else {}
            draft.entries |= {"base_model": {"name": self._name, "trees": self.count}} if self.part.labelled else {}
        scores = None if draft.state is None or VALUES in draft.entries else draft.state.continuation()
        if scores is None:
            return
        count = len(scores)  # none of an eval table
        signatures = {name: array[:count] for name, array in known_sets(self._store).items()}
        ids = required(draft.data).records.table.ids[:count]

        def content() -> bytes:
            return content_of({RECORDS: draft.records[:count], SCORES: scores, **signatures, **keyed_ids.drawn(ids)})

        draft.files[CONTINUATION] = await self.part.context.offload(content)

    def _seed(self) -> None:
        """Make the base model's trees the first of the job's own, with what lies beside their lines."""
        lines = read_kind(self._folder, TREES)
        for ended in read_kind(self._folder, HISTORY):
            lines[ended["trees"] - 1][HISTORY] = ended
        for account in read_kind(self._folder, LEAKAGE):
            lines[account["tree"]][LEAKAGE] = account
        self._store.lines(TREES).fill(lines)

    def _arrays(self, records: Rows) -> dict[str, Array]:
        """The arrays of `CONTINUATION` for these records, in their order."""
        arrays = read_arrays_of(self._folder, CONTINUATION)[1]
        order = np.argsort(arrays[RECORDS])
        known = arrays[RECORDS][order]
        places = np.searchsorted(known, records)
        if not len(known) or (known[np.minimum(places, len(known) - 1)] != records).any():
            raise DataError(
                f"base_model = {self._name!r}: the parties now have common records on which it was not trained; "
                "restore the tables of all parties, or train without base_model"
            )
        hashed = (keyed_ids.KEY, keyed_ids.IDS)
        return {name: array[order[places]] for name, array in arrays.items() if name not in hashed}

    def _faults(self) -> list[str]:
        manifest, spec, params, holder = self._manifest, self.part.spec, self.part.params, self.part.labelled
        role = "label_holder" if holder else "feature_party"
        trained_by = manifest["protocol"]
        if (trained_by, manifest["role"]) != (training_name(spec), role):
            return [f"{self.part.context.party} was {manifest['role']} of it, trained by {trained_by}"]
        faults = []
        if manifest["missing"] != (None if math.isnan(params.missing) else params.missing):
            faults.append("missing must be as in its training")
        if not holder:
            if manifest["label_holder"] != spec.aggregator:
                faults.append(f"its label holder was {manifest['label_holder']}")
            return faults
        if sorted(manifest["feature_parties"]) != sorted(spec.feature_parties):
            faults.append(f"its feature parties were {', '.join(manifest['feature_parties'])}")
        assert isinstance(params, BoostingParams)  # the only protocol that continues
        if manifest["objective"] != params.objective:
            return [*faults, f"objective was {manifest['objective']}"]
        if params.trees_per_round(len(manifest["classes"])) != manifest["trees_per_round"]:
            faults.append("multi_strategy must be as in its training")
        before = manifest["params"]["base_score"]
        if params.base_score is not None and params.base_score != before:
            faults.append("base_score is the base model's; leave it out")
        faults += params.continuation_faults(manifest["params"])
        if manifest.get("offsets"):
            faults.append("its scores begin with base_margin or exposure, and those of further trees would not")
        if VALUES in manifest:
            faults.append("its values are repaired, and later trees would fit the residuals of others")
        return faults


def forgetting(content: bytes, ids: Iterable[str]) -> tuple[bytes, int] | None:
    """The content of a file without these records, the same bytes again for the same ids, and how many it had.

    None of a file of an earlier version, which does not know its records. Raises ValueError for one that is damaged.
    """
    arrays = read_arrays(io.BytesIO(content))
    if keyed_ids.IDS not in arrays:
        return None
    gone = keyed_ids.among(arrays, ids)
    kept = {name: of if name == keyed_ids.KEY else of[~gone] for name, of in arrays.items()}
    return content_of(kept), int(gone.sum())
