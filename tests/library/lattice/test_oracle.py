"""Encryption, masking, refreshing and decryption against Microsoft SEAL, which computes with the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
import tenseal.sealapi as api

from tests.library.lattice.budgets import noise_budget
from tests.library.lattice.seal import Seal
from treetap.lattice.kernels import MaskedSum, Member
from treetap.lattice.parameters import TOTAL_BITS, Parameters
from treetap.lattice.scheme import scheme_of

pytestmark = pytest.mark.second_tier

RNG = np.random.default_rng(41)
EACH = pytest.mark.parametrize(
    "seal", [Parameters(8192, 4, 22, 100, 1), Parameters(16384, 8, 22, 10, 4)], indirect=True, ids=["8192", "16384"]
)


@pytest.fixture(scope="module")
def seal(request):
    """One context for each set of parameters."""
    return Seal(request.param)


def values_of(seal, n):
    half = seal.parameters.plain // 2
    values = RNG.integers(-half, half + 1, n)
    values[:2] = half, -half
    return values


def test_the_table_of_secure_sizes_is_within_seals():
    """SEAL's table of 128-bit security, that of 2018, allows a few bits of modulus more than that of 2024 does."""
    for degree, bits in TOTAL_BITS.items():
        assert 0.97 * api.CoeffModulus.MaxBitCount(degree, api.SEC_LEVEL_TYPE.TC128) < bits
        assert bits < api.CoeffModulus.MaxBitCount(degree, api.SEC_LEVEL_TYPE.TC128)


@EACH
def test_seal_reads_what_we_encrypt(seal):
    """A column comes out with the budget that we measure, that of an encryption by SEAL within a bit or two."""
    values = values_of(seal, 1000)
    data = seal.key.encrypt(values)
    slots, budget = seal.decrypt(scheme_of(seal.parameters).ciphertext(data))
    assert slots.tolist() == [*values.tolist(), *([0] * (seal.parameters.degree - 1000))]
    assert budget == noise_budget(seal.key, data)
    assert abs(budget - seal.decrypt(seal.encrypt(values))[1]) <= 2


@EACH
def test_we_read_what_seal_encrypts(seal):
    """Every slot, the largest and the smallest number included."""
    values = values_of(seal, seal.parameters.degree)
    assert seal.key.decrypt(seal.encrypt(values).astype("<u4").tobytes(), len(values)).tolist() == values.tolist()


@EACH
def test_a_masked_column_is_seals_word_for_word(seal):
    """The product with a mask, to which we add an encryption of zero, has the numbers of SEAL's product."""
    ring = scheme_of(seal.parameters).ring
    mask = RNG.random(seal.parameters.degree) < 0.5
    ciphertext = seal.encrypt(values_of(seal, seal.parameters.degree))
    factor, product = ring.mask(mask), np.zeros_like(ciphertext)
    for kept, half in zip(product, ciphertext, strict=True):
        ring.multiply_add(kept, half, factor)
    theirs, plain = seal.theirs(ciphertext), api.Plaintext()
    seal.evaluator.transform_to_ntt(seal.plain(mask.astype(np.int64)), seal.level, plain)
    seal.evaluator.multiply_plain_inplace(theirs, plain)
    assert (seal.ours(theirs) == product).all()


@EACH
def test_seal_reads_refreshed_columns_and_flooded_sums(seal):
    """Ciphertexts of every member and of the last one, blinds included, open alike, with as much noise."""
    member = Member(seal.parameters, seal.key.public_bytes())
    values, masks = RNG.integers(-500, 500, (2, 40)), RNG.random((2, 40)) < 0.5
    (passed,) = member.pass_on(masks[0], [seal.key.encrypt(values[0])])
    slots, budget = seal.decrypt(member.scheme.ciphertext(passed))
    assert slots[:40].tolist() == (values[0] * masks[0]).tolist()
    assert budget == noise_budget(seal.key, passed)
    total = MaskedSum(member)
    for mask, column in zip(masks, values, strict=True):
        total.add(mask, [seal.key.encrypt(column)])
    (answer,) = total.finish(4, 10)
    slots, budget = seal.decrypt(member.scheme.ciphertext(answer))
    assert budget == 1 == noise_budget(seal.key, answer)
    found = slots[:40].reshape(4, 10).sum(axis=0) % seal.parameters.plain
    expected = (values * masks).sum(axis=0).reshape(4, 10).sum(axis=0) % seal.parameters.plain
    assert found.tolist() == expected.tolist()
