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

import os
import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from treetap.errors import Malformed, OutOfOrder
from treetap.lattice.parameters import PARAMETERS_BYTES, PARTIAL_SUMS, Parameters
from treetap.lattice.seal import Scheme, api, scheme_of, to_bytes
from treetap.process.units import finish_unit

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
        self._encryptor = api.Encryptor(self.scheme.context, self.scheme.public_key(public[PARAMETERS_BYTES:]))

    def fresh_zero(self) -> Any:
        """An encryption of zero under the public key."""
        value = api.Ciphertext()
        self._encryptor.encrypt_zero(value)
        return value

    def pass_on(self, mask: Bools, data: bytes) -> bytes:
        """A column with its entries outside the mask (n ≤ N,) blanked, under fresh randomness: for the next member.

        Raises:
            Malformed: not a ciphertext of these parameters, or a mask longer than it.
        """
        kept = self.fresh_zero()
        for value in self._masked(mask, [data]):
            self.scheme.evaluator.transform_from_ntt_inplace(value)
            self.scheme.evaluator.add_inplace(kept, value)
        return to_bytes(kept)

    def _masked(self, mask: Bools, ciphertexts: Sequence[bytes]) -> list[Any]:
        """The products in NTT form; none for an empty mask, after the same work."""
        if len(mask) > self.parameters.degree:
            raise Malformed(f"a mask of {len(mask)} records for ciphertexts of {self.parameters.degree} slots")
        scheme = self.scheme
        empty = not mask.any()  # the library refuses a product with zero, so it is computed with one and dropped
        plain = scheme.encode(np.ones(1, dtype=np.int64) if empty else mask.astype(np.int64))
        factor = api.Plaintext()
        scheme.evaluator.transform_to_ntt(plain, scheme.level, factor)
        products = []
        for data in ciphertexts:
            value = scheme.ciphertext(data)
            scheme.evaluator.transform_to_ntt_inplace(value)
            scheme.evaluator.multiply_plain_inplace(value, factor)
            products.append(value)
            finish_unit()
        return [] if empty else products


class MaskedSum:
    """Sums Σ_columns mask · column of one block of at most N records, one sum per output.

    It holds one ciphertext per output, however many columns come. `finish` ends it.
    """

    def __init__(self, member: Member, outputs: int = 1) -> None:
        self._member = member
        self._sums = [member.fresh_zero() for _ in range(outputs)]
        for total in self._sums:
            member.scheme.evaluator.transform_to_ntt_inplace(total)
        self._none = [0] * outputs
        self._columns = self._none
        self._zeros = 1
        self._ended = False
        self._floods: list[Any] = []

    def draw(self) -> None:
        """Draw the flooding noise of every output now, so that `finish` need not; each draw is added once."""
        scheme = self._member.scheme
        while len(self._floods) < len(self._sums):
            self._floods.append(flood(scheme))
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
        products = self._member._masked(mask, ciphertexts)
        for place, product in zip(places, products, strict=False):  # an empty mask gives no products
            self._member.scheme.evaluator.add_inplace(self._sums[place], product)

    def partial(self) -> tuple[list[int], int, list[bytes]]:
        """State for `merge` into another sum of the same party: (columns, zeros, sums). It ends this one."""
        self._count(self._none, 0)
        self._ended = True
        return self._columns, self._zeros, [to_bytes(total) for total in self._sums]

    def merge(self, partial: tuple[list[int], int, list[bytes]]) -> None:
        """Add another worker's part of the same block. Raises OutOfOrder beyond the agreed number of columns."""
        columns, zeros, sums = partial
        self._count(columns, zeros)
        for total, data in zip(self._sums, sums, strict=True):
            self._member.scheme.evaluator.add_inplace(total, self._member.scheme.ciphertext(data, ntt=True))

    def finish(self, side_by_side: int = 1, n: int = 0) -> list[bytes]:
        """One flooded ciphertext per output, for the key owner. Raises OutOfOrder the second time.

        Args:
            side_by_side: columns in one ciphertext; their slots are blinded where it is more than one.
            n: records, hence slots of a column.
        """
        self._count(self._none, 0)
        self._ended = True
        scheme = self._member.scheme
        self.draw()
        answers = []
        for total in self._sums:
            scheme.evaluator.transform_from_ntt_inplace(total)
            if side_by_side > 1:
                scheme.evaluator.add_plain_inplace(total, scheme.encode(blinds(scheme.modulus, side_by_side, n)))
            scheme.evaluator.add_inplace(total, self._floods.pop())
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


def blinds(modulus: int, columns: int, n: int) -> Ints:
    """Numbers modulo t for the slots of columns side by side, (columns·n,), whose sum over the columns is zero.

    All but one column of them are uniform and independent, from the operating system's randomness.
    """
    drawn = np.array([secrets.randbelow(modulus) for _ in range((columns - 1) * n)], dtype=np.int64)
    free = drawn.reshape(columns - 1, n)
    return np.concatenate([drawn, -free.sum(axis=0) % modulus])


def flood(scheme: Scheme) -> Any:
    """(e, 0) with coefficients of e uniform in [-A, A], from the operating system's randomness."""
    bound = scheme.parameters.flood
    width = 2 * bound + 1
    size = (width.bit_length() + 128 + 7) // 8  # reducing 128 bits more makes the bias negligible
    drawn = os.urandom(size * scheme.parameters.degree)
    noise = [int.from_bytes(drawn[at : at + size], "little") % width - bound for at in range(0, len(drawn), size)]
    return scheme.noise(np.array([value % prime for value in noise], dtype=np.uint64) for prime in scheme.primes)
