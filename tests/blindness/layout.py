"""The cost of a training, computed from the job, the number of records, the parties' candidates and the topology alone.

The messages are made anew with bitmaps and ciphertexts of zeros; nothing of a table enters.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from google.protobuf.message import Message

from tests.blindness.observed import Crossed
from tests.simulator import decisions_in
from treetap.lattice.histogram_parameters import HistogramParameters
from treetap.lattice.histogram_scheme import parameters_of, rounded_up
from treetap.protocols.job_spec import params_of
from treetap.protocols.key_options import KeyKind
from treetap.trees import sampling
from treetap.trees.params import BoostingParams, ForestParams
from treetap.trees.slots import Slots
from treetap.wire.frame import filled, name_of
from treetap.wire.v2 import (
    alignment_pb2,
    boosting_pb2,
    exchange_pb2,
    forest_pb2,
    growth_pb2,
    setup_pb2,
    types_pb2,
)


@dataclass
class Topology:
    """Trees as the coordinator saw them: owners of the nodes level by level, and the nodes that were built."""

    owners: dict[tuple[int, int], list[tuple[int, str]]] = field(default_factory=dict)  # (tree, level) → (node, owner)
    build: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    frontier: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    trees: int = 0

    @classmethod
    def of(cls, crossed: Iterable[Crossed]) -> Topology:
        """The topology by the label holder's results, which hold nothing else of the trees."""
        found = cls()
        level = 0
        for _, _, step, message in crossed:
            growth = getattr(getattr(message, "result", None), "growth", None)
            if growth is None:
                continue
            at = found.trees, level
            answer = name_of(message.result)
            if step == "choose_splits":
                found.owners[at] = [(each.node, each.owner) for each in decisions_in(growth)]
            if answer == "relayed_children":
                level += 1
                relayed = growth.relayed_children
                found.build[found.trees, level] = list(relayed.build)
                found.frontier[found.trees, level] = list(relayed.frontier)
            if answer == "finished_tree":
                found.build[found.trees, 0] = [1]
                found.trees, level = found.trees + 1, 0
        return found

    def built(self, tree: int) -> dict[int, list[int]]:
        """Level → nodes that were summed."""
        return {level: nodes for (t, level), nodes in self.build.items() if t == tree and nodes}

    def splits(self, tree: int) -> dict[int, str]:
        """Node → owner."""
        return {node: owner for (t, _), each in sorted(self.owners.items()) if t == tree for node, owner in each}


class Cost:
    """Messages, bytes, ciphertexts and operations by party."""

    def __init__(
        self,
        spec: setup_pb2.JobSpec,
        records: int,
        shapes: Mapping[str, Sequence[tuple[int, bool]]],
        slots: Slots,
        *,
        by_sets: bool = False,
    ) -> None:
        """`shapes`: (bins, has missing) of each column, by feature party; a party has one worker.

        `by_sets`: words of a tree's root serve all of its nodes.
        """
        self._spec, self._records, self._shapes = spec, records, shapes
        self._params = params_of(spec)
        key = KeyKind.of(spec)
        self._width = key.ciphertext_bytes
        self._groups, self._widths = slots.groups_per_plaintext(key.plain_bits), slots.widths
        self._agreed = self._lattice(slots) if key.on_lattice else None
        self._by_sets = by_sets
        #: Words for sets serve all trees.
        repeated = isinstance(self._params, ForestParams) and not self._params.bootstrap
        agreed = self._agreed
        self._once = by_sets and repeated and agreed is not None and agreed.queries <= agreed.nodes_per_secret
        self.sent: Counter[tuple[str, str, str]] = Counter()  # (from, to, step) → bytes
        self.messages: Counter[tuple[str, str, str]] = Counter()
        self.ciphertexts: dict[str, Counter[str]] = defaultdict(Counter)
        self.operations: dict[str, Counter[str]] = defaultdict(Counter)
        self._handles: Counter[str] = Counter()

    def of(self, topology: Topology) -> Cost:
        """The cost of a training with these trees."""
        holder, members = self._spec.aggregator, list(self._spec.feature_parties)
        forest = self._spec.parameters.WhichOneof("protocol") == "forest"
        for party in members:
            digest = alignment_pb2.RecordDigest(digest=bytes(32), records=self._records)
            self._send(party, holder, "record_digest", [digest])
            self._send(holder, party, "record_digest", [digest])
            modulus = bytes(self._spec.key_bits // 8)
            key = setup_pb2.PublicKeyMessage(
                scheme=self._spec.scheme,
                modulus=modulus,
                slot_widths=self._widths,
                proof=bytes(KeyKind.of(self._spec).proof_bytes),
            )
            if self._agreed is not None:
                key.candidates, key.queries = self._agreed.candidates, self._agreed.queries
                key.hiding = 40  # the least that a policy may ask for
            self._send(holder, party, "public_key", [key])
        if self._agreed is not None:
            self._draw_seed([holder, *members])
            if self._once:
                self._words(self._agreed, 0, 0, [1])
        elif forest:
            self._encrypt(members, "encrypted_labels", forest_pb2.EncryptedLabels, 0, self._records)
        for tree in range(topology.trees):
            for party in members:
                often = int(self._params.drawn(tree, self._records).max()) if forest else 0
                samples = [
                    growth_pb2.SampledRecords(chunks=[self._bitmap()], times=times)
                    for times in (range(1, often + 1) if forest else [0])
                ]
                self._send(holder, party, "sampled_records", samples, tree)
            if not forest and self._agreed is None:
                self._encrypt(members, "gradients", boosting_pb2.Gradients, tree, self._summed(tree))
            asked = 0
            for level, nodes in sorted(topology.built(tree).items()):
                if self._agreed is not None:
                    self._of_words(self._agreed, tree, level, nodes, asked)
                    asked += len(nodes)
                    continue
                for party in members:
                    self._sums(party, tree, level, nodes)
            self._levels(topology, tree)
        return self

    def _levels(self, topology: Topology, tree: int) -> None:
        holder, members = self._spec.aggregator, list(self._spec.feature_parties)
        handles: dict[int, int] = {}
        for (t, level), decisions in sorted(topology.owners.items()):
            for party in members:
                own = [node for node, owner in decisions if owner == party and t == tree]
                for node in own:
                    handles[node] = self._handles[party]
                    self._handles[party] += 1
                children = [growth_pb2.Child(node=node, handle=handles[node], left=self._bitmap()) for node in own]
                if own:
                    won = [growth_pb2.WonSplit(node=node, candidates=[2**32 - 1]) for node in own]
                    self._send(
                        holder, party, "won_splits", [growth_pb2.WonSplits(owner=party, splits=won)], tree, level
                    )
                    self._send(party, holder, "children", [growth_pb2.Children(children=children)], tree, level)
        splits = topology.splits(tree)
        for (t, level), frontier in sorted(topology.frontier.items()):
            if t == tree and frontier:
                for party in members:
                    spaces = [
                        growth_pb2.NodeSpace(node=node, records=self._bitmap())
                        for node in frontier
                        if splits[node >> 1] != party
                    ]
                    bodies = [growth_pb2.InstanceSpaces(spaces=spaces)] if spaces else [growth_pb2.InstanceSpaces()]
                    self._send(holder, party, "instance_spaces", bodies, tree, level)
        for party in members:
            paths = growth_pb2.LeafPaths(leaves=[_path(leaf, party, splits, handles) for leaf in _leaves(splits)])
            self._send(holder, party, "leaf_paths", [paths], tree)

    def _summed(self, tree: int) -> int:
        """The records that a tree sums over: by the seed and the number of records."""
        params, n = self._params, self._records
        if isinstance(params, ForestParams):
            return int(params.drawn(tree, n).sum())
        assert isinstance(params, BoostingParams)
        return int(sampling.rows(params.seed, tree, n, params.subsample, params.training_rows(n)).sum())

    def _encrypt(self, members: Sequence[str], kind: str, body: type[Message], tree: int, count: int) -> None:
        holder = self._spec.aggregator
        for party in members:
            block = body(first=0, count=count, ciphertexts=bytes(count * self._width))  # type: ignore[call-arg]
            self._send(holder, party, kind, [block], tree)
        self.operations[holder]["encryptions"] += count
        self.ciphertexts[holder][kind] += count * len(members)

    def _sums(self, party: str, tree: int, level: int, nodes: Sequence[int]) -> None:
        shapes, holder = self._shapes[party], self._spec.aggregator
        candidates = _candidates(shapes)
        packed = -(-candidates * len(nodes) // self._groups)
        sums = growth_pb2.CandidateSums(nodes=nodes, candidates=candidates, ciphertexts=bytes(packed * self._width))
        self._send(party, holder, "candidate_sums", [sums], tree, level)
        self.operations[holder]["decryptions"] += packed
        self.operations[party] += Counter(
            additions=self._summed(tree) * len(shapes) + len(nodes) * candidates, packings=packed, obfuscators=packed
        )
        self.ciphertexts[party]["candidate_sums"] += packed

    def _lattice(self, slots: Slots) -> HistogramParameters:
        params = self._params
        assert isinstance(params, BoostingParams | ForestParams)
        both = params.bins_per_node  # else of two siblings one
        nodes = params.n_estimators * ((1 << params.max_depth) - 1 if both else 1 << (params.max_depth - 1))
        largest = max(map(_candidates, self._shapes.values()))
        candidates, queries = rounded_up(largest), rounded_up(nodes)
        return parameters_of(self._records, slots, params.max_bin, candidates, queries, 1)

    def _draw_seed(self, parties: Sequence[str]) -> None:
        for party in parties[1:]:
            count = setup_pb2.CandidateCount(candidates=_candidates(self._shapes[party]), hiding=40)
            self._send(party, parties[0], "candidate_count", [count])
        for party in parties:
            committed = setup_pb2.SeedCommitment()
            for digest in committed.DESCRIPTOR.fields:
                setattr(committed, digest.name, bytes(32))
            for other in set(parties) - {party}:
                self._send(party, other, "seed_commitment", [committed])
                self._send(party, other, "seed_nonce", [setup_pb2.SeedNonce(nonce=bytes(32))])

    def _words(self, agreed: HistogramParameters, tree: int, level: int, nodes: Sequence[int]) -> None:
        """Words of all records and of a block of zeros for each of these nodes."""
        holder, members, n = self._spec.aggregator, list(self._spec.feature_parties), self._records
        count = n + 4096
        words = bytes(13 * agreed.words * count)
        queries = [growth_pb2.EncryptedWords(node=node, count=count, ciphertexts=words) for node in nodes]
        self.operations[holder]["encryptions"] += len(nodes) * (n + 4096)
        self.ciphertexts[holder]["encrypted_words"] += len(members) * len(nodes) * (n + 4096)
        for party in members:
            if queries:
                self._send(holder, party, "encrypted_words", queries, tree, level)

    def _of_words(self, agreed: HistogramParameters, tree: int, level: int, nodes: Sequence[int], asked: int) -> None:
        """Words for the nodes with which a query begins, and halves of the candidates of all.

        `asked`: nodes of the tree before these.
        """
        holder, n = self._spec.aggregator, self._records
        serves = agreed.nodes_per_secret if self._by_sets else 1
        if not self._once:
            self._words(agreed, tree, level, [node for k, node in enumerate(nodes, asked) if not k % serves])
        renewed = sum(self._by_sets or not (asked + k) % agreed.queries_per_second_half for k in range(len(nodes)))
        for party in self._spec.feature_parties:
            candidates = _candidates(self._shapes[party])
            firsts = bytes(-(-candidates * agreed.words * agreed.reply_bits // 8) * len(nodes))
            seconds = bytes(candidates * agreed.second_half_bytes * renewed)
            sums = growth_pb2.CandidateSums(
                nodes=nodes, candidates=candidates, ciphertexts=firsts, second_halves=seconds
            )
            self._send(party, holder, "candidate_sums", [sums], tree, level)
            self.operations[holder]["openings"] += candidates * len(nodes)
            self.operations[party] += Counter(
                additions=len(nodes) * n * len(self._shapes[party]),
                hidden=renewed * candidates,
                answered=len(nodes) * candidates,
            )
            self.ciphertexts[party]["candidate_sums"] += candidates * (agreed.words * len(nodes) + renewed)

    def _send(self, sender: str, to: str, kind: str, bodies: Sequence[Message], tree: int = 0, level: int = 0) -> None:
        for part, body in enumerate(bodies):
            frame = exchange_pb2.PeerMessage(
                job="job",
                attempt=1,
                round=tree,
                stage=level,
                part=part,
                last=part + 1 == len(bodies),
                job_digest=bytes(32),
            )
            self.messages[sender, to, kind] += 1
            self.sent[sender, to, kind] += filled(frame, kind, body).ByteSize()

    def _bitmap(self) -> types_pb2.RecordChunk:
        return types_pb2.RecordChunk(start=0, span=self._records, bitmap=bytes(-(-self._records // 8)))


def _candidates(shapes: Sequence[tuple[int, bool]]) -> int:
    return sum(2 * bins - 1 if missing else bins - 1 for bins, missing in shapes)


def _leaves(splits: Mapping[int, str], node: int = 1) -> list[int]:
    """From left to right."""
    return [*_leaves(splits, 2 * node), *_leaves(splits, 2 * node + 1)] if node in splits else [node]


def _path(leaf: int, party: str, splits: Mapping[int, str], handles: Mapping[int, int]) -> growth_pb2.LeafPath:
    above = [(leaf >> up, leaf >> (up - 1)) for up in range(leaf.bit_length() - 1, 0, -1)]
    branches = [
        types_pb2.Branch(handle=handles[parent], left=child % 2 == 0)
        for parent, child in above
        if splits[parent] == party
    ]
    return growth_pb2.LeafPath(branches=branches)
