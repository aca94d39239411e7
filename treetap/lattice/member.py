"""A feature party: masks columns that it cannot read, and adds them up or passes them on.

The key owner knows every ciphertext it sent and all noise in them. To hide the masks from it, the last member adds a
fresh encryption of zero, which makes the second polynomial look uniform, and noise flooding
(`treetap.lattice.parameters`). To hide them from the next member, which has no key, every ciphertext passed on gets a
fresh encryption of zero. The owner and a later member together could read the masks of an earlier one.

The number and size of ciphertexts and the operations on them do not depend on the masks.

Where there are few records, several columns lie side by side in one ciphertext. Nothing adds slots up under encryption
here, so the last member adds random numbers that cancel in each record's sum (`blinds`), and the owner, who reads
uniform numbers, adds them up itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from treetap.errors import Malformed, OutOfOrder
from treetap.lattice.parameters import PARAMETERS_BYTES, PARTIAL_SUMS, Parameters
from treetap.lattice.scheme import scheme_of, to_bytes
from treetap.native.lattice import Polynomial, Ring
from treetap.process.signs_of_life import finish_unit

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


class Member:
    """Holds the label holder's public key.

    Args:
        agreed: the job's parameters, from this party's own record of the agreement.
        public: the result of `LatticeKey.public_bytes`.

    Raises:
        Malformed: other parameters than agreed, or not just a public key.
    """

    def __init__(self, agreed: Parameters, public: bytes) -> None:
        if public[:PARAMETERS_BYTES] != agreed.to_bytes():  # a peer's sizes are compared, and never computed with
            raise Malformed("the label holder's key has other lattice parameters than this job agreed on")
        self.parameters = agreed
        self.scheme = scheme_of(agreed)
        self._key = self.scheme.ring.montgomery(self.scheme.public_key(public[PARAMETERS_BYTES:]))

    def fresh_zero(self) -> Polynomial:
        """An encryption of zero under the public key, (2, primes, N)."""
        return self.scheme.ring.encrypted_zero(self._key)

    def pass_on(self, mask: Bools, ciphertexts: Sequence[bytes]) -> list[bytes]:
        """Columns with their entries outside the mask (n ≤ N,) blanked, under fresh randomness: for the next member.

        Raises:
            Malformed: not ciphertexts of these parameters, or a mask longer than they are.
        """
        factor, passed = self.factor(mask), []
        for data in ciphertexts:
            kept = self.fresh_zero()
            self.add_product(kept, factor, data)
            passed.append(to_bytes(kept))
            finish_unit()
        return passed

    def factor(self, mask: Bools) -> Polynomial:
        """The polynomial that blanks the slots outside a mask (n ≤ N,). Raises Malformed for a longer mask."""
        if len(mask) > self.parameters.degree:
            raise Malformed(f"a mask of {len(mask)} records for ciphertexts of {self.parameters.degree} slots")
        return self.scheme.ring.mask(mask)

    def add_product(self, total: Polynomial, factor: Polynomial, data: bytes) -> None:
        """Add a ciphertext times a mask's polynomial to another. Raises Malformed as `Scheme.ciphertext` does."""
        for kept, half in zip(total, self.scheme.ciphertext(data), strict=True):
            self.scheme.ring.multiply_add(kept, half, factor)


class MaskedSum:
    """Sums Σ_columns mask · column of one block of at most N records, one sum per output.

    It holds one ciphertext per output, however many columns come. `finish` ends it.
    """

    def __init__(self, member: Member, outputs: int = 1) -> None:
        self._member = member
        self._sums = [member.fresh_zero() for _ in range(outputs)]
        self._none = [0] * outputs
        self._columns = self._none
        self._zeros = 1
        self._ended = False
        self._floods: list[Polynomial] = []

    def draw(self) -> None:
        """Draw the flooding noise of every output now, so that `finish` need not; each draw is added once."""
        while len(self._floods) < len(self._sums):
            self._floods.append(self._member.scheme.ring.flood(self._member.parameters.flood))
            finish_unit()

    def add(self, mask: Bools, ciphertexts: Sequence[bytes], outputs: Sequence[int] | None = None) -> None:
        """Add a masked column: mask (n ≤ N,), a ciphertext for each of `outputs`, or without them for all.

        Raises:
            Malformed: not ciphertexts of these parameters, or another number than outputs.
            OutOfOrder: more columns than agreed, or after the end.
        """
        places = range(len(self._sums)) if outputs is None else outputs
        if len(ciphertexts) != len(places):
            raise Malformed(f"{len(ciphertexts)} ciphertexts of a column with {len(places)} outputs")
        self._count([int(k in places) for k in range(len(self._sums))], 0)
        factor = self._member.factor(mask)
        for place, data in zip(places, ciphertexts, strict=True):
            self._member.add_product(self._sums[place], factor, data)
            finish_unit()

    def partial(self) -> tuple[list[int], int, list[bytes]]:
        """State for `merge` into another sum of the same party: (columns, zeros, sums). It ends this one."""
        self._count(self._none, 0)
        self._ended = True
        return self._columns, self._zeros, [to_bytes(total) for total in self._sums]

    def merge(self, partial: tuple[list[int], int, list[bytes]]) -> None:
        """Add another worker's part of the same block. Raises OutOfOrder beyond the agreed number of columns."""
        columns, zeros, sums = partial
        self._count(columns, zeros)
        ring = self._member.scheme.ring
        for total, data in zip(self._sums, sums, strict=True):
            for own, other in zip(total, self._member.scheme.ciphertext(data), strict=True):
                ring.add(own, other)

    def finish(self, side_by_side: int = 1, n: int = 0) -> list[bytes]:
        """One flooded ciphertext per output, for the key owner. Raises OutOfOrder the second time.

        Args:
            side_by_side: columns in one ciphertext; their slots are blinded where it is more than one.
            n: records, hence slots of a column.
        """
        self._count(self._none, 0)
        self._ended = True
        ring = self._member.scheme.ring
        self.draw()
        answers = []
        for total in self._sums:
            if side_by_side > 1:
                ring.add(total[0], ring.message(blinds(ring, side_by_side, n)))
            ring.add(total[0], self._floods.pop())
            answers.append(to_bytes(total))
            finish_unit()
        return answers

    def _count(self, columns: Sequence[int], zeros: int) -> None:
        """Check the number of columns and fresh zeros, for which alone the noise is bounded."""
        if self._ended:
            raise OutOfOrder("this masked sum has ended")
        self._columns = [
            have + more for have, more in zip(self._columns, columns or [0] * len(self._sums), strict=True)
        ]
        self._zeros += zeros
        if max(self._columns) > self._member.parameters.columns:
            raise OutOfOrder(f"more than the agreed {self._member.parameters.columns} columns in one masked sum")
        if self._zeros > PARTIAL_SUMS:
            raise OutOfOrder(f"a masked sum is made of at most {PARTIAL_SUMS} parts")


def blinds(ring: Ring, columns: int, n: int) -> Ints:
    """Numbers between -t/2 and t/2 for the slots of columns side by side, (columns·n,), which cancel over the columns.

    All but one column of them are uniform modulo t and independent.
    """
    drawn = ring.blinds((columns - 1) * n)
    last = -drawn.reshape(columns - 1, n).sum(axis=0) % ring.plain
    numbers = np.concatenate([drawn, last])
    numbers[numbers > ring.plain // 2] -= ring.plain
    return numbers
