"""Trees grown at a label holder, whatever they are for: candidate sums in, splits picked, leaves filled.

What is encrypted and when, the formulas and the scores are the protocols' own: `party.boosting`, `party.forest`. Their
tables say which step may follow which; from `begin_tree(t)` on they have these lines in common:

after                may come
begin_tree(t)        choose_splits(t, 0)
choose_splits(t, l)  apply_splits(t, l) if it won any, relay_children(t, l), finish_tree(t) if nothing split
apply_splits(t, l)   relay_children(t, l)
relay_children(t, l) choose_splits(t, l+1), finish_tree(t)
finish_tree(t)       store_tree(t)
store_tree(t)        begin_tree(t+1), publish
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np

from party.alignment.steps import Alignment
from party.config import PartyConfig
from party.growth.handles import Handles
from party.growth.label_state import Book, stored_trees
from party.growth.paths import leaf_paths
from party.growth.split_table import TreeColumns, Vault
from party.runtime.context import Step, Tools, done, have
from party.runtime.messages import Rows, space_parcels, take_children
from party.runtime.steps import Order, StepId
from party.setup.steps import bin_features, bind_table, load_labels, load_table, make_key, send_key, table_config
from treetap.errors import BadInput, DataError, Malformed, OutOfOrder, PlaintextOverflow
from treetap.models.own_split import OwnSplit
from treetap.paillier.key_holder import Owner
from treetap.paillier.secret_key import SecretKey
from treetap.paillier.slots import Slots
from treetap.protocols.job_spec import taking_part
from treetap.protocols.registry import training_name
from treetap.tables.labels import Labels
from treetap.tables.reading import Table
from treetap.trees.criterion import Rule
from treetap.trees.ensemble import Tree, importance_by_owner
from treetap.trees.growing_tree import GrowingTree, Ints
from treetap.trees.params import TreeParams
from treetap.trees.tree_bins import left_sums_of
from treetap.wire.frame import result
from treetap.wire.v2 import control_pb2, growth_pb2, setup_pb2, types_pb2


class GrowingLabelHolder(ABC):
    """Answers the steps of the label holder for one attempt at a job. It is party number 0 in every tie."""

    def __init__(self, config: PartyConfig, tools: Tools, spec: setup_pb2.JobSpec, params: TreeParams) -> None:
        self._config, self._tools, self._spec, self._params = config, tools, spec, params
        self._feature_parties = list(spec.feature_parties)
        self._parties = [spec.label_holder, *self._feature_parties]
        self._labels: Labels | None = None
        self._book: Book | None = None
        self._vault: Vault | None = None
        self._secret: SecretKey | None = None
        self._owner: Owner | None = None
        self._tree: _Tree | None = None
        self._finished: Tree | None = None
        self._handles = Handles()
        self._order = Order(("prepare", 0, 0))
        self._alignment = Alignment(tools, self._parties, spec.alignment, self._order, then=("bin", 0, 0))
        self.steps: Mapping[str, Step] = {
            "prepare": self.prepare,
            **self._alignment.steps,
            "bin": self.bin,
            "make_keys": self.make_keys,
            "begin_tree": self.begin_tree,
            "choose_splits": self.choose_splits,
            "apply_splits": self.apply_splits,
            "relay_children": self.relay_children,
            "finish_tree": self.finish_tree,
            "store_tree": self.store_tree,
            "publish": self.publish,
        }

    # --- what each protocol says for itself

    @abstractmethod
    async def begin_tree(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Step 1 of a tree, which ends with `_grow`."""

    @abstractmethod
    def _check_labels(self, labels: Labels) -> None:
        """`DataError` if the labels do not fit the job."""

    @abstractmethod
    def _open_book(self, labels: Labels) -> Book:
        """Scores as they were after the last stored tree."""

    @abstractmethod
    def _slots(self, labels: Labels) -> Slots:
        """The layout of one record's plaintext, each slot wide enough for the sum over all records."""

    @abstractmethod
    def _after_keys(self) -> StepId:
        """What comes next when the keys are made and trees are to be grown."""

    @abstractmethod
    def _too_wide(self, labels: Labels, bits: int) -> str:
        """What to say of a record that does not fit a plaintext, and what helps."""

    def _complete(self, sums: Ints) -> Ints:
        """Candidate sums as the rule wants them, from the slots that were opened (nodes, candidates, slots)."""
        return sums

    # --- steps

    async def prepare(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Read table and labels; say how far the job has come and how many trees it wants."""
        self._order.check(("prepare", request.round, request.stage))
        config = table_config(self._config, self._spec.table)
        table = await load_table(self._tools, config, with_label=True, missing=self._params.missing)
        await bind_table(self._tools, table)
        self._fitting_slots(self._labels_of(table))  # faults of the labels are said now, not after the alignment
        aligned = self._alignment.begin(table, keep=True)
        store = self._tools.store
        trees, scored = await self._tools.offload(store.trees), stored_trees(store)
        if len(trees) < scored:
            raise DataError(
                f"{store.folder}: shard.jsonl holds {len(trees)} trees, but the scores are those after {scored}; "
                "bring a back-up of shard.jsonl back, or cancel the job"
            )
        self._handles = Handles(len(tree["own"]) for tree in trees)
        return result(setup_pb2.Prepared(stored_rounds=scored, published=store.published, aligned_attempt=aligned))

    async def bin(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Bin the own columns of the aligned records, once for the job, and take their labels."""
        self._order.check(("bin", request.round, request.stage))
        table = self._alignment.aligned
        labels = self._labels = self._labels_of(table)
        book = self._book = self._open_book(labels)
        binned = await bin_features(self._tools, table, self._params.max_bin)
        self._vault = Vault(self._tools.party, table.columns, binned)
        self._order.then(("make_keys", 0, 0), ("publish", 0, 0))
        return result(setup_pb2.Binned(rounds=book.planned, stopped=book.stopped))

    async def make_keys(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Make or reload the key pair; the public key goes to the feature parties, the secret one to the workers."""
        self._order.check(("make_keys", request.round, request.stage))
        slots = self._fitting_slots(have(self._labels))
        self._secret = await make_key(self._tools, self._spec.key_bits)
        token = f"{self._tools.job}/{self._tools.attempt}"
        self._owner = Owner(self._tools.engine, self._secret, slots, self._spec.obfuscation, token)
        await self._owner.start()
        await send_key(self._tools, self._secret, slots, self._feature_parties)
        self._order.then(self._after_keys(), ("publish", 0, 0))
        return done()

    async def choose_splits(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Step 3 of a tree: open the candidates, add the own ones, pick per node."""
        t, level = request.round, request.stage
        self._order.check(("choose_splits", t, level))
        tree = self._growing(t)
        growing = tree.growing
        rows = [growing.rows[node] for node in growing.build]
        own = await self._tools.offload(lambda: left_sums_of(tree.columns.bins, tree.values, growing.build, rows))
        offered, there = [own], taking_part(self._spec, t)
        for party in self._feature_parties:
            build = growing.build
            offered.append(await self._open_candidates(party, t, level, build) if party in there else own[:, :0])
        growing.take_candidates(offered)
        choices = await self._tools.offload(growing.choose)
        decisions = [
            # Its own splits the label holder knows itself; its candidates are not permuted, so nobody may see them.
            growth_pb2.Decision(node=c.node, owner=self._parties[c.party], candidates=c.candidates if c.party else [])
            for c in choices
        ]
        if any(choice.party == 0 for choice in choices):
            self._order.then(("apply_splits", t, level))
        elif choices:
            self._order.then(("relay_children", t, level))
        else:
            self._order.then(("finish_tree", t, 0))
        return result(growth_pb2.ChosenSplits(decisions=decisions))

    async def apply_splits(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Step 4 of a tree, for the splits that the label holder itself has won."""
        t, level = request.round, request.stage
        self._order.check(("apply_splits", t, level))
        tree = self._growing(t)
        for node, choice in tree.growing.choices.items():
            if choice.party == 0:
                split, left = tree.columns.split(node, tree.growing.rows[node], choice.candidates)
                tree.splits.append(split)
                tree.growing.split(node, split.handle, left)
        self._order.then(("relay_children", t, level))
        return done()

    async def relay_children(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Step 4 of a tree: take the owners' children, relay those that may be split to whoever does not know."""
        t, level = request.round, request.stage
        self._order.check(("relay_children", t, level))
        tree = self._growing(t)
        growing = tree.growing
        for number, party in enumerate(self._feature_parties, start=1):
            expected = {node for node, choice in growing.choices.items() if choice.party == number}
            if not expected:
                continue
            parcels = self._tools.mailbox.series(party, "children", t, level)
            children = await take_children(parcels, len(tree.values))
            if set(children) != expected:
                raise Malformed(f"{party} sent children of nodes {sorted(children)}, expected {sorted(expected)}")
            for node, (handle, left) in children.items():
                growing.split(node, handle, left)
        growing.next_level(level + 1)
        if growing.frontier:
            await asyncio.gather(*(self._relay(party, t, level + 1) for party in taking_part(self._spec, t)))
            self._order.then(("choose_splits", t, level + 1))
        else:
            self._order.then(("finish_tree", t, 0))
        return result(growth_pb2.RelayedChildren(frontier=growing.frontier, build=growing.build))

    async def finish_tree(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Step 5 of a tree: leaves, new scores, and to each feature party its own turns per leaf, be it none."""
        t = request.round
        self._order.check(("finish_tree", t, request.stage))
        tree = self._growing(t)
        growing, book = tree.growing, have(self._book)
        leaves = growing.leaves()
        self._finished = growing.finished(t, book.outputs(t), self._parties)
        book.add(self._finished, {leaf: growing.rows[leaf] for leaf in leaves})
        for number, party in enumerate(self._feature_parties, start=1):
            await self._tools.outbox.send(party, "leaf_paths", leaf_paths(growing.made, number, leaves), round=t)
        self._order.then(("store_tree", t, 0))
        return result(
            growth_pb2.FinishedTree(
                leaves=len(leaves),
                metrics=[types_pb2.NamedMetric(name=k, value=v) for k, v in book.metrics.items()],
                stop=book.stopped,
            )
        )

    async def store_tree(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """The tree and the scores after it are on disk before the answer; asked last of all parties."""
        t = request.round
        self._order.check(("store_tree", t, request.stage))
        tree, finished = self._growing(t), have(self._finished)
        shard = {"tree": finished.to_dict(), "own": [split.to_dict() for split in tree.splits]}
        self._tools.store.add_tree(shard, t)
        self._handles.stored(t, len(tree.splits))
        have(self._book).save()
        self._tree = self._finished = None
        self._tools.mailbox.forget(t)
        self._order.then(("begin_tree", t + 1, 0), ("publish", 0, 0))
        return done()

    async def publish(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Progress becomes a model; the secret key of the job is deleted with what only the training needed."""
        self._order.check(("publish", request.round, request.stage))
        if not self._tools.store.published:
            book, table = have(self._book), self._alignment.aligned
            trees = await self._tools.offload(self._stored)
            owners = importance_by_owner(book.used(trees))
            manifest = {
                "role": "label_holder",
                "job": self._tools.job,
                "party": self._tools.party,
                "protocol": training_name(self._spec),
                "feature_parties": self._feature_parties,
                "missing": None if np.isnan(self._params.missing) else self._params.missing,
                **table.described(),
                "classes": have(self._labels).classes,
                "trees": len(trees),
                **book.summary(),
                "importance_by_party": {
                    name: {"weight": each.weight, "gain": each.gain, "cover": each.cover}
                    for name, each in owners.items()
                },
            }
            self._tools.store.publish(manifest)
        await self.close()
        self._order.then()
        return done()

    async def close(self) -> None:
        """The workers forget the key."""
        if self._owner is not None:
            owner, self._owner = self._owner, None
            await owner.close()

    def _stored(self) -> list[Tree]:
        return [Tree.from_dict(line["tree"]) for line in self._tools.store.trees()]

    def _labels_of(self, table: Table) -> Labels:
        column = have(table_config(self._config, self._spec.table).label)
        labels = load_labels(self._tools, table, column, self._params.objective)
        self._check_labels(labels)
        return labels

    def _fitting_slots(self, labels: Labels) -> Slots:
        """`BadInput` where one record does not fit a plaintext of the job's key."""
        slots = self._slots(labels)
        try:
            slots.groups_per_plaintext(self._spec.key_bits)
        except PlaintextOverflow as failure:
            raise BadInput(self._too_wide(labels, slots.bits)) from failure
        return slots

    def _columns(self, t: int) -> Vault:
        """The vault, which numbers the handles of this tree on from those of the stored ones."""
        vault = have(self._vault)
        vault.next_handle_is(self._handles.first_of(t))
        return vault

    def _grow(self, t: int, values: Ints, rule: Rule, columns: TreeColumns, *, subtract: bool) -> None:
        """Plant a tree."""
        growing = GrowingTree(values, rule, self._params.max_depth, subtract=subtract)
        self._tree = _Tree(t, growing, columns, values)
        self._order.then(("choose_splits", t, 0))

    async def _open_candidates(self, party: str, t: int, level: int, build: list[int]) -> Ints:
        """The candidate sums of one feature party: (nodes built, candidates, slots) int64."""
        nodes: list[int] = []
        packed: list[bytes] = []
        candidates: int | None = None
        async for parcel in self._tools.mailbox.series(party, "candidate_sums", t, level):
            body = parcel.growth.candidate_sums
            nodes += body.nodes
            packed.append(body.ciphertexts)
            candidates = body.candidates if candidates is None else candidates
            if body.candidates != candidates:
                raise Malformed(f"{party} changed its number of candidates within tree {t}, level {level}")
        if nodes != build or candidates is None:
            raise Malformed(f"{party} sent candidates of nodes {nodes}, expected {build}")
        sums = await have(self._owner).open(b"".join(packed), len(nodes) * candidates)
        self._tools.ledger.operations["decryptions"] += (
            sum(map(len, packed)) // have(self._secret).public.ciphertext_bytes
        )
        return self._complete(sums.reshape(len(nodes), candidates, sums.shape[1]))

    async def _relay(self, party: str, t: int, level: int) -> None:
        """To one feature party the instance spaces of the frontier that it did not make itself."""
        growing, number = self._growing(t).growing, self._parties.index(party)
        spaces: list[tuple[int, Rows]] = [
            (node, growing.rows[node]) for node in growing.frontier if growing.made[node >> 1].party != number
        ]
        total = len(self._growing(t).values)
        for node, rows in spaces:
            self._tools.law.check_space(self._tools.party, party, node, len(rows))
        await self._tools.outbox.send(party, "instance_spaces", space_parcels(spaces, total), round=t, stage=level)

    def _growing(self, t: int) -> _Tree:
        if self._tree is None or self._tree.index != t:
            raise OutOfOrder(f"tree {t} is not being grown at {self._tools.party}")
        return self._tree


class _Tree:
    """A tree under construction with the label holder's own columns and splits."""

    def __init__(self, index: int, growing: GrowingTree, columns: TreeColumns, values: Ints) -> None:
        self.index, self.growing, self.columns, self.values = index, growing, columns, values
        self.splits: list[OwnSplit] = []
