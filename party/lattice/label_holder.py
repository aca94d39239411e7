"""Lattice backend of Fed-EINI at the label holder: columns out, encrypted; one sum per record and output back."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from party.config import PartyConfig
from party.eini.blocks import BlockSender
from party.lattice.layout import layout_parcels
from party.prediction.scores_on_disk import Guessed
from party.runtime.context import Tools, have
from party.runtime.job_store import Store
from party.runtime.messages import Rows
from party.runtime.outbox import PARCEL_BYTES
from party.serving.registry import Desk
from treetap.errors import Malformed
from treetap.lattice.columns import NodeColumns, shape_of, widest
from treetap.lattice.kernels import LatticeOwner
from treetap.lattice.key_holder import LatticeKey
from treetap.lattice.seal import scheme_of
from treetap.trees.leaf_entries import GoesLeft
from treetap.trees.paths import Floats
from treetap.wire.v2 import lattice_pb2, prediction_pb2

log = logging.getLogger(__name__)
Ints = npt.NDArray[np.int64]
#: Most bytes of ciphertexts that the first of the chain gets in one block: what may lie there before its step begins.
BLOCK_BYTES = 64 * 1024 * 1024


class LabelHolder(BlockSender):
    """Answers the steps of the label holder."""

    def __init__(
        self, config: PartyConfig, store: Store, tools: Tools, opening: prediction_pb2.OpenModel, desk: Desk
    ) -> None:
        super().__init__(config, store, tools, opening, desk)
        self._shape = shape_of(self.ensemble, config.name, len(self.chain))
        self._parameters = self._shape.parameters()
        self._columns: NodeColumns | None = None
        self._owner: LatticeOwner | None = None

    def lay_out(self) -> None:
        """The columns of the trees."""
        self._columns = NodeColumns(self.ensemble, self._tools.party, scheme_of(self._parameters).modulus)

    async def begin(self) -> None:
        """A key; everybody learns on which of its own turns each column depends."""
        tools, parameters, columns = self._tools, self._parameters, have(self._columns)
        log.info("job %s: %d columns, %s", tools.job, self._shape.columns, parameters)
        key = await tools.offload(lambda: LatticeKey(parameters))
        self._owner = LatticeOwner(tools.engine, key, f"{tools.job}/{tools.attempt}")
        await self._owner.start()
        # what the owner encrypts has half the size of a ciphertext: its uniform half is a seed
        fitting = 2 * BLOCK_BYTES // parameters.ciphertext_bytes
        self.size = min(self.size, self._shape.records(parameters.degree, fitting))
        public = lattice_pb2.LatticeKey(public=await tools.offload(key.public_bytes))
        for party in self.chain:
            await tools.outbox.send(party, "lattice_key", [public])
            await tools.outbox.send(party, "column_layout", layout_parcels(columns, party))

    async def sums(self, number: int, rows: Rows) -> tuple[Floats, Guessed | None]:
        """A block of records.

        1. The columns of every tree from the own splits, a tree at a time,
        2. encrypted page by page and sent to the first of the chain while the next ones are encrypted;
        3. the last of the chain returns a sum for each output, which is opened; D(root) is added.
        """
        tools, owner, columns, n = self._tools, have(self._owner), have(self._columns), len(rows)
        pages = self._shape.pages(n, self._parameters.degree)
        total = sum(len(page.outputs) for page in pages)
        base = np.zeros((self._shape.outputs, n), dtype=np.int64)
        numbers = columns.pages(self.directions(rows), n, pages, base)
        series = tools.outbox.open(self.chain[0], "lattice_columns", number)
        sent = 0
        groups = _in_groups(numbers, 2 * PARCEL_BYTES // self._parameters.ciphertext_bytes)
        async for part in owner.encrypt(groups):
            await series.put(lattice_pb2.LatticeColumns(ciphertexts=part))
            sent += len(part)
            self.advance(n * sent // total)
        await series.close()
        tools.ledger.operations["encryptions"] += sent
        tools.ledger.ciphertexts["lattice_columns"] += sent
        last = self.chain[-1]
        answers: list[bytes] = []
        async for parcel in tools.mailbox.series(last, "lattice_sums", number, 0):
            answers += parcel.protocol.lattice.lattice_sums.ciphertexts
        if len(answers) != self._shape.outputs:
            raise Malformed(f"{last}, block {number}: {len(answers)} sums of {self._shape.outputs} outputs")
        try:
            opened = await owner.open(answers, widest(pages) * n)
            tools.ledger.operations["decryptions"] += len(answers)
            return columns.weights(opened, base), None
        except Malformed as failure:
            raise Malformed(f"{last}, block {number}: {failure}") from failure

    def spare(self, goes_left: GoesLeft, n: int) -> Floats:
        """Bits by which the candidate leaves of n records exceed the possible sums, (n,)."""
        return have(self._columns).spare(goes_left, n)

    async def close(self) -> None:
        """The workers forget the key; it was nowhere else."""
        if self._owner is not None:
            owner, self._owner = self._owner, None
            await owner.close()


def _in_groups(pages: Iterable[Ints], count: int) -> Iterator[list[Ints]]:
    """The numbers of so many ciphertexts at a time, (slots,) each, in the order of pages and outputs."""
    group: list[Ints] = []
    for page in pages:
        for numbers in page:
            group.append(numbers)
            if len(group) >= count:
                yield group
                group = []
    if group:
        yield group
