"""The dealer of a training whose sums are shared: it draws the randomness of each stage for each pair of parties.

It has no table, and no party sends it anything but sizes. A pair is the label holder and a feature party; where several
feature parties take part in a tree there is one more, `treetap.protocols.dealing.ACROSS`. What it draws for a pair is
new at every stage: a seed for either party, and corrections, which do not follow from one (`treetap.shares`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from treetap.errors import Malformed, Refused
from treetap.party.runtime.context import MESSAGE_BYTES, StepContext, required
from treetap.party.runtime.job_store import UsedOnce
from treetap.party.runtime.step_order import ANY, LATER, OPENING, SAME, Next, role, step, steps_of
from treetap.protocols.dealing import ACROSS, MOST_OPENED, compared, pairs_of
from treetap.protocols.job_spec import params_as, taking_part
from treetap.protocols.messages import JobSizes, members_of
from treetap.shares.choice import Owners, Stage
from treetap.shares.dealing import Part, dealt, widths_in
from treetap.trees.params import TreeParams
from treetap.wire.v2 import control_pb2, growth_pb2, setup_pb2

#: Most trees of a job, whose number depends on classes, which a dealer does not know.
MOST_TREES = 1 << 32
#: File of the stages that were dealt, in the job's folder.
DEALT = "dealt.jsonl"


def deal_pair(pair: str, nodes: int, candidates: int, told: growth_pb2.DealtSizes) -> tuple[Part, Part]:
    """New randomness for the choice among so many candidates of each node: the label holder's part, and the other's.

    `nodes`: those compared, the root or pairs of siblings, of which one is summed.

    Raises:
        Malformed: the label holder has told widths that no job has.
    """
    try:
        widths = widths_in(told.widths)
    except ValueError as failure:
        raise Malformed(f"the label holder has told widths that no job has: {failure}") from failure
    if pair != ACROSS:
        return dealt(Stage(widths, candidates, (nodes + 1) // 2, nodes))
    first_party, label_holder = dealt(Owners(widths, candidates, nodes))
    return label_holder, first_party


@role({OPENING: (Next("prepare"),)})
class Dealer:
    """The dealer's part in a job."""

    def __init__(self, context: StepContext, spec: setup_pb2.JobSpec) -> None:
        self._context, self._spec = context, spec
        stages = params_as(spec, TreeParams).expansion.most_stages  # type: ignore[type-abstract] # of either protocol
        members = members_of(spec, context.coordinator)
        self.sizes = JobSizes(members=members, rounds=MOST_TREES, stages=stages)
        self._told: growth_pb2.DealtSizes | None = None
        self._stage: tuple[int, dict[str, tuple[str, int]]] = 0, {}  # the nodes and pairs of the last one
        self._dealt: UsedOnce | None = None  # attempt, tree, stage, kind of message and pair
        self.steps = steps_of(self)

    @step(Next("deal", ANY))
    async def prepare(self) -> setup_pb2.Prepared:
        """Look up what was dealt."""
        self._dealt = UsedOnce(self._context.store.lines(DEALT))
        return setup_pb2.Prepared()

    @step(Next("deal_again", SAME))
    async def deal(self, request: control_pb2.StepRequest) -> None:
        """Deal a stage.

        1. Before the first one: take the sizes from the label holder.
        2. Mark the stage and its pairs as dealt.
        3. Draw for each pair, and send both parties their parts.

        Raises:
            Refused: the stage was dealt before in this attempt.
        """
        told = await self._sizes()
        candidates = dict(zip(self._spec.feature_parties, told.candidates, strict=True))
        there = {party: candidates[party] for party in taking_part(self._spec, request.round)}
        pairs = pairs_of(there, across=not self._spec.screen)
        self._stage = len(compared(request.growth.deal.nodes)), pairs
        bodies = await self._drawn("correlations", request, list(pairs))
        await self._context.outbox.send_each("correlations", bodies, request.round, request.stage)

    @step(Next("deal", LATER))
    async def deal_again(self, request: control_pb2.StepRequest) -> None:
        """Deal the stage anew for the pairs that have opened what they got, as the label holder says, until none has.

        Raises as `deal` does.
        """
        label_holder, sent = self._spec.aggregator, Counter[str]()
        where = request.round, request.stage
        async for message in self._context.mailbox.series(label_holder, "opened_pairs", *where):
            pairs = list(dict.fromkeys(message.growth.opened_pairs.pairs))
            if message.part >= MOST_OPENED or not {*pairs} <= self._stage[1].keys():
                raise Malformed(f"{label_holder} says that pairs have opened what this stage does not deal")
            if pairs:
                for to, bodies in (await self._drawn(f"dealt_again {message.part}", request, pairs)).items():
                    for body in bodies:
                        await self._context.outbox.deliver(to, "dealt_again", *where, sent[to], False, body)
                        sent[to] += 1

    async def _drawn(
        self, kind: str, request: control_pb2.StepRequest, pairs: Sequence[str]
    ) -> Mapping[str, Sequence[growth_pb2.Correlations]]:
        """Mark pairs of a stage as dealt, and draw for them: the messages to each party."""
        await self._context.offload(partial(self._mark, kind, request, pairs), whole=True)
        nodes, layout = self._stage
        bodies: defaultdict[str, list[growth_pb2.Correlations]] = defaultdict(list)
        for pair in pairs:
            party, count = layout[pair]
            parts = await self._context.offload(partial(deal_pair, pair, nodes, count, await self._sizes()))
            for to, part in zip((self._spec.aggregator, party), parts, strict=True):
                bodies[to] += parts_of(pair, part)
        return bodies

    async def _sizes(self) -> growth_pb2.DealtSizes:
        """What the label holder has told; `Malformed` where it is not of every feature party."""
        if self._told is None:
            told = await self._context.mailbox.only(self._spec.aggregator, "dealt_sizes")
            if len(told.candidates) != len(self._spec.feature_parties):
                raise Malformed(f"{self._spec.aggregator} has told sizes of {len(told.candidates)} feature parties")
            self._told = told
        return self._told

    def _mark(self, kind: str, request: control_pb2.StepRequest, pairs: Sequence[str]) -> None:
        """Note on disk, in one line, that a stage is dealt for these pairs, before the first byte goes out.

        Randomness of one number that is used twice, on other inputs, shows their difference.
        """
        attempt, tree, stage = self._context.attempt, request.round, request.stage
        if required(self._dealt).use([(attempt, tree, stage, kind, pair) for pair in pairs]):
            raise Refused(
                f"{self._context.party} has dealt stage {stage} of tree {tree} before in attempt {attempt}, and deals "
                f"it once: resume job {self._context.job} for a new attempt"
            )


def parts_of(pair: str, part: Part) -> Iterator[growth_pb2.Correlations]:
    """The messages of a party's part, of which the first has the seed."""
    for first in range(0, max(1, len(part.corrections)), MESSAGE_BYTES):
        piece = part.corrections[first : first + MESSAGE_BYTES]
        yield growth_pb2.Correlations(pair=pair, seed=b"" if first else part.seed, corrections=piece)
