"""Bytes of the messages of one tree, from the messages that parties build: the same types, frames and counted sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from google.protobuf.message import Message

from party.growth.feature_party import SUMS_BYTES
from party.runtime.messages import child_messages, sampled_messages, space_messages
from party.runtime.outbox import CountedBody
from treetap.additive.sums.kernel_timings import BLOCK
from treetap.additive.sums.key_holder import SMALLEST_BLOCK
from treetap.commands.capacity.simulation import Sizes
from treetap.commands.capacity.training import Training
from treetap.trees.ensemble import ROOT
from treetap.wire.frame import filled
from treetap.wire.v2 import boosting_pb2, exchange_pb2, growth_pb2, types_pb2

#: Blocks of ciphertexts up to which each is measured; of more, one in the middle stands for all.
FEW_BLOCKS = 64
_NONE = np.empty(0, dtype=np.int64)


class TreeMessages:
    """Sizes of the messages of one tree of a job, by the names of the job and the round."""

    def __init__(
        self, training: Training, job: str, round_: int = 0, attempt: int = 1, handles: Mapping[str, int] | None = None
    ) -> None:
        """`handles`: the next handle of each feature party, by which the sizes of numbers go."""
        self._training, self._job, self._round, self._attempt = training, job, round_, attempt
        self._handles = handles or {}
        self._names = list(training.others)

    def sizes(self, workers: int) -> Sizes:
        """All sizes; `workers`: those of the label holder, by which small tables are cut into blocks."""
        training = self._training
        blocks = self.gradients(workers)
        middle = blocks[len(blocks) // 2]
        count = min(self.block(workers), training.drawn)
        levels = range(len(training.levels))
        return Sizes(
            block=middle - count * training.key.ciphertext_bytes,
            sampled=self.sampled(),
            sums={name: tuple(self.candidate_sums(name, level) for level in levels) for name in self._names},
            children={name: tuple(self.children(name, level) for level in levels) for name in self._names},
            spaces={name: tuple(self.spaces(name, level) for level in levels) for name in self._names},
            paths=self.paths(),
        )

    def block(self, workers: int) -> int:
        """Records of a block, as `KeyHolder.encrypt_blocks` cuts them."""
        return max(1, min(BLOCK, max(SMALLEST_BLOCK, -(-self._training.drawn // workers))))

    def gradients(self, workers: int) -> list[int]:
        """Bytes of the messages of ciphertexts to one feature party, or of one in the middle if there are many."""
        size, width, drawn = self.block(workers), self._training.key.ciphertext_bytes, self._training.drawn
        starts = list(range(0, drawn, size))
        numbers = range(len(starts)) if len(starts) <= FEW_BLOCKS else [len(starts) // 2]
        found = []
        for part in numbers:
            first = starts[part]
            count = min(size, drawn - first)
            body = boosting_pb2.Gradients(first=first, count=count, ciphertexts=bytes(count * width))
            found.append(self._size("gradients", body, 0, part, last=part == len(starts) - 1))
        return found

    def sampled(self) -> int:
        """Bytes of the set of drawn records."""
        return self._series("sampled_records", sampled_messages(_NONE, self._training.records), 0)

    def candidate_sums(self, name: str, level: int) -> tuple[int, ...]:
        """Bytes of each message of a feature party's candidate sums."""
        training = self._training
        nodes = self._numbers(level)
        candidates = training.others[name].candidates
        width = training.key.ciphertext_bytes
        packed = -(-len(nodes) * candidates // training.candidates_per_ciphertext) * width
        step = SUMS_BYTES // width * width
        starts = range(0, max(packed, 1), step)
        found = []
        for part, start in enumerate(starts):
            body = growth_pb2.CandidateSums(
                nodes=nodes if start == 0 else [],
                candidates=candidates,
                ciphertexts=bytes(min(step, packed - start)),
            )
            found.append(self._size("candidate_sums", body, level, part, last=part == len(starts) - 1))
        return tuple(found)

    def children(self, name: str, level: int) -> int:
        """Bytes of the children of a feature party's splits; 0 where it has none."""
        number = 1 + self._names.index(name)
        nodes = [node for node, owner in enumerate(self._training.levels[level].owners, 2**level) if owner == number]
        before = sum(each.owners.count(number) for each in self._training.levels[:level])
        first = self._handles.get(name, 0) + before
        made = [(node, first + k, _NONE) for k, node in enumerate(nodes)]
        return self._series("children", child_messages(made, self._training.records), level) if nodes else 0

    def spaces(self, name: str, level: int) -> int:
        """Bytes of the instance spaces that a feature party is sent after this level; 0 after the last."""
        if level + 1 >= len(self._training.levels):
            return 0
        parents = self._training.levels[level + 1].parents
        number = 1 + self._names.index(name)
        sent = [(2 ** (level + 1) + k, _NONE) for k, parent in enumerate(parents) if parent != number]
        return self._series("instance_spaces", space_messages(sent, self._training.records), level + 1)

    def paths(self) -> int:
        """Most bytes of the leaf paths to one feature party: all branches are its own."""
        depth = len(self._training.levels)
        branch = types_pb2.Branch(handle=max(self._handles.values(), default=0) + 2**depth, left=True)
        leaf = growth_pb2.LeafPath(branches=[branch] * depth)
        return self._size("leaf_paths", growth_pb2.LeafPaths(leaves=[leaf] * 2**depth), 0, 0, last=True)

    def _numbers(self, level: int) -> list[int]:
        """Numbers of the nodes that are built, as large as they can be."""
        count = len(self._training.levels[level].built)
        return [ROOT] if level == 0 else [2**level + 2 * k for k in range(count)]

    def _series(self, kind: str, bodies: Iterable[Message | CountedBody], stage: int) -> int:
        """Bytes of a whole series."""
        counted = [each.counted if isinstance(each, CountedBody) else each for each in bodies]
        if not counted:
            return self._size(kind, None, stage, 0, last=True)
        return sum(
            self._size(kind, body, stage, part, last=part == len(counted) - 1) for part, body in enumerate(counted)
        )

    def _size(self, kind: str, body: Message | None, stage: int, part: int, *, last: bool) -> int:
        frame = exchange_pb2.PeerMessage(
            job=self._job,
            attempt=self._attempt,
            job_digest=bytes(32),
            round=self._round,
            stage=stage,
            part=part,
            last=last,
        )
        return filled(frame, kind, body).ByteSize()
