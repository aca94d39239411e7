"""The choice of splits on shares of candidate sums: the label holder with each feature party of a tree, stage by stage.

Both children of each pair of siblings take part always, those that cannot be split too: the label holder has a score
for each node that the others' candidates must exceed. Of siblings the left one is summed; shares of the other follow
from those of the parent. What is computed is in `treetap.shares.choice`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TypeAlias

import numpy as np

from treetap.arrays import Ints, Words
from treetap.errors import Disputed, Malformed
from treetap.lattice.histogram_parameters import HistogramParameters
from treetap.native.rings import add, sub
from treetap.party.growth.feature_party import OwnTree
from treetap.party.growth.messages import share_messages, take_shares
from treetap.party.growth.shared_rounds import SharedRounds
from treetap.party.runtime.context import StepContext, required
from treetap.party.setup.steps import ReceivedKey
from treetap.process.together import together
from treetap.protocols.dealing import ACROSS, MOST_OPENED, compared
from treetap.protocols.growth import TreeSizes
from treetap.protocols.job_spec import taking_part
from treetap.shares import streams
from treetap.shares.choice import Owners, Stage, answer, choose, choose_owner, hand_over, inspect, tell
from treetap.shares.dealing import told
from treetap.shares.products import numbers
from treetap.shares.streams import SEED_BYTES, Side
from treetap.shares.tournament import Champions
from treetap.shares.widths import Widths, added, lift
from treetap.trees.ensemble import ROOT
from treetap.trees.exact_rule import ExactRule, NodeBound, SumBits, sum_bits
from treetap.trees.growing_tree import GrowingTree
from treetap.trees.params import TreeParams
from treetap.trees.slots import Slots
from treetap.wire.v2 import growth_pb2, setup_pb2


def widths_of(
    params: TreeParams, slots: Slots, agreed: HistogramParameters, records: int, parties: int, *, counts: bool
) -> Widths:
    """The widths of a job's shares, which all its parties compute alike.

    `records`: of the training; `counts`: the last slot counts them.
    """
    of_classes = params.objective == "gini"
    targets = len(slots.widths) - counts if of_classes else 1
    bits = sum_bits(params, targets, records)  # type: ignore[arg-type] # of either protocol
    return Widths(
        slots=slots.widths,
        signed=0 if of_classes else 1,
        moduli=agreed.moduli,
        value=bits.g,
        weight=bits.h,
        targets=targets,
        count=records.bit_length() if counts else 0,
        numbers=max(agreed.candidates, parties),
    )


#: Pair → the layout of what is dealt for it, and whether the party is the first there.
Layouts: TypeAlias = Mapping[str, tuple[Stage | Owners, bool]]


class Dealt:
    """What a party gets of the dealer for a stage, by pair."""

    def __init__(self, context: StepContext, dealer: str, t: int, stage: int) -> None:
        self._context, self._dealer, self._where = context, dealer, (t, stage)
        self._parts: dict[str, tuple[bytes, bytearray]] = {}
        self._again = context.mailbox.series(dealer, "dealt_again", t, stage)

    async def take(self) -> None:
        """Receive the parts of a stage; `Malformed` where a pair has no seed, or two."""
        async for message in self._context.mailbox.series(self._dealer, "correlations", *self._where):
            self._put(message.growth.correlations)

    async def take_again(self, pairs: Layouts) -> None:
        """Receive other parts of these pairs, whose own ones were opened."""
        for pair in pairs:
            del self._parts[pair]
        for pair, (layout, first) in pairs.items():
            while pair not in self._parts or len(self._parts[pair][1]) < layout.dealt_bytes[first]:
                self._put((await anext(self._again)).growth.dealt_again)

    def _put(self, said: growth_pb2.Correlations) -> None:
        if bool(said.seed) == (said.pair in self._parts):
            t, stage = self._where
            raise Malformed(f"{self._dealer} dealt a pair of stage {stage} of tree {t} without a seed, or with two")
        _, corrections = self._parts.setdefault(said.pair, (said.seed, bytearray()))
        corrections += said.corrections

    async def opened(self, rounds: SharedRounds, pairs: Layouts) -> Layouts:
        """The pairs, of those with one peer, for which both have opened what was dealt: it must not be used.

        Raises as `inspect` does.
        """
        inspections = []
        for pair, (layout, first) in pairs.items():
            side, (seed, corrections) = self.side(pair, layout, first=first), self._parts[pair]
            inspections.append(inspect(side, layout, seed, bytes(corrections)))
        results = await rounds.run(streams.together(*inspections))
        opened = {pair: pairs[pair] for pair, used_up in zip(pairs, results, strict=True) if used_up}
        if opened:
            await rounds.end()
        return opened

    def side(self, pair: str, layout: Stage | Owners, *, first: bool) -> Side:
        """The party's side of a pair; `Malformed` unless there is as much as the layout takes."""
        seed, corrections = self._parts.get(pair, (b"", bytearray()))
        due = layout.dealt_bytes[first]
        if len(seed) != SEED_BYTES or len(corrections) != due:
            raise Malformed(
                f"{self._dealer} dealt {len(corrections)} bytes beside a seed of {len(seed)}, where {due} beside one "
                f"of {SEED_BYTES} are due"
            )
        return Side(first, seed, bytes(corrections))


class Shares:
    """A party's shares of the sums of a tree's nodes, with one peer.

    Attributes:
        widths: of the job.
        candidates: of a node, in a tree of all columns; a tree of fewer has sums of 0 in their place.
    """

    def __init__(self, widths: Widths, candidates: int) -> None:
        self.widths, self.candidates = widths, candidates
        self._lifted: dict[int, Words] = {}  # of the nodes compared at last: (slots, candidates, w)

    def layout(self, asked: Sequence[int]) -> Stage:
        """Of the stage at which the sums of these nodes are made."""
        return Stage(self.widths, self.candidates, len(asked), len(compared(asked)))

    async def lifted(
        self, rounds: SharedRounds, side: Side, asked: Sequence[int], masked: Words
    ) -> tuple[Words, Words, Words | None]:
        """Shares x (targets, nodes, n, w) and y (nodes, n, w) of all nodes compared, by those of packed sums.

        Behind them those of how many records go left (nodes, n, 1), where these are counted.

        `masked`: (asked, candidates of the tree, words).

        Raises:
            Malformed: nodes are asked for that do not follow those before, or there are more candidates than announced.
        """
        before = self._lifted
        if any(node != ROOT and (node % 2 or node >> 1 not in before) for node in asked):
            raise Malformed(f"sums of nodes {list(asked)} are shared, which are no left children of those before")
        if masked.shape[1] > self.candidates:
            raise Malformed(f"{masked.shape[1]} candidates of a node, where {self.candidates} were announced")
        packed = np.zeros((len(asked), self.candidates, self.widths.sum_words), dtype=np.uint64)
        packed[:, : masked.shape[1]] = masked
        values = await rounds.run(lift(side, packed.reshape(-1, self.widths.sum_words), self.widths))
        by_node = values.reshape(len(values), len(asked), self.candidates, -1)
        self._lifted = {node: by_node[:, place] for place, node in enumerate(asked)}
        for node in asked:
            if node != ROOT:
                self._lifted[node ^ 1] = sub(before[node >> 1], self._lifted[node])
        slots = np.stack([self._lifted[node] for node in compared(asked)], axis=1)
        x, *further = np.split(slots, range(self.widths.targets, len(slots)))
        counted = further.pop()[0, ..., :1] if self.widths.count else None
        # of classes each record has one
        return x, further[0][0] if further else reduce(add, x), counted


class LabelHolderChoice:
    """The label holder's part in the choices of an attempt."""

    def __init__(self, context: StepContext, spec: setup_pb2.JobSpec) -> None:
        self._context, self._spec = context, spec
        self._shares: dict[str, Shares] = {}
        self._bounds: dict[int, NodeBound] = {}  # of the nodes compared at last
        self._scores: dict[str, Words] = {}  # by party, shares (2, nodes, w) of these nodes' winners with it

    async def agree(
        self, sizes: TreeSizes, slots: Slots, agreed: HistogramParameters, training: int, *, counts: bool
    ) -> None:
        """Tell the dealer the sizes of the attempt. `training`, `counts`: see `widths_of`."""
        parties, candidates = self._spec.feature_parties, sizes.announced
        widths = widths_of(sizes.params, slots, agreed, training, len(parties), counts=counts)
        self._shares = {party: Shares(widths, max(count, 1)) for party, count in candidates.items()}
        offered = [self._shares[party].candidates for party in parties]
        message = growth_pb2.DealtSizes(candidates=offered, widths=told(widths))
        await self._context.outbox.send(self._spec.dealer, "dealt_sizes", [message])

    def with_lacked(self, party: str, masked: Ints, growing: GrowingTree, number: int, missing_left: slice) -> Ints:
        """Shares of a party's sums, (asked, candidates, words), with records that it lacks on their side.

        `number`: the party's; `missing_left`: the candidates by which missing values go left. A count of records is of
        the party's own.
        """
        if number not in growing.lacking:
            return masked
        widths, whole = self._shares[party].widths, masked.copy()
        sums = growing.lacked_sums(number)[:, : len(widths.slots) - (widths.count > 0)]
        sums = np.pad(sums, [(0, 0), (0, len(widths.slots) - sums.shape[1])])
        for place, plain in enumerate(Slots(widths.slots).encode(list(sums.T))):
            at = whole[place, missing_left].view(np.uint64)
            whole[place, missing_left] = added(at, plain, widths).view(np.int64)
        return whole

    async def choose(self, t: int, stage: int, growing: GrowingTree, masked: Mapping[str, Ints]) -> dict[int, str]:
        """The owners of nodes that feature parties win, by the label holder's own choices in a tree.

        `masked`: by party of the tree, in the order of the job, the words of shares of packed sums, (asked, candidates,
        words).

        1. Open, with each party, one of ten parts that were dealt, and have others in their place, of which one of ten
           is opened too.
        2. Choose with each party among its candidates, and the own ones or the least gain.
        3. With several, get fresh shares of their winners, and choose among these with the first party.
        4. Tell each party the places of the nodes that it has won.
        """
        if not masked:
            return {}
        parties = list(masked)
        rounds, sides, best_of = await self._champions(t, stage, growing, masked)
        nodes, widths, own = [*self._bounds], self._shares[parties[0]].widths, [*self._bounds.values()]
        if len(parties) == 1:
            (party,) = parties
            await rounds[party].run(tell(sides[party], best_of[party]))
            won = await rounds[party].run(answer(sides[party], None, len(nodes)))
            await rounds[party].end()
            return {node: party for node, mine in zip(nodes, won.tolist(), strict=True) if mine}
        handing = (rounds[party].run(hand_over(sides[party], best)) for party, best in best_of.items())
        choosing = choose_owner(sides[ACROSS], await together(*handing), own, widths)
        owners = required(await rounds[parties[0]].run(choosing))
        telling = (
            rounds[party].run(tell(sides[party], best_of[party], owners == number))
            for number, party in enumerate(parties, start=1)
        )
        await together(*telling)
        await together(*(with_party.end() for with_party in rounds.values()))
        return {node: parties[owner - 1] for node, owner in zip(nodes, owners.tolist(), strict=True) if owner}

    async def best_sides(self, growing: GrowingTree, masked: Mapping[str, Ints]) -> dict[str, tuple[int, int, int]]:
        """By party the number of its candidates, and Σg and Σh of the best one's lighter side, by which it was chosen.

        Of a screening, at the root: among its own candidates alone, each of which has to exceed the least gain. Both
        sums are 0 where none does. `masked`: see `choose`.

        Raises:
            Malformed: a party's share of the score is not that of a candidate.
        """
        rounds, *_ = await self._champions(0, 0, growing, masked)
        await together(*(with_party.end() for with_party in rounds.values()))
        rule, (bound,), sides = required(growing.exact_rule), self._bounds.values(), {}
        for party in masked:
            (opened,) = await self._scores_opened(0, 0, party, [ROOT])
            num, den = (int.from_bytes(part.tobytes(), "little") for part in opened)
            side = (0, 0) if (num, den) == (bound.N0, bound.D0) else rule.lighter_side(bound, num, den)
            if side is None:
                raise Malformed(f"{party} has sent what is no share of the score of a candidate")
            sides[party] = self._shares[party].candidates, *side
        return sides

    async def _champions(
        self, t: int, stage: int, growing: GrowingTree, masked: Mapping[str, Ints]
    ) -> tuple[dict[str, SharedRounds], dict[str, Side], dict[str, Champions]]:
        """Steps 1 and 2 of `choose`, with all parties at once: rounds, sides and winners, by party of the tree.

        Of several the side of the pair across them too.
        """
        rule, parties, asked = required(growing.exact_rule), list(masked), growing.asked
        nodes, widths = compared(asked), self._shares[parties[0]].widths
        bits = SumBits(widths.value, widths.weight)
        self._bounds = {node: self._bound(growing, rule, bits, node) for node in nodes}
        names = [*self._spec.feature_parties]
        own, dealt = [*self._bounds.values()], Dealt(self._context, self._spec.dealer, t, stage)
        await dealt.take()
        layouts = {party: self._shares[party].layout(asked) for party in parties}
        rounds = {
            party: SharedRounds(self._context, party, t, stage, layout.nodes * layout.candidates)
            for party, layout in layouts.items()
        }
        owners_of = Owners(widths, len(parties), len(nodes)) if len(parties) > 1 and not self._spec.screen else None
        dealt_to: dict[str, Layouts] = {party: {party: (layout, False)} for party, layout in layouts.items()}
        if owners_of:
            dealt_to[parties[0]] = {**dealt_to[parties[0]], ACROSS: (owners_of, True)}
        for number in range(MOST_OPENED):
            opened = await together(*(dealt.opened(rounds[party], dealt_to[party]) for party in parties))
            dealt_to = dict(zip(parties, opened, strict=True))
            again = {pair: layout for of_party in opened for pair, layout in of_party.items()}
            said, ends = growth_pb2.OpenedPairs(pairs=list(again)), not again or number + 1 == MOST_OPENED
            await self._context.outbox.deliver(self._spec.dealer, "opened_pairs", t, stage, number, ends, said)
            await dealt.take_again(again)
            if ends:
                break
        sides = {party: dealt.side(party, layout, first=False) for party, layout in layouts.items()}

        if owners_of:
            sides[ACROSS] = dealt.side(ACROSS, owners_of, first=True)

        async def champions_with(party: str) -> Champions:
            shares = self._shares[party]
            x, y, left = await shares.lifted(rounds[party], sides[party], asked, masked[party].view(np.uint64))
            y = add(y, numbers([rule.penalty], y.shape[-1]))
            drawn = [growing.drawn(1 + names.index(party), node) for node in nodes]
            best = await rounds[party].run(choose(sides[party], x, y, own, shares.widths, left, drawn))
            self._scores[party] = best.fractions
            return best

        champions = await together(*map(champions_with, parties))
        return rounds, sides, dict(zip(parties, champions, strict=True))

    async def check(self, t: int, stage: int, party: str, growing: GrowingTree, nodes: Sequence[int]) -> None:
        """Compare the scores of these nodes' winners, by both parties' shares, with those of the left records.

        Raises:
            Disputed: the winner of a node has another score.
            Malformed: not as many shares came.
        """
        widths, rule = self._shares[party].widths, required(growing.exact_rule)
        for node, score in zip(nodes, await self._scores_opened(t, stage, party, nodes), strict=True):
            if not np.array_equal(score, numbers(rule.score(self._bounds[node], growing.sums[2 * node]), widths.words)):
                raise Disputed(
                    f"the left records of node {node} of tree {t} are not those of the candidate with which {party} won"
                )

    async def _scores_opened(self, t: int, stage: int, party: str, nodes: Sequence[int]) -> Words:
        """The scores (nodes, 2, w) of nodes' winners with a party, by both shares; `Malformed`: not as many came."""
        own, places = self._scores[party], [*self._bounds]
        series = self._context.mailbox.series(party, "winner_shares", t, stage)
        theirs = await take_shares(series, party, "winner_shares", len(nodes), *own.shape[::2])
        return add(own[:, [places.index(node) for node in nodes]].swapaxes(0, 1), theirs)

    def _bound(self, growing: GrowingTree, rule: ExactRule, bits: SumBits, node: int) -> NodeBound:
        """What others' candidates must exceed at a node; no candidate does at one that cannot be split."""
        sums, choice = growing.sums.get(node), growing.choices.get(node)
        if sums is None or node not in growing.frontier:
            sums = np.zeros(growing.values.shape[1], dtype=np.int64)
        return rule.to_beat(sums, None if choice is None else choice.lefts[0], bits)


class FeaturePartyChoice:
    """A feature party's part in the choices of an attempt."""

    def __init__(self, context: StepContext, spec: setup_pb2.JobSpec) -> None:
        self._context, self._spec = context, spec
        self._shares: Shares | None = None
        self._fewest = 0

    def agree(
        self,
        params: TreeParams,
        key: ReceivedKey,
        agreed: HistogramParameters,
        training: int,
        candidates: int,
        fewest: int,
    ) -> None:
        """Take the sizes of the attempt: `training` records, `candidates` of a node, `fewest` records of a side."""
        parties, counts = len(self._spec.feature_parties), key.said.counts_records
        widths = widths_of(params, key.slots, agreed, training, parties, counts=counts)
        self._shares, self._fewest = Shares(widths, max(candidates, 1)), fewest

    async def choose(self, tree: OwnTree, stage: int) -> None:
        """Find, with the label holder, which nodes this party's candidates win, and by which: see `LabelHolderChoice`.

        The first party of the tree takes the shares of the others' winners, who hand them over.
        """
        shares, context, t, me = required(self._shares), self._context, tree.index, self._context.party
        asked, label_holder, parties = sorted(tree.shares), self._spec.aggregator, taking_part(self._spec, t)
        crosses = len(parties) > 1 and not self._spec.screen
        layout, nodes = shares.layout(asked), compared(asked)
        dealt, owners_of = Dealt(context, self._spec.dealer, t, stage), Owners(shares.widths, len(parties), len(nodes))
        await dealt.take()
        rounds = SharedRounds(context, label_holder, t, stage, layout.nodes * layout.candidates)
        dealt_to: Layouts = {me: (layout, True)}
        if crosses and me == parties[0]:
            dealt_to = {**dealt_to, ACROSS: (owners_of, False)}
        for _ in range(MOST_OPENED):
            dealt_to = await dealt.opened(rounds, dealt_to)
            await dealt.take_again(dealt_to)
            if not dealt_to:
                break
        side = dealt.side(me, layout, first=True)
        masked = np.stack([tree.shares.pop(node) for node in asked])
        x, y, left = await shares.lifted(rounds, side, asked, masked)
        # ties go by the candidates' numbers, whatever their order
        order = [*tree.columns.order(ROOT).tolist(), *range(len(tree.columns.candidates), shares.candidates)]
        best = await rounds.run(choose(side, x, y, None, shares.widths, left, fewest=self._fewest, order=order))
        if self._spec.screen:
            await rounds.end()
            scores = share_messages(growth_pb2.WinnerShares, best.fractions.tobytes())
            await context.outbox.send(label_holder, "winner_shares", scores, t, stage)
            return
        if len(parties) == 1:
            winners = required(await rounds.run(tell(side, best)))
            await rounds.run(answer(side, winners, len(nodes)))
        else:
            handed = await rounds.run(hand_over(side, best))
            if me == parties[0]:
                said = ((party, context.mailbox.series(party, "champion_share", t, stage)) for party in parties[1:])
                others = [await take_shares(own, party, "champion_share", *handed.shape) for party, own in said]
                across = dealt.side(ACROSS, owners_of, first=False)
                await rounds.run(choose_owner(across, [handed, *others], None, shares.widths))
            else:
                bodies = share_messages(growth_pb2.ChampionShare, handed.tobytes())
                await context.outbox.send(parties[0], "champion_share", bodies, t, stage)
            winners = required(await rounds.run(tell(side, best)))
        await rounds.end()
        tree.found = {
            node: (number - 1, best.fractions[:, place].tobytes())
            for place, (node, number) in enumerate(zip(nodes, winners.tolist(), strict=True))
            if number
        }
