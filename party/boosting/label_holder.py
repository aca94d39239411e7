"""Boosting at the label holder: gradients out, candidate sums in, splits picked, leaves weighed.

after                may come
prepare              the steps of the alignment, bin if aligned already
alignment            bin
bin                  make_keys, publish
make_keys            begin_tree(t) for the next tree t, publish
begin_tree(t)        choose_splits(t, 0)
choose_splits(t, l)  apply_splits(t, l) if it won any, relay_children(t, l), finish_tree(t) if nothing split
apply_splits(t, l)   relay_children(t, l)
relay_children(t, l) choose_splits(t, l+1), finish_tree(t)
finish_tree(t)       store_tree(t)
store_tree(t)        begin_tree(t+1), publish
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import numpy as np

from party.alignment import Alignment
from party.boosting.growing import GrowingTree, Ints
from party.boosting.scorebook import Scorebook, stored_trees
from party.config import PartyConfig
from party.labels import Labels
from party.parcels import Rows, sampled_parcels, space_parcels, take_children
from party.session import Step, Tools, done, have
from party.setup import (
    bin_features,
    bind_table,
    load_labels,
    load_table,
    make_key,
    send_key,
    table_config,
)
from party.steps import Order
from party.table import Table
from party.vault import OwnSplit, TreeColumns, Vault
from treetap.errors import BadInput, Malformed, OutOfOrder, PlaintextOverflow
from treetap.he.owner import Owner
from treetap.he.packing import Slots, width_for
from treetap.he.secret import SecretKey
from treetap.trees.ensemble import Leaf, Split, Tree, importance_by_owner
from treetap.trees.histogram import left_sums
from treetap.trees.loss import loss_for
from treetap.wire.jobspec import params_from_wire
from treetap.wire.v1 import boosting_pb2, control_pb2, setup_pb2, types_pb2

#: Most leaf paths in one parcel.
LEAVES_PER_PARCEL = 4096


class LabelHolder:
    """Answers the steps of the label holder for one attempt at a job. It is party number 0 in every tie."""

    def __init__(self, config: PartyConfig, tools: Tools, spec: setup_pb2.JobSpec) -> None:
        self._config, self._tools, self._spec = config, tools, spec
        self._params = params_from_wire(spec.boosting)
        self._feature_parties = list(spec.feature_parties)
        self._parties = [spec.label_holder, *self._feature_parties]
        self._labels: Labels | None = None
        self._book: Scorebook | None = None
        self._vault: Vault | None = None
        self._secret: SecretKey | None = None
        self._owner: Owner | None = None
        self._tree: _Tree | None = None
        self._finished: Tree | None = None
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

    async def prepare(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Read table and labels; say how far the job has come and how many trees it wants."""
        self._order.check(("prepare", request.tree, request.level))
        config = table_config(self._config, self._spec.table)
        table = await load_table(self._tools, config, with_label=True, missing=self._params.missing)
        await bind_table(self._tools, table)
        self._slots(self._labels_of(table))  # faults of the labels are said now, not after the alignment
        aligned = self._alignment.begin(table, keep=True)
        store = self._tools.store
        return control_pb2.StepResult(
            prepared=setup_pb2.Prepared(
                stored_trees=stored_trees(store), published=store.published, aligned_attempt=aligned
            )
        )

    async def bin(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Bin the own columns of the aligned records, once for the job, and take their labels."""
        self._order.check(("bin", request.tree, request.level))
        table = self._alignment.aligned
        labels = self._labels = self._labels_of(table)
        loss = loss_for(self._params.objective, len(labels.classes))
        book = self._book = Scorebook(self._params, loss, labels, self._tools.store)
        binned = await bin_features(self._tools, table, self._params.max_bin)
        self._vault = Vault(self._tools.party, table.columns, binned)
        self._order.then(("make_keys", 0, 0), ("publish", 0, 0))
        trees = self._params.n_estimators * book.trees_per_round
        return control_pb2.StepResult(binned=setup_pb2.Binned(trees=trees, stopped=book.stopped))

    async def make_keys(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Make or reload the key pair; the public key goes to the feature parties, the secret one to the workers."""
        self._order.check(("make_keys", request.tree, request.level))
        slots = self._slots(have(self._labels))
        self._secret = await make_key(self._tools, self._spec.key_bits)
        token = f"{self._tools.job}/{self._tools.attempt}"
        self._owner = Owner(self._tools.engine, self._secret, slots, self._spec.obfuscation, token)
        await self._owner.start()
        await send_key(self._tools, self._secret, slots, self._feature_parties)
        self._order.then(("begin_tree", have(self._book).trees, 0), ("publish", 0, 0))
        return done()

    async def begin_tree(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Step 1 of a tree: g, h of the sampled records, packed, encrypted, streamed to every feature party."""
        t = request.tree
        self._order.check(("begin_tree", t, request.level))
        book, vault, owner = have(self._book), have(self._vault), have(self._owner)
        vault.next_handle_is(sum(len(tree["own"]) for tree in self._tools.store.trees()[:t]))
        values, scale, sampled = book.derivatives(t)
        columns = vault.columns_of_tree(t, self._params, permuted=False)
        self._tree = _Tree(t, GrowingTree(values, scale, self._params, len(self._parties)), columns, values)
        rows = np.flatnonzero(sampled)
        outbox = self._tools.outbox
        for party in self._feature_parties:
            await outbox.send(party, "sampled_records", sampled_parcels(rows, len(values)), tree=t)
        streams = [outbox.open(party, "gradients", t) for party in self._feature_parties]
        meter = self._tools.meter
        meter.done, meter.total = 0, len(rows)
        width = have(self._secret).public.ciphertext_bytes
        slots = [np.ascontiguousarray(values[rows, slot]) for slot in range(values.shape[1])]
        async for first, ciphertexts in owner.encrypt_blocks(slots):
            count = len(ciphertexts) // width
            block = boosting_pb2.Gradients(first=first, count=count, ciphertexts=ciphertexts)
            await asyncio.gather(*(stream.put(block) for stream in streams))
            meter.done = first + count
            self._tools.ledger.operations["encryptions"] += count
            self._tools.ledger.ciphertexts["gradients"] += count * len(streams)
        await asyncio.gather(*(stream.close() for stream in streams))
        self._order.then(("choose_splits", t, 0))
        return done()

    async def choose_splits(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Step 3 of a tree: open the candidates, add the own ones, pick per node."""
        t, level = request.tree, request.level
        self._order.check(("choose_splits", t, level))
        tree = self._growing(t)
        growing = tree.growing
        own_codes, own_candidates = tree.columns.codes, tree.columns.candidates
        nodes = [growing.rows[node] for node in growing.build]
        own = await self._tools.offload(lambda: left_sums(own_codes, own_candidates, tree.values, nodes))
        offered = [own]
        for party in self._feature_parties:
            offered.append(await self._open_candidates(party, t, level, growing.build))
        growing.take_candidates(offered)
        choices = await self._tools.offload(growing.choose)
        decisions = [
            # Its own splits the label holder knows itself; its candidates are not permuted, so nobody may see them.
            boosting_pb2.Decision(node=c.node, owner=self._parties[c.party], candidates=c.candidates if c.party else [])
            for c in choices
        ]
        if any(choice.party == 0 for choice in choices):
            self._order.then(("apply_splits", t, level))
        elif choices:
            self._order.then(("relay_children", t, level))
        else:
            self._order.then(("finish_tree", t, 0))
        return control_pb2.StepResult(chosen_splits=boosting_pb2.ChosenSplits(decisions=decisions))

    async def apply_splits(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Step 4 of a tree, for the splits that the label holder itself has won."""
        t, level = request.tree, request.level
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
        t, level = request.tree, request.level
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
            await asyncio.gather(*(self._relay(number, t, level + 1) for number in range(1, len(self._parties))))
            self._order.then(("choose_splits", t, level + 1))
        else:
            self._order.then(("finish_tree", t, 0))
        return control_pb2.StepResult(
            relayed_children=boosting_pb2.RelayedChildren(frontier=growing.frontier, build=growing.build)
        )

    async def finish_tree(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Step 5 of a tree: leaf weights, new scores, and to each feature party its own turns per leaf."""
        t = request.tree
        self._order.check(("finish_tree", t, request.level))
        tree = self._growing(t)
        growing, book = tree.growing, have(self._book)
        leaves = growing.leaves()
        self._finished = Tree(
            index=t,
            outputs=book.outputs(t),
            splits=tuple(
                Split(made.node, self._parties[made.party], made.handle, made.gain, made.cover)
                for _, made in sorted(growing.made.items())
            ),
            leaves=tuple(
                Leaf(leaf, tuple(float(w) for w in growing.weights(leaf)), growing.cover(leaf)) for leaf in leaves
            ),
        )
        book.add(self._finished, {leaf: growing.rows[leaf] for leaf in leaves})
        for number, party in enumerate(self._feature_parties, start=1):
            await self._tools.outbox.send(party, "leaf_paths", self._leaf_paths(number, leaves), tree=t)
        self._order.then(("store_tree", t, 0))
        return control_pb2.StepResult(
            finished_tree=boosting_pb2.FinishedTree(
                leaves=len(leaves),
                metrics=[types_pb2.NamedMetric(name=k, value=v) for k, v in book.metrics.items()],
                stop=book.stopped,
            )
        )

    async def store_tree(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """The tree and the scores after it are on disk before the answer; asked last of all parties."""
        t = request.tree
        self._order.check(("store_tree", t, request.level))
        tree, finished = self._growing(t), have(self._finished)
        shard = {"tree": finished.to_dict(), "own": [split.to_dict() for split in tree.splits]}
        self._tools.store.add_tree(shard, t)
        have(self._book).save()
        self._tree = self._finished = None
        self._tools.mailbox.forget(t)
        self._order.then(("begin_tree", t + 1, 0), ("publish", 0, 0))
        return done()

    async def publish(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Progress becomes a model; the secret key of the job is deleted with what only the training needed."""
        self._order.check(("publish", request.tree, request.level))
        if not self._tools.store.published:
            book, table = have(self._book), self._alignment.aligned
            trees = [Tree.from_dict(tree["tree"]) for tree in self._tools.store.trees()]
            owners = importance_by_owner(book.used(trees))
            manifest = {
                "role": "label_holder",
                "job": self._tools.job,
                "party": self._tools.party,
                "protocol": self._spec.protocol,
                "feature_parties": self._feature_parties,
                "columns": table.columns,
                "missing": None if np.isnan(self._params.missing) else self._params.missing,
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

    def _labels_of(self, table: Table) -> Labels:
        column = have(table_config(self._config, self._spec.table).label)
        labels = load_labels(self._tools, table, column, self._params.objective)
        loss_for(self._params.objective, len(labels.classes)).check(labels.values)
        return labels

    def _slots(self, labels: Labels) -> Slots:
        """One record's plaintext: g_0.., h_0.., 1, each wide enough for the sum over all records."""
        params, records, classes = self._params, len(labels.values), len(labels.classes)
        outputs = params.outputs_per_tree(classes)
        g_max, h_max = loss_for(params.objective, classes).bounds()
        widths = [width_for(records, g_max)] * outputs + [width_for(records, h_max)] * outputs + [width_for(records, 1)]
        slots = Slots(tuple(widths))
        try:
            slots.groups_per_plaintext(self._spec.key_bits)
        except PlaintextOverflow as failure:
            raise BadInput(
                f"{classes} classes of {records} records need {slots.bits} bits in one plaintext, a key of "
                f"{self._spec.key_bits} bits has fewer: use multi_strategy = 'one_output_per_tree' or a longer key"
            ) from failure
        return slots

    async def _open_candidates(self, party: str, t: int, level: int, build: list[int]) -> Ints:
        """The candidate sums of one feature party: (nodes built, candidates, slots) int64."""
        nodes: list[int] = []
        packed: list[bytes] = []
        candidates: int | None = None
        async for parcel in self._tools.mailbox.series(party, "candidate_sums", t, level):
            body = parcel.candidate_sums
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
        return sums.reshape(len(nodes), candidates, sums.shape[1])

    async def _relay(self, number: int, t: int, level: int) -> None:
        """To one feature party the instance spaces of the frontier that it did not make itself."""
        growing = self._growing(t).growing
        spaces: list[tuple[int, Rows]] = [
            (node, growing.rows[node]) for node in growing.frontier if growing.made[node >> 1].party != number
        ]
        total = len(self._growing(t).values)
        party = self._parties[number]
        for node, rows in spaces:
            self._tools.law.check_space(self._tools.party, party, node, len(rows))
        await self._tools.outbox.send(party, "instance_spaces", space_parcels(spaces, total), tree=t, level=level)

    def _leaf_paths(self, number: int, leaves: list[int]) -> list[boosting_pb2.LeafPaths]:
        """For each leaf in order, the turns at the splits of one party."""
        made = self._growing(have(self._tree).index).growing.made
        paths = []
        for leaf in leaves:
            turns = []
            depth = leaf.bit_length() - 1
            for up in range(depth, 0, -1):
                parent, child = leaf >> up, leaf >> (up - 1)
                if made[parent].party == number:
                    turns.append(boosting_pb2.Turn(handle=made[parent].handle, left=child % 2 == 0))
            paths.append(boosting_pb2.LeafPath(turns=turns))
        return [
            boosting_pb2.LeafPaths(leaves=paths[start : start + LEAVES_PER_PARCEL])
            for start in range(0, len(paths), LEAVES_PER_PARCEL)
        ]

    def _growing(self, t: int) -> _Tree:
        if self._tree is None or self._tree.index != t:
            raise OutOfOrder(f"tree {t} is not being grown at {self._tools.party}")
        return self._tree


class _Tree:
    """A tree under construction with the label holder's own columns and splits."""

    def __init__(self, index: int, growing: GrowingTree, columns: TreeColumns, values: Ints) -> None:
        self.index, self.growing, self.columns, self.values = index, growing, columns, values
        self.splits: list[OwnSplit] = []
