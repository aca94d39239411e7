"""Okamoto and Uchiyama's scheme against a naive one written here, its keys, and what they refuse."""

from __future__ import annotations

import copy
import pickle
import secrets

import gmpy2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.library.ciphertexts import batch, integers
from treetap.additive.okamoto_uchiyama.public_key import PublicKey
from treetap.additive.okamoto_uchiyama.secret_key import SecretKey
from treetap.additive.residues.batches import power
from treetap.additive.sums.public_keys import Packer
from treetap.errors import BadInput, Malformed, PlaintextOverflow
from treetap.protocols.key_options import OKAMOTO_UCHIYAMA, SCHEMES

pytestmark = pytest.mark.filterwarnings("ignore:a 1024-bit Okamoto-Uchiyama key")
KINDS = ("short-exponent", "standard")
BITS = 1024
with pytest.warns(UserWarning, match="1024-bit Okamoto-Uchiyama key protects nothing"):
    KEY = SecretKey.generate(BITS, allow_breakable=True)
PUBLIC = KEY.public
N = int(PUBLIC.n)
WIDTH = PUBLIC.ciphertext_bytes
P, Q, G = (int.from_bytes(KEY.for_worker()[at * WIDTH : (at + 1) * WIDTH], "big") for at in range(3))
H = pow(G, N, N)
SLOPE = pow((pow(G, P - 1, P * P) - 1) // P, -1, P)
LARGEST = 2**PUBLIC.plain_bits - 1


@pytest.fixture(autouse=True, scope="module")
def _tables(_small_tables: None) -> None:
    """Tables for the longest plaintexts, once."""
    KEY.prepare("short-exponent", PUBLIC.plain_bits)


def opened(ciphertext: int) -> int:
    """Decryption as in the paper, §3, with signs: L(c^(p-1) mod p²) / L(g^(p-1) mod p²) mod p."""
    plain = (pow(int(ciphertext), P - 1, P * P) - 1) // P * SLOPE % P
    return plain - P if 2 * plain > P else plain


def naive(plain: int, r: int) -> int:
    """Encryption as in the paper: g^m · h^r mod n with h = g^n."""
    return pow(G, plain, N) * pow(H, r, N) % N


PLAIN = st.integers(-LARGEST, LARGEST) | st.sampled_from([0, 1, -1, LARGEST, -LARGEST, 2**62, -(2**62)])


@settings(max_examples=15)
@given(st.lists(PLAIN, min_size=1, max_size=3), st.sampled_from(KINDS))
def test_both_schemes_open_what_the_other_encrypts(plains: list[int], kind: str) -> None:
    """The naive one opens ours, we open the naive one's, and sums of one of each."""
    ours = [int(each) for each in integers(PUBLIC, KEY.encrypt_many(plains, kind))]
    theirs = [naive(plain, secrets.randbelow(N)) for plain in plains]
    assert [opened(each) for each in ours] == plains
    assert KEY.decrypt_many(b"".join(each.to_bytes(WIDTH, "big") for each in theirs)) == plains
    half = [plain // 2 for plain in plains]
    both = PUBLIC.ring.multiply(
        batch(PUBLIC, [naive(each, 5) for each in half]), PUBLIC.read(KEY.encrypt_many(half, kind))
    )
    assert [opened(each) for each in integers(PUBLIC, both)] == [2 * each for each in half]


@settings(max_examples=15)
@given(st.lists(st.integers(-(2**38), 2**38), min_size=1, max_size=11))
def test_packed_sums_hold_the_sums_side_by_side(values: list[int]) -> None:
    """Each group of packed ciphertexts opens to Σ m_k · 2^(40·k), whatever the obfuscator of the packed one."""
    packer = Packer(PUBLIC, 40, 4)
    packed = packer.pack_fresh(PUBLIC.read(KEY.encrypt_many(values, "short-exponent")))
    groups = [values[start : start + 4] for start in range(0, len(values), 4)]
    expected = [sum(value << 40 * place for place, value in enumerate(group)) for group in groups]
    assert KEY.decrypt_many(PUBLIC.write(packed)) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_no_ciphertext_comes_twice(kind: str) -> None:
    """Equal plaintexts have different ciphertexts; so have encryptions of zero by a party without the key."""
    assert len(set(integers(PUBLIC, KEY.encrypt_many([7] * 20, kind)))) == 20
    drawn = PUBLIC.obfuscators(kind).draw(20)
    assert len(set(integers(PUBLIC, drawn))) == 20
    assert KEY.decrypt_many(PUBLIC.write(drawn)) == [0] * 20


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("of_owner", [True, False])
def test_the_jacobi_symbol_tells_nothing(kind: str, of_owner: bool) -> None:
    """Every party can compute the symbol modulo q. Both come up for each kind of ciphertext, whatever the plaintext."""
    symbols = set()
    for plain in (0, 1) if of_owner else (0,):
        made = KEY.encrypt_many([plain] * 40, kind) if of_owner else PUBLIC.write(PUBLIC.obfuscators(kind).draw(40))
        found = {int(gmpy2.jacobi(each, N)) for each in integers(PUBLIC, made)}
        assert found == {-1, 1}
        symbols |= found
        assert all(gmpy2.jacobi(each, N) == gmpy2.jacobi(each, Q) for each in integers(PUBLIC, made))
    assert symbols == {-1, 1}


def test_standard_obfuscators_are_uniform_among_the_encryptions_of_zero() -> None:
    """The owner's halves are as long as their groups; all have an order that divides p - 1 modulo p²."""
    made = [int(each) for each in integers(PUBLIC, KEY.encrypt_many([0] * 20, "standard"))]
    made += [int(each) for each in integers(PUBLIC, PUBLIC.standard(20))]
    assert all(pow(each, P - 1, P * P) == 1 for each in made)
    for prime in (P, Q):
        halves = [each % prime for each in made]
        assert min(half.bit_length() for half in halves) > prime.bit_length() - 64
        assert len(set(halves)) == len(made)


@pytest.mark.parametrize("bits", [2048, 3072])
def test_generated_keys_have_the_promised_form(bits: int) -> None:
    """p²q has exactly the size asked for, p and q are primes of one length, g a non-residue with a part of order p."""
    key = SecretKey.generate(bits)
    raw, width = key.for_worker(), bits // 8
    p, q, g = (int.from_bytes(raw[at * width : (at + 1) * width], "big") for at in range(3))
    assert (p * p * q).bit_length() == bits == key.public.bits
    assert p.bit_length() == q.bit_length() == -(-bits // 3) == key.public.plain_bits + 2
    assert (p % 4, q % 4, gmpy2.gcd(p - 1, q - 1), int(key.public.n) % 4) == (3, 3, 2, 3)
    assert gmpy2.is_prime(p)
    assert gmpy2.is_prime(q)
    assert gmpy2.legendre(g, p) == gmpy2.legendre(g, q) == -1
    assert pow(g, p - 1, p * p) != 1
    assert key.public.ciphertext_bytes == bits // 8


def test_sizes_that_are_not_offered_are_refused() -> None:
    """Never replaced: 1024 bits need a word, those of Paillier's papers are none of this scheme."""
    for bits in (512, 1024, 1536, 4096):
        with pytest.raises(BadInput, match=f"keys have 2048 or 3072 bits, not {bits}"):
            SecretKey.generate(bits)
    with pytest.raises(BadInput, match="keys have 2048 or 3072 bits, not 512"):
        SecretKey.generate(512, allow_breakable=True)
    with pytest.raises(BadInput, match="not 1024"):
        PublicKey.from_bytes(PUBLIC.to_bytes())


def test_what_cannot_be_a_modulus_is_refused() -> None:
    """An even number, one that is 1 modulo 4 as Paillier's are, a shorter one."""
    for change, fault in ((1, "3 modulo 4"), (2, "3 modulo 4")):
        with pytest.raises(BadInput, match=fault):
            PublicKey.from_bytes((N + change).to_bytes(WIDTH, "big"), allow_breakable=True)
    with pytest.raises(BadInput, match="bits"):
        PublicKey.from_bytes(PUBLIC.to_bytes()[:-1], allow_breakable=True)
    assert PublicKey.from_bytes(PUBLIC.to_bytes(), allow_breakable=True) == PUBLIC


def test_half_length_is_refused_with_the_reason() -> None:
    """By the owner and by a party without the key; so is a kind that no scheme has."""
    for make in (KEY.prepare, PUBLIC.obfuscators):
        with pytest.raises(BadInput, match="no half-length obfuscation: the proof that it rests on is for n = pq"):
            make("half-length")
        with pytest.raises(BadInput, match="one of short-exponent"):
            make("none")


@pytest.mark.parametrize("kind", KINDS)
def test_a_plaintext_too_large_for_the_key_is_refused(kind: str) -> None:
    """A plaintext that could reach p/2 is refused; the largest that fits comes back, with both signs."""
    assert KEY.decrypt_many(KEY.encrypt_many([LARGEST, -LARGEST], kind)) == [LARGEST, -LARGEST]
    assert 2 * LARGEST < P
    for plain in (LARGEST + 1, -LARGEST - 1):
        with pytest.raises(PlaintextOverflow, match="340 bits, this one 341"):
            KEY.encrypt_many([plain], kind)


def test_malformed_ciphertexts_are_refused() -> None:
    """Cut blocks, zero, numbers from n on and multiples of a prime are no ciphertexts."""
    for blob in (b"\x01" * (WIDTH - 1), bytes(WIDTH), N.to_bytes(WIDTH, "big"), P.to_bytes(WIDTH, "big"),
                 (3 * Q).to_bytes(WIDTH, "big")):  # fmt: skip
        with pytest.raises(Malformed):
            KEY.decrypt_many(blob)


def test_the_secret_key_does_not_travel_by_accident() -> None:
    """Pickling and copying are refused and repr shows no secret; a worker's copy opens what the owner encrypts."""
    for steal in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="for_worker"):
            steal(KEY)
    assert repr(KEY) == "SecretKey(1024 bits)"
    worker = SecretKey.from_worker(KEY.for_worker())
    assert worker.decrypt_many(KEY.encrypt_many([-3], "short-exponent")) == [-3]
    assert KEY.decrypt_many(worker.encrypt_many([4, -5], "standard")) == [4, -5]


def test_tables_are_as_wide_as_the_plaintexts_and_grow_with_them() -> None:
    """A key that was prepared for short plaintexts encrypts longer ones too."""
    key = SecretKey.from_worker(KEY.for_worker())
    key.prepare("short-exponent", 20)
    assert key.decrypt_many(key.encrypt_many([2**19, -(2**19)], "short-exponent")) == [2**19, -(2**19)]
    assert key.decrypt_many(key.encrypt_many([2**200, -1], "short-exponent")) == [2**200, -1]
    assert key.encrypt_many([], "short-exponent") == key.encrypt_many([], "standard") == b""


def test_a_decryption_beyond_half_of_p_gives_p_away() -> None:
    """The oracle that docs/cryptography.md names: a sum that wraps differs from the true one by a multiple of p."""
    large = PUBLIC.read(KEY.encrypt_many([LARGEST], "short-exponent"))
    wrapped = KEY.decrypt_many(PUBLIC.write(power(PUBLIC.ring, large, 8)))[0]  # an active party's own doing
    assert gmpy2.gcd(8 * LARGEST - wrapped, N) == P


def test_sizes_follow_from_the_scheme_alone() -> None:
    """The figures that a job is checked with before there is a key are those of the key."""
    scheme = SCHEMES[OKAMOTO_UCHIYAMA]
    assert (scheme.ciphertext_bytes(BITS), scheme.plain_bits(BITS)) == (WIDTH, PUBLIC.plain_bits) == (128, 340)
    assert [scheme.plain_bits(bits) for bits in scheme.key_bits] == [681, 1022]
