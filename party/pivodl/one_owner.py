"""The role of a party where one party has all labels and gets the bins of all records (§V-F): no encryption.

It is the modification with which the paper compares PIVODL with other systems. The party with the labels learns the
order of the records in every column of every other party, which takes part only if its policy permits that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from party.alignment.steps import ALIGNED, ALIGNMENT
from party.config import PartyConfig
from party.pivodl.candidate_bins import CODE_BYTES, SourceBins, own_bins, receive_bins, send_bins
from party.pivodl.expected import of_any_job
from party.pivodl.growing_tree import Division, GrowingTree
from party.pivodl.job import PivodlJob
from party.pivodl.metrics import closed, named
from party.pivodl.ownership import share_ownership
from party.pivodl.setting import Rows, Setting
from party.runtime.context import StepContext, empty_result
from party.runtime.expected import Expected, Receives
from party.runtime.messages import batches
from party.runtime.step_order import NEXT_ROUND, OPENING, RESUMED, THIS_ROUND, Next, StepTable, steps_of_phase
from party.runtime.steps import Step
from party.setup.steps import PUBLISHED, UNPUBLISHED
from treetap.errors import Malformed
from treetap.process.together import together
from treetap.protocols.growth import MOST_COLUMNS
from treetap.protocols.job_spec import params_as
from treetap.trees.ensemble import ROOT
from treetap.trees.fixed_gains import best_of, weights_of
from treetap.trees.label_thresholds import admissible, stopped_by
from treetap.trees.pivodl_params import PivodlParams
from treetap.trees.shared_label_loss import Moments, SharedLabelLoss
from treetap.wire.frame import result
from treetap.wire.v2 import control_pb2, pivodl_pb2, setup_pb2

STEPS: StepTable = {
    OPENING: (Next("prepare"),),
    "prepare": (Next(ALIGNMENT, when=UNPUBLISHED), Next("bin", when=ALIGNED), Next("publish", when=PUBLISHED)),
    ALIGNMENT: (Next("bin"),),
    "bin": (Next("share_ownership"), Next("publish")),
    "share_ownership": (Next("share_bins"),),
    "share_bins": (Next("grow_from_bins", RESUMED), Next("publish")),
    "grow_from_bins": (Next("close_tree", THIS_ROUND),),
    "close_tree": (Next("store_tree", THIS_ROUND),),
    "store_tree": (Next("grow_from_bins", NEXT_ROUND), Next("publish")),
    "publish": (),
}
#: Bytes of a node in the message of a grown tree.
_NODE = 96


class OneOwner:
    """One party's part in a job whose labels are all with one party."""

    def __init__(self, config: PartyConfig, context: StepContext, spec: setup_pb2.JobSpec) -> None:
        setting = self._setting = Setting(context, spec, params_as(spec, PivodlParams))
        self._job = job = PivodlJob(config, setting, STEPS)
        self._bins: dict[str, SourceBins] = {}
        self.steps: Mapping[str, Step] = {
            "prepare": job.prepare,
            **steps_of_phase(job.order, job.alignment),
            "bin": job.bin,
            "share_ownership": self.share_ownership,
            "share_bins": self.share_bins,
            "grow_from_bins": self.grow_from_bins,
            "close_tree": self.close_tree,
            "store_tree": job.store_tree,
            "publish": job.publish,
        }

    @property
    def receives(self) -> Receives:
        """See `Role.receives`."""
        setting, records = self._setting, self._job.records
        nodes = 2 << setting.params.max_depth
        return {
            **self._job.receives,
            **of_any_job(setting, records),
            "record_bins": Expected(setting.others, lambda: MOST_COLUMNS * (CODE_BYTES * records() + _NODE)),
            "grown_tree": Expected(setting.others, lambda: nodes * _NODE, range(setting.params.n_estimators)),
        }

    @property
    def _holder(self) -> str:
        """The party with the labels."""
        return self._setting.owners[0]

    async def share_ownership(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Exchange which party labels which records: one party labels all."""
        self._job.order.check(request)
        setting = self._setting
        await share_ownership(setting, self._job.own)
        moments = None
        if setting.params.needs_moments:
            # The others score no record, and are not told the labels' mean.
            setting.knows_scales = setting.me == self._holder
            moments = Moments.of(self._job.own.values if setting.knows_scales else np.zeros(1))
        setting.loss = SharedLabelLoss(setting.params, moments)
        self._job.begin_scores()
        self._job.order.done(request)
        return empty_result()

    async def share_bins(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Send the party with the labels the bins of all records; there, receive them."""
        self._job.order.check(request)
        setting = self._setting
        columns = self._job.split_table.columns_of_tree(0, setting.params, permuted=False)
        everything = np.arange(setting.records, dtype=np.int64)
        if setting.me != self._holder:
            await send_bins(setting, columns, self._holder, everything)
        else:
            for party in setting.others:
                self._bins[party] = await receive_bins(setting, party, setting.records)
            self._bins[setting.me] = own_bins(columns, everything)
        self._job.order.first_rounds = self._job.own.rounds
        self._job.order.done(request)
        return empty_result()

    async def grow_from_bins(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Grow a tree alone, and send every party the shape and its own splits; elsewhere, receive these."""
        self._job.order.check(request)
        setting, t = self._setting, request.round
        self._job.own.begin_tree(t)
        self._job.split_table.next_handle_is(self._job.stored.first_handle(t))
        setting.tree = GrowingTree(t, setting.records, self._holder)
        if setting.me == self._holder:
            chosen = await setting.context.offload(self._grow)
            nodes = await self._numbered(t)
            await together(*(self._send(t, party, nodes, chosen) for party in setting.others))
        else:
            found: list[pivodl_pb2.GrownNode] = []
            async for message in setting.received(self._holder, "grown_tree", t):
                found += message.nodes
            self._check_shape(found)
            nodes, chosen = found, {node.node: node.candidate for node in found if node.HasField("candidate")}
        self._take(nodes, chosen)
        self._job.order.done(request)
        return empty_result()

    def _grow(self) -> dict[int, int]:
        """Node → its split's candidate in its source's canonical order; rows and leaf weights go into the tree."""
        setting, tree, own = self._setting, self._setting.tree, self._job.own
        params, scale = setting.params, setting.loss.scale
        values = np.concatenate([own.derivatives, np.ones((setting.records, 1), dtype=np.int64)], axis=1)
        tree.sums[ROOT] = own.derivatives.sum(axis=0)
        chosen: dict[int, int] = {}
        level = [ROOT]
        for depth in range(params.max_depth + 1):
            following: list[int] = []
            for node in level:
                best = self._best(node, values) if depth < params.max_depth else None
                if best is None:
                    tree.weights[node] = weights_of(tree.sums[node], scale, params)
                    own.add(tree.rows[node], tree.weights[node])
                    continue
                source, candidate, left = best
                chosen[node] = candidate
                tree.divisions[node] = Division(source, 0, setting.me)
                bins = self._bins[source]
                goes = bins.candidates.goes_left(bins.codes[tree.rows[node]], bins.candidates.at(candidate))
                tree.rows[2 * node], tree.rows[2 * node + 1] = tree.rows[node][goes], tree.rows[node][~goes]
                tree.sums[2 * node], tree.sums[2 * node + 1] = left, tree.sums[node] - left
                following += [2 * node, 2 * node + 1]
            level = following
        return chosen

    def _best(self, node: int, values: Rows) -> tuple[str, int, Rows] | None:
        """Source, candidate and left sums of a node's best split; ties go to the lowest source and candidate.

        `values`: (N, 2K + 1) g, h and 1 of each record.
        """
        setting, tree = self._setting, self._setting.tree
        params, rows = setting.params, tree.rows[node]
        least, paper, totals = params.instance_threshold, params.instance_check == "paper", {setting.me: len(rows)}
        if len(rows) < params.min_samples or (not paper and stopped_by(totals, least)):
            return None
        found: tuple[int, str, int, Rows] | None = None
        for source in setting.parties:
            sums = self._bins[source].left_sums(values, [rows])[0]
            left, counts = sums[:, :-1], {setting.me: sums[:, -1]}
            allowed = np.flatnonzero(admissible(counts, totals, source, least, paper=paper))
            best = best_of(left[allowed], tree.sums[node], setting.loss.scale, params)
            if best is not None and (found is None or best.gain > found[0]):
                place = int(allowed[best.places[0]])
                found = best.gain, source, place, left[place]
        return None if found is None else found[1:]

    async def _numbered(self, t: int) -> list[pivodl_pb2.GrownNode]:
        """The tree's nodes, each split under the next handle of its source, after those of the stored trees."""
        tree = self._setting.tree
        stored = (await self._job.stored.read())[:t]
        handles = Counter(node["source"] for line in stored for node in line["nodes"])
        nodes = []
        for node, division in sorted(tree.divisions.items()):
            nodes.append(pivodl_pb2.GrownNode(node=node, source=division.source, handle=handles[division.source]))
            handles[division.source] += 1
        return nodes + [pivodl_pb2.GrownNode(node=leaf) for leaf in sorted(tree.weights)]

    async def _send(self, t: int, party: str, nodes: list[pivodl_pb2.GrownNode], chosen: Mapping[int, int]) -> None:
        def told(node: pivodl_pb2.GrownNode) -> pivodl_pb2.GrownNode:
            own = pivodl_pb2.GrownNode()
            own.CopyFrom(node)
            if node.source == party:
                own.candidate = chosen[node.node]
            return own

        parts = [pivodl_pb2.GrownTree(nodes=batch) for batch in batches(map(told, nodes))]
        await self._setting.context.outbox.send(party, "grown_tree", parts, round=t)

    def _check_shape(self, nodes: list[pivodl_pb2.GrownNode]) -> None:
        """`Malformed` unless the nodes are a tree: a root, both children of every split, no other, none too deep."""
        numbers = sorted(each.node for each in nodes)
        children = [child for each in nodes if each.source for child in (2 * each.node, 2 * each.node + 1)]
        deepest = 1 << (self._setting.params.max_depth + 1)
        if numbers != sorted([ROOT, *children]) or numbers[-1] >= deepest:
            raise Malformed(f"{self._holder} sent nodes that are no tree of the job's depth")

    def _take(self, nodes: list[pivodl_pb2.GrownNode], chosen: Mapping[int, int]) -> None:
        """Enter the tree's shape, and the own splits in the split table."""
        setting, tree = self._setting, self._setting.tree
        columns = self._job.split_table.columns_of_tree(tree.index, setting.params, permuted=False)
        for node in nodes:
            if not node.source:
                tree.leaves[node.node] = self._holder
                continue
            if node.source not in setting.parties:
                raise Malformed(f"{self._holder} sent a split of {node.source!r}, which is no party of the job")
            tree.divisions[node.node] = Division(node.source, node.handle, self._holder)
            if node.source != setting.me:
                continue
            if node.node not in chosen or chosen[node.node] >= len(columns.candidates):
                raise Malformed(f"{self._holder} sent a split of this party without one of its candidates")
            everything = np.arange(setting.records, dtype=np.int64)
            rows = tree.rows.get(node.node, everything)  # others do not know which records reach a node
            split, left = columns.split(node.node, rows, [chosen[node.node]])
            if split.handle != node.handle:
                raise Malformed(f"{self._holder} numbers this party's splits otherwise than this party")
            tree.splits.append(split)
            context = setting.context
            if context.recorder.on and setting.me == self._holder:
                right = np.setdiff1d(rows, left, assume_unique=True)
                entry = columns.own_record(split, left, right, setting.records)
                context.recorder.own(tree.index, 0, context.attempt, entry)

    async def close_tree(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """At the party with the labels, report the metrics."""
        self._job.order.check(request)
        setting, own = self._setting, self._job.own
        own.metrics = named(setting, list(own.figures()), setting.records) if setting.me == self._holder else {}
        self._job.order.done(request)
        return result(closed(own.metrics))

    async def close(self) -> None:
        """Hold nothing beyond the session."""
