"""Plays of `column_privacy`: a feature party's own sums with their noise, from the ciphertexts on, as they are opened.

The party's columns, its noise (`ColumnNoise`) and the sums of its scheme (`SumsOfCiphertexts`, `SumsOfShared`) are
those of a job. Of a lattice the words of sums are those of plaintexts: they have the layout, the addition of noise and
the rounding of a job's, and nothing hides them. For every stage a party is asked twice; it is to refuse the second
time.
"""

from __future__ import annotations

import logging
import random
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from treetap.additive.sums.key_holder import KeyHolder
from treetap.arrays import Array, Floats, Ints, Words
from treetap.errors import Malformed
from treetap.lab.epsilon.games import Neighbours, OfBudget, finish, in_memory
from treetap.lattice.histogram_parameters import MODULUS_BITS, HistogramParameters
from treetap.lattice.histogram_scheme import Opener, added, kernels, parameters_of, radices
from treetap.lattice.histogram_sets import HistogramSets
from treetap.native.histogram_arrays import HALF_BITS
from treetap.party.boosting.ciphers import BoostingLayout, SumsOfCiphertexts
from treetap.party.forest.ciphers import ForestLayout, SumsOfShared
from treetap.party.growth import lattice_sums
from treetap.party.growth.column_noise import ColumnNoise
from treetap.party.growth.feature_party import ExpectedRecords, OwnTree
from treetap.party.growth.split_table import SplitTable
from treetap.party.policy import Policy
from treetap.party.setup.steps import make_key
from treetap.privacy.discrete_gaussian import discrete_gaussians
from treetap.protocols.key_options import BREAKABLE_BITS, LATTICE, PAILLIER, KeyKind
from treetap.trees.binning import bin_table, encode
from treetap.trees.candidates import Shape
from treetap.trees.ensemble import ROOT
from treetap.trees.params import BoostingParams, ForestParams
from treetap.trees.slots import Slots
from treetap.trees.tree_bins import left_sums
from treetap.wire.v2 import exchange_pb2, setup_pb2
from treetap.workers.engines import Engine

_LABEL_HOLDER, _PARTY = "label holder", "feature party"
#: Records of a job, one of them the canary: more than a tree has levels. Columns of the party, classes of a forest,
#: queries.
_RECORDS, _COLUMNS, _CLASSES, _QUERIES = 9, 2, 3, 1 << 10


class SumNoiseMeasured(OfBudget):
    """Noise on a feature party's sums (`treetap.party.growth.column_noise`), of sums alone: left sets are the
    neighbours'.

    The canary lies in one bin of a column or in another, in a node of each level and not in the one beside it; its
    numbers are at their bounds. In boosting its g has a sign of its own in each tree. Of a `forest`, which draws with
    replacement, it is the record that is drawn most, with a class of its own.
    """

    no_one_run: ClassVar[str] = "all nodes of a job are one canary's, so that one run has no second canary"
    carried_out: ClassVar[tuple[str, ...]] = (
        "treetap.party.boosting.ciphers",
        "treetap.party.forest.ciphers",
        "treetap.party.growth.column_noise",
        "treetap.party.growth.feature_party",
        "treetap.party.growth.lattice_sums",
        "treetap.party.growth.split_table",
        "treetap.additive.sums.joint_cells",
        "treetap.additive.sums.kernels",
        "treetap.additive.sums.tree_sums",
        "treetap.lattice.histogram_parameters",
        "treetap.lattice.histogram_scheme",
        "treetap.lattice.histogram_sets",
        "treetap.lattice.histogram_sums",
        "treetap.privacy.column_privacy",
        "treetap.privacy.discrete_gaussian",
        "treetap.privacy.zcdp",
    )
    runs: Annotated[int, Field(ge=0, le=10_000_000)] = 1000
    mechanism: Literal["column_privacy"]
    delta: Annotated[float, Field(gt=0, lt=0.1)] = 1e-6
    trees: Annotated[int, Field(ge=1, le=1000)] = 1
    max_depth: Annotated[int, Field(ge=1, lt=_RECORDS)] = 2
    bins: Annotated[int, Field(ge=2, le=128)] = 4
    forest: bool = False
    scheme: Literal["paillier", "lattice"] = "paillier"

    @property
    def numbers(self) -> int:
        return self.trees * (2 * self.max_depth - 1) * _COLUMNS * (self.bins - 1) * _CLASSES

    def neighbours(self, chance: random.Random) -> Neighbours:
        job = _Job(self, chance)
        return job.change, job.play


class _Job:
    """A job with one canary.

    Attributes:
        change: (d,) of the sums by tree, node, candidate and slot, each in units of its slot's bound.
    """

    def __init__(self, row: SumNoiseMeasured, chance: random.Random) -> None:
        sizes: dict[str, Any] = {"n_estimators": row.trees, "max_depth": row.max_depth, "max_bin": row.bins}
        seed, lattice = chance.randrange(1 << 31), row.scheme == LATTICE
        self._params: BoostingParams | ForestParams = (
            ForestParams(**sizes, seed=seed, bootstrap=True, subsample=1.0, colsample_bytree=1.0)
            if row.forest
            else BoostingParams(**sizes)
        )
        layout = (
            ForestLayout(self._params, lattice)
            if isinstance(self._params, ForestParams)
            else BoostingLayout(self._params)
        )
        self._layout, self._lattice = layout, lattice
        own = {"epsilon": row.epsilon, "delta": row.delta, "trees": row.trees}
        self._config: Any = SimpleNamespace(
            state=Path(),
            defences=SimpleNamespace(column_privacy=SimpleNamespace(**own)),
            policy=Policy(),
        )
        self._spec = setup_pb2.JobSpec(aggregator=_LABEL_HOLDER, feature_parties=[_PARTY], scheme=row.scheme)
        self._context = in_memory(
            party=_PARTY,
            mailbox=self,
            costs=SimpleNamespace(operations=Counter()),
            progress=SimpleNamespace(done=0, total=0),
            engine=Engine(),
            store=SimpleNamespace(published=True),  # so that no budget is looked at
        )
        # the draws of records by tree, and the values of each record
        self._drawn = np.array([self._params.drawn(t, _RECORDS) for t in range(row.trees)])
        canary = int((self._drawn**2).sum(axis=0).argmax())
        self._noise, self._slots = finish(self._attempt(chance))
        assert self._noise.noise is not None
        self._bounds = np.array(self._noise.noise.bounds, dtype=np.int64)
        self._values = np.zeros((row.trees, _RECORDS, _CLASSES), dtype=np.int64)
        self._values[:, :, -1] = 1
        if row.forest:
            self._values[:, canary] = np.eye(_CLASSES, dtype=np.int64)[chance.randrange(_CLASSES)]
        else:
            self._values[:, canary] = self._bounds
            self._values[:, canary, 0] *= [chance.choice((-1, 1)) for _ in range(row.trees)]
        self._place(canary, row, chance)
        exact = [self._exact(table) for table in self._tables]
        self._without = exact[0]
        self.change: Floats = ((exact[1] - exact[0]) / self._bounds).reshape(-1)
        self._secret: Any = None if lattice else _key()
        self._holder: KeyHolder | None = None

    def _place(self, canary: int, row: SumNoiseMeasured, chance: random.Random) -> None:
        """Draw the canary's path and bins: the records of nodes, and the party's columns on both neighbours."""
        left = np.setdiff1d(np.arange(_RECORDS), [canary])
        self._stages, self._rows, node = [[ROOT]], {ROOT: np.arange(_RECORDS)}, ROOT
        for level in range(1, row.max_depth):
            node = 2 * node + chance.randrange(2)
            self._stages.append(sorted([node, node ^ 1]))
            self._rows[node] = np.sort(np.append(left[level:], canary))
            self._rows[node ^ 1] = left[level - 1 : level]
        codes, self._tables = np.zeros((_RECORDS, _COLUMNS)), []
        features = bin_table(np.tile(np.arange(row.bins)[:, None], _COLUMNS), ["a", "b"], row.bins).features
        column = chance.randrange(_COLUMNS)
        for code in chance.sample(range(row.bins), 2):
            codes[canary, column] = code
            self._tables.append(SplitTable(_PARTY, ["a", "b"], encode(codes, features)))

    def _exact(self, table: SplitTable) -> Ints:
        """The exact sums (trees, nodes, candidates, S) of a neighbour."""
        columns = table.columns_of_tree(0, self._params, permuted=False)
        rows = [self._rows[node] for nodes in self._stages for node in nodes]
        return np.array(
            [
                left_sums(columns.codes, columns.candidates, values * drawn[:, None], rows)
                for values, drawn in zip(self._values, self._drawn, strict=True)
            ]
        )

    async def _attempt(self, chance: random.Random) -> tuple[ColumnNoise, Any]:
        """The noise of an attempt, and the layout of a plaintext."""

        def draws(count: int, variance: Any) -> Ints:
            return discrete_gaussians(count, variance, chance.randbytes)

        noise = ColumnNoise(self._context, self._config, self._spec, self._params, self._layout, draws)
        await noise.take_others(_RECORDS)
        return noise, noise.implied(_RECORDS, _CLASSES, 0)

    def play(self, given: bool, plays: int, chance: random.Random) -> Floats:
        with warnings.catch_warnings():  # of such a key
            warnings.filterwarnings("ignore", message=f"a {BREAKABLE_BITS}-bit")
            seen = finish(self._seen(self._tables[given], plays, chance))
        return np.asarray(((seen - self._without) / self._bounds).reshape(plays, -1))

    async def _seen(self, table: SplitTable, plays: int, chance: random.Random) -> Floats:
        """The opened sums (plays, trees, nodes, candidates, S) of attempts."""
        attempts = [(await self._attempt(chance))[0] for _ in range(plays)]
        seen = np.empty((plays, *self._without.shape))
        for t, drawn in enumerate(self._drawn):
            # a secret order of each tree, which no claim rests on, would hide noise that trees share
            columns = table.columns_of_tree(t, self._params, permuted=False)
            expected = ExpectedRecords(_LABEL_HOLDER, t, drawn, self._params.fewest_drawn, self._params.max_depth)
            tree = OwnTree(t, columns, drawn > 0, expected)
            tree.rows.update(self._rows)
            sums = await self._begun(tree)
            for play, noise in enumerate(attempts):
                sums._noise, told = noise, []
                for stage, nodes in enumerate(self._stages):
                    answers = [await self._opened(sums, tree, stage, nodes)]
                    with suppress(Malformed):
                        answers.append(await self._opened(sums, tree, stage, nodes))
                    told.append(np.mean(answers, axis=0).reshape(len(nodes), len(columns.candidates), -1))
                seen[play, t] = np.concatenate(told)
        return seen

    async def _begun(self, tree: OwnTree) -> Any:
        """The party's sums of a tree, its ciphertexts received."""
        sampled = np.arange(_RECORDS)
        if self._lattice:
            return self._words(tree)
        if self._holder is None:
            self._public = self._secret.public
            self._holder = KeyHolder(self._context.engine, self._secret, self._slots, "standard")
            await self._holder.start()
        table = SimpleNamespace(training=_RECORDS)
        job: Any = SimpleNamespace(key=SimpleNamespace(public=self._public, slots=self._slots), split_table=table)
        if isinstance(self._params, ForestParams):
            drawn = self._drawn[tree.index], False
            shared = SumsOfShared(self._context, self._spec, job, self._noise, lambda: drawn)
            await shared.take_shared()
            return shared
        sums = SumsOfCiphertexts(self._context, self._spec, job, self._noise)
        await sums.begin(tree.index, tree.columns, sampled)
        return sums

    async def series(self, _: str, kind: str, t: int, stage: int) -> AsyncIterator[exchange_pb2.PeerMessage]:
        """The label holder's ciphertexts of a tree, as a mailbox has them."""
        del stage
        assert self._holder is not None
        async for first, ciphertexts in self._holder.encrypt_blocks(list(self._values[t].T)):
            message = exchange_pb2.PeerMessage()
            body = message.protocol
            block = body.forest.encrypted_labels if kind == "encrypted_labels" else body.boosting.gradients
            block.first, block.count = first, len(ciphertexts) // self._public.ciphertext_bytes
            block.ciphertexts = ciphertexts
            yield message

    def _words(self, tree: OwnTree) -> Any:
        values = self._values[tree.index] * self._drawn[tree.index][:, None]
        sizes = len(values), self._slots, self._params.max_bin, len(tree.columns.candidates)
        agreed = parameters_of(*sizes, _QUERIES, 1, noised=True)
        job: Any = None
        sums = lattice_sums.SumsOfWords(self._context, self._spec, job, self._noise, once=True)
        way = lattice_sums._Sets(self._context, _LABEL_HOLDER, agreed, b"", None, once=True)
        way._sets = _Unhidden(self._context.engine, agreed, values)
        sums.parameters, sums._way = agreed, way
        return sums

    async def _opened(self, sums: Any, tree: OwnTree, stage: int, nodes: Sequence[int]) -> Ints:
        """The sums (sums, S) of these nodes as a label holder opens them."""
        answer = await sums.sum(tree, stage, nodes)
        if self._lattice:
            sums._answered = 0
            count = len(tree.columns.candidates)
            parts = [_opened(sums.parameters, self._slots, part.ciphertexts, count) async for part in answer]
            return np.concatenate(parts)
        assert self._holder is not None
        return await self._holder.open(answer.ciphertexts, len(nodes) * len(tree.columns.candidates))


class _Unhidden(HistogramSets):
    """Answers for sets of records of values (N, S), which need no words: cells are made of the values."""

    def __init__(self, engine: Engine, parameters: HistogramParameters, values: Ints) -> None:
        super().__init__(engine, parameters, b"")
        self._values, self._received = values, self.expected

    async def _cells(self, rows: Array, columns: Any, shapes: Sequence[Shape]) -> Words:
        cells = np.zeros((sum(radices(shapes)), self._values.shape[1]), dtype=np.int64)
        for first, codes in zip(np.cumsum([0, *radices(shapes)]), columns, strict=False):
            np.add.at(cells, first + codes, self._values[rows])
        return added(self._parameters, cells)

    async def _halves(
        self, rows: Array, columns: Any, shapes: Sequence[Shape], left: Words
    ) -> list[tuple[Words, bytes]]:
        """Words rounded as first halves are, and second halves of zeros."""
        del rows, columns, shapes
        less = MODULUS_BITS - self._parameters.reply_bits
        whole = left[..., 0].astype(object) + (left[..., 1].astype(object) << HALF_BITS)
        rounded = (whole + (1 << (less - 1)) >> less) % (1 << self._parameters.reply_bits)
        return [(rounded.astype(np.uint64), bytes(len(left) * self._parameters.second_half_bytes))]


def _opened(parameters: HistogramParameters, slots: Slots, firsts: bytes, candidates: int) -> Ints:
    """The sums (candidates, S) of first halves without a mask."""
    bits = parameters.reply_bits
    numbers = kernels().read(firsts, (candidates, parameters.words), bits).astype(object)
    moduli = np.array(parameters.moduli, dtype=object)
    residues = (numbers * moduli + (1 << (bits - 1)) >> bits) % moduli
    return Opener(parameters, slots).sums(residues)


@cache
def _key() -> Any:
    """A label holder's key, the same for all plays: sums are opened exactly, whatever it is."""
    log = logging.getLogger(make_key.__module__)
    was, log.disabled = log.disabled, True  # it warns of keys that protect nothing: nothing is to be protected
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        secret = finish(make_key(in_memory(), KeyKind(PAILLIER, BREAKABLE_BITS)))
    log.disabled = was
    return secret
