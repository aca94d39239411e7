"""One question to `treetap capacity` and its answer, as JSON has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from party.boosting.layout import layout
from treetap.capacity.measurements import Measurements
from treetap.capacity.memory import Memory, memory_of
from treetap.capacity.processes import PHASES
from treetap.capacity.simulation import Simulated, simulate
from treetap.capacity.site import Site
from treetap.capacity.training import PartyColumns, Training, full_levels, label_holder_totals
from treetap.capacity.verdict import Verdict, judge
from treetap.commands.capacity.messages import TreeMessages
from treetap.errors import BadInput, ConfigError, PlaintextOverflow
from treetap.protocols.key_options import KeyKind, key_faults
from treetap.trees.params import BoostingParams

#: The name of the job in the messages whose sizes are taken.
JOB = "capacity"
MOST_RECORDS, MOST_COLUMNS = 10**10, 1 << 12


@dataclass(frozen=True)
class Question:
    """A training to be simulated.

    Attributes:
        records: aligned records.
        columns: those of each party, the label holder first.
        params: of the job.
        key, obfuscation: of the label holder.
        smaller_share: part of a split node's records that its smaller child has, which is the one that is summed.
        missing: True if every column lacks values.
    """

    records: int
    columns: tuple[int, ...]
    params: BoostingParams
    key: KeyKind
    obfuscation: str
    smaller_share: float
    missing: bool = False

    def training(self) -> Training:
        """The training.

        Raises:
            BadInput: it is none, or a record does not fit a plaintext.
        """
        self._check()
        bins, drawn = self.params.max_bin, round(self.records * self.params.subsample)
        own, *others = [PartyColumns.alike(count, bins, missing=self.missing) for count in self.columns]
        slots = layout(self.params, self.records, 1)
        try:
            slots.groups_per_plaintext(self.key.plain_bits)
        except PlaintextOverflow as fault:
            raise BadInput(f"{fault}: use {self.key.remedy}") from None
        names = ["feature party"] if len(others) == 1 else [f"feature party {k + 1}" for k in range(len(others))]
        levels = full_levels(drawn, self.params.max_depth, self.columns, self.smaller_share)
        parties = dict(zip(names, others, strict=True))
        trees = self.params.n_estimators
        return Training(self.records, drawn, own, parties, levels, trees, self.key, self.obfuscation, slots)

    def _check(self) -> None:
        self.params.validate()
        if faults := key_faults(self.key.scheme, self.key.bits, self.obfuscation):
            raise ConfigError("; ".join(faults))
        if not 2 <= self.records <= MOST_RECORDS:
            raise BadInput(f"--records {self.records}: must be from 2 to {MOST_RECORDS}")
        if len(self.columns) < 2:
            raise BadInput("--columns: needs the label holder's number and one for each feature party, as 25,25")
        if not all(0 <= count <= MOST_COLUMNS for count in self.columns) or not all(self.columns[1:]):
            raise BadInput(
                f"--columns {','.join(map(str, self.columns))}: a feature party has 1 to {MOST_COLUMNS}, the label "
                "holder may have 0"
            )
        if not 0 < self.smaller_share <= 0.5:
            raise BadInput(f"--smaller-share {self.smaller_share}: must be above 0 and at most 0.5")
        if self.records >> (self.params.max_depth - 1) < 2:
            raise BadInput(f"--records {self.records}: too few for {self.params.max_depth} levels of splits")


@dataclass(frozen=True)
class Answer:
    """Answer of a simulation."""

    question: Question
    training: Training
    site: Site
    measured: Measurements
    tree: Simulated
    memory: dict[str, Memory]
    verdict: Verdict

    @property
    def seconds(self) -> float:
        """The time of all trees."""
        return self.training.trees * self.tree.seconds


def answer(question: Question, training: Training, site: Site, measured: Measurements) -> Answer:
    """Simulate; the measurements have the question's kind of key. `training`: that of the question.

    Raises:
        BadInput: the site is none.
    """
    kernels = measured.of(question.key, question.obfuscation)
    assert kernels is not None
    sizes = TreeMessages(training, JOB).sizes(site.key_nodes.all_workers)
    tree = simulate(training, site, measured.host, kernels, sizes)
    memory = memory_of(training, site, measured.host, kernels, tree.counts)
    return Answer(question, training, site, measured, tree, memory, judge(tree, site, memory))


def document(found: Answer) -> dict[str, Any]:
    """The answer as JSON types; seconds and bytes are of one tree unless the name says otherwise."""
    tree, training = found.tree, found.training
    operations = {"label holder": label_holder_totals(training)} | {
        name: counts.totals() for name, counts in tree.counts.items()
    }
    return {
        "machine": found.measured.machine,
        "training": {
            "records": training.records,
            "drawn": training.drawn,
            "columns": list(found.question.columns),
            "max_bin": found.question.params.max_bin,
            "trees": training.trees,
            "depth": len(training.levels),
            "scheme": training.key.scheme,
            "key_bits": training.key.bits,
            "obfuscation": training.obfuscation,
            "candidates_per_ciphertext": training.candidates_per_ciphertext,
        },
        "seconds": {"tree": tree.seconds, "streamed": tree.streamed_s, "all_trees": found.seconds},
        "phases": {
            name: {"seconds": each.seconds, "first": each.first, "last": each.last}
            for name, each in ((name, tree.phases[name]) for name in PHASES)
            if each.seconds
        },
        "demands": [
            {"party": each.party, "kind": each.kind, "seconds": each.seconds, "share": each.seconds / tree.seconds}
            for each in found.verdict.demands
        ],
        "saturates_first": found.verdict.first,
        "line_saturates_below_bits_per_s": found.verdict.line_bits_per_s,
        "operations_all_trees": operations,
        "lines": [
            {
                "from": each.sender.name,
                "to": each.receiver.name,
                "bytes": each.line.bytes,
                "messages": each.line.messages,
                "bytes_all_trees": each.line.bytes * training.trees,
            }
            for each in tree.connections
        ],
        "memory_bytes": {
            name: {
                "main": each.main,
                "worker": each.worker,
                "first_node": each.first_node,
                "other_node": each.other_node,
            }
            for name, each in found.memory.items()
        },
        "fits": not found.verdict.too_full,
    }
