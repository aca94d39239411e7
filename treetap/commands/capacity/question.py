"""The question to `treetap capacity`: a training, the machines that it runs on, and where costs are kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from treetap.commands.options import option
from treetap.errors import BadInput, PlaintextOverflow

if TYPE_CHECKING:
    from treetap.commands.capacity.training import Training
    from treetap.protocols.key_options import KeyKind

MOST_RECORDS, MOST_COLUMNS = 10**10, 1 << 12
MBIT = "MBIT/S"


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """A boosting job as far as its costs depend on it."""

    PANEL: ClassVar = "Training"

    records: int = option(0, "Records that all parties have; 0 with --measure: only measure.", min=0, max=MOST_RECORDS)
    columns: str = option("25,25", "Columns of the label holder, then of each feature party.", metavar="N,N,...")
    max_bin: int = option(32, "Bins of each column, as in the job.")
    missing: bool = option(False, "Columns lack values: twice as many candidates.", "--missing")
    trees: int = option(100, "n_estimators of the job.")
    depth: int = option(3, "max_depth of the job.")
    subsample: float = option(1.0, "Part of the records that a tree draws.")
    smaller_share: float = option(
        0.5,
        "Part of a node's records in its smaller child, the one that is summed: 0.5 is the most.",
        min=0.001,
        max=0.5,
    )
    scheme: str = option("paillier", "paillier, okamoto-uchiyama or lattice.")
    key_bits: int = option(0, "Length of the key, 2048 unless it is given; a lattice has none.")
    obfuscation: str = option("", "short-exponent (as by default), half-length or standard; a lattice has none.")

    def key(self) -> KeyKind:
        """The label holder's, or none on a lattice. Raises `BadInput` if there is no such key."""
        from treetap.protocols.key_options import KEY_BITS, LATTICE, KeyKind, bin_faults, key_faults

        keyed = self.scheme != LATTICE
        bits, obfuscation = (
            (self.key_bits or KEY_BITS, self.randomisation) if keyed else (self.key_bits, self.obfuscation)
        )
        if faults := [*key_faults(self.scheme, bits, obfuscation), *bin_faults(self.scheme, self.max_bin)]:
            raise BadInput("; ".join(faults))
        return KeyKind(self.scheme, bits)

    @property
    def randomisation(self) -> str:
        """That of ciphertexts, where there are some."""
        from treetap.protocols.key_options import OBFUSCATIONS

        return self.obfuscation or OBFUSCATIONS[0]

    def training(self) -> Training:
        """The training in which every node above the depth splits.

        Raises:
            BadInput: it is none, or a record does not fit a plaintext.
        """
        from treetap.commands.capacity.training import PartyColumns, Training, agreed_sizes, full_levels
        from treetap.trees.candidates import Shape
        from treetap.trees.params import BoostingParams

        params = BoostingParams(
            n_estimators=self.trees, max_depth=self.depth, max_bin=self.max_bin, subsample=self.subsample
        )
        params.validate()
        key, columns = self.key(), whole_numbers("--columns", self.columns)
        if len(columns) < 2 or not all(columns[1:]) or max(columns) > MOST_COLUMNS:
            raise BadInput(
                f"--columns {self.columns}: needs the label holder's number, which may be 0, and 1 to {MOST_COLUMNS} "
                "for each feature party, as 25,25"
            )
        if self.records >> (self.depth - 1) < 2:
            raise BadInput(f"--records {self.records}: too few for {self.depth} levels of splits")
        own, *others = [PartyColumns((Shape(self.max_bin, self.missing),) * count) for count in columns]
        names = ["feature party"] if len(others) == 1 else [f"feature party {k + 1}" for k in range(len(others))]
        drawn = round(self.records * self.subsample)
        levels = full_levels(drawn, self.depth, columns, self.smaller_share)
        parties = dict(zip(names, others, strict=True))
        if key.on_lattice:
            agreed = agreed_sizes(params, self.records, others)
            return Training(self.records, params, own, parties, levels, key, "", agreed)
        training = Training(self.records, params, own, parties, levels, key, self.randomisation)
        try:
            training.candidates_per_ciphertext  # noqa: B018 # none fits
        except PlaintextOverflow as fault:
            raise BadInput(f"{fault}: use a longer key") from None
        return training


@dataclass(frozen=True, kw_only=True)
class Site:
    """The machines of all parties, and the lines between them."""

    PANEL: ClassVar = "Machines"

    nodes: str = option("1,1", "Machines of the label holder and of each feature party.", metavar="N[,N]")
    cores: int = option(16, "Processors of a machine.", min=1)
    workers: int = option(0, "Worker processes on a machine; 0: one for each processor.", min=0)
    memory: float = option(64.0, "Memory of a machine.", min=0.001, metavar="GB")
    bandwidth: float = option(1000.0, "Of a party's line to the others, in each direction.", min=0.001, metavar=MBIT)
    delay: float = option(5.0, "Of a message between parties, one way.", min=0, max=600_000, metavar="MS")
    inner_bandwidth: float = option(10_000.0, "Between the machines of one party.", min=0.001, metavar=MBIT)
    cluster_holds_key: bool = option(
        False,
        "The label holder's policy says so too: it encrypts on all its machines, else on the first.",
        "--cluster-holds-key",
    )
    one_machine: bool = option(False, "All parties share one machine, as in an experiment.", "--one-machine")

    @property
    def machines(self) -> tuple[int, int]:
        """Those of the label holder that compute with the key, as it has no other work, and of a feature party.

        Raises:
            BadInput: there are none, or of more than two roles.
        """
        counts = whole_numbers("--nodes", self.nodes)
        if len(counts) > 2 or not all(counts):
            raise BadInput(
                f"--nodes {self.nodes}: one number above 0 for all parties, or the label holder's and the feature "
                "parties'"
            )
        return counts[0] if self.cluster_holds_key else 1, counts[-1]

    @property
    def workers_each(self) -> int:
        """Worker processes on a machine."""
        return self.workers or self.cores


@dataclass(frozen=True, kw_only=True)
class CostOptions:
    """The file of measured costs."""

    PANEL: ClassVar = "Costs"

    measure: bool = option(False, "Measure this machine anew, about 20 s, and keep the file.", "--measure")
    measurements: Path | None = option(
        None, "Measured costs; without it measurements.json in the user's cache folder.", metavar="FILE"
    )


def whole_numbers(option: str, text: str) -> tuple[int, ...]:
    """Whole numbers with commas between.

    Raises:
        BadInput: there is something else.
    """
    parts = text.split(",")
    if not all(part.strip().isdecimal() and len(part) < 10 for part in parts):
        raise BadInput(f"{option} {text}: must be whole numbers with commas between, as 25,25")
    return tuple(int(part) for part in parts)
