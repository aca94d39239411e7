"""Paillier keys: agreement with phe, sizes, secrecy, files."""

from __future__ import annotations

import copy
import pickle

import gmpy2
import numpy as np
import phe
import pytest
from gmpy2 import mpz

from tests.library.ciphertexts import integers
from treetap.additive.paillier.public_key import PublicKey, TwistedObfuscators, residues
from treetap.additive.paillier.secret_key import SecretKey
from treetap.additive.residues.fixed_base import LARGEST_TABLE, FixedBase, table_bytes, window_for
from treetap.errors import BadInput, Malformed, PlaintextOverflow
from treetap.protocols.key_options import OBFUSCATIONS

KEY = SecretKey.generate(1024)
PLAINS = [0, 1, -1, 2**400, -(2**400), int(KEY.public.n) // 2, -(int(KEY.public.n) // 2)]
P, Q = int(KEY._p), int(KEY._q)


def signed(value: int, n: int) -> int:
    return value - n if 2 * value > n else value


@pytest.mark.parametrize("kind", OBFUSCATIONS)
def test_phe_opens_our_ciphertexts(kind):
    """phe's private key decrypts what each obfuscation encrypts, signs included."""
    private = phe.PaillierPrivateKey(phe.PaillierPublicKey(P * Q), P, Q)
    for plain, ciphertext in zip(PLAINS, integers(KEY.public, KEY.encrypt_many(PLAINS, kind)), strict=True):
        assert signed(private.raw_decrypt(int(ciphertext)), P * Q) == plain


@pytest.mark.parametrize("kind", OBFUSCATIONS)
def test_we_open_our_ciphertexts(kind):
    """Every obfuscation decrypts to the signed plaintext, and never gives the same ciphertext twice."""
    blob = KEY.encrypt_many(PLAINS * 2, kind)
    assert KEY.decrypt_many(blob) == PLAINS * 2
    assert len(set(integers(KEY.public, blob))) == 2 * len(PLAINS)


def test_we_open_phe_ciphertexts_and_use_its_keys():
    """A key that phe made decrypts phe's ciphertexts here, and ours under it open with phe."""
    public, private = phe.generate_paillier_keypair(n_length=1024)
    ours = SecretKey(private.p, private.q)
    plains = [5, -7 % public.n, 0]
    blob = b"".join(public.raw_encrypt(plain).to_bytes(ours.public.ciphertext_bytes, "big") for plain in plains)
    assert ours.decrypt_many(blob) == [5, -7, 0]
    ciphertext = integers(ours.public, ours.encrypt_many([-99], "standard"))[0]
    assert signed(private.raw_decrypt(int(ciphertext)), public.n) == -99


def test_public_arithmetic():
    """Sums and re-randomisation keep their plaintexts; the ciphertext changes."""
    public = KEY.public
    three = public.encrypt([3], public.standard(1))
    minus_five = public.encrypt([-5], TwistedObfuscators(public, "half-length").draw(1))
    again = public.rerandomise_standard(three)
    assert public.write(again) != public.write(three)
    results = [public.ring.multiply(three, minus_five), again]
    assert [KEY.decrypt_many(public.write(each)) for each in results] == [[-2], [3]]


@pytest.mark.parametrize("kind", OBFUSCATIONS)
def test_obfuscators_of_a_party_without_the_key_differ(kind: str):
    """Two draws are two obfuscators, and both encrypt zero."""
    drawn = TwistedObfuscators(KEY.public, kind, window=4).draw(2)
    assert len(set(integers(KEY.public, drawn))) == 2
    assert KEY.decrypt_many(KEY.public.write(drawn)) == [0, 0]


def test_a_plaintext_too_large_for_the_key_is_refused():
    """Half of n and more would come back with another sign, so it is refused on both paths."""
    beyond = int(KEY.public.n) // 2 + 1
    for plain in (beyond, -beyond):
        with pytest.raises(PlaintextOverflow):
            KEY.encrypt_many([plain], "standard")
        with pytest.raises(PlaintextOverflow):
            KEY.public.encrypt([plain], KEY.public.ring.ones(1))


def test_generated_keys_have_the_promised_form():
    """n has exactly the size asked for, p ≡ q ≡ 3 (mod 4) and gcd(p-1, q-1) = 2."""
    for _ in range(3):
        key = SecretKey.generate(1024)
        p, q = key._p, key._q
        assert key.public.n.bit_length() == 1024
        assert (p % 4, q % 4, gmpy2.gcd(p - 1, q - 1)) == (3, 3, 2)
        assert gmpy2.is_prime(p)
        assert gmpy2.is_prime(q)


def test_key_sizes_are_never_replaced():
    """Sizes that are not offered are refused, and 512 bits need a word and give a warning."""
    for bits in (256, 512, 1536, 4096):
        with pytest.raises(BadInput, match="1024, 2048, 3072"):
            SecretKey.generate(bits)
    with pytest.warns(UserWarning, match="512-bit"):
        toy = SecretKey.generate(512, allow_breakable=True)
    with pytest.raises(BadInput):
        PublicKey.from_bytes(toy.public.to_bytes())


def test_public_key_bytes_are_checked():
    """A public key survives its bytes; even and truncated numbers are refused."""
    data = KEY.public.to_bytes()
    assert PublicKey.from_bytes(data) == KEY.public
    with pytest.raises(BadInput, match="odd"):
        PublicKey.from_bytes(data[:-1] + bytes([data[-1] & 0xFE]))
    with pytest.raises(BadInput, match="bits"):
        PublicKey.from_bytes(data[:-1])


def test_imported_keys_without_blum_primes_use_standard_only():
    """A key with p ≡ 1 (mod 4) refuses the short obfuscations instead of using them outside their proof."""
    p = gmpy2.next_prime(P)
    while p % 4 != 1:
        p = gmpy2.next_prime(p)
    key = SecretKey(int(p), Q)
    for kind in ("half-length", "short-exponent"):
        with pytest.raises(BadInput, match="use standard"):
            key.encrypt_many([1], kind)
    assert key.decrypt_many(key.encrypt_many([-1], "standard")) == [-1]
    with pytest.raises(BadInput, match="one of"):
        key.prepare("none")


def test_malformed_ciphertexts_are_refused():
    """Cut blocks, zero, numbers from n² on and multiples of p are no ciphertexts."""
    width, n_squared = KEY.public.ciphertext_bytes, int(KEY.public.n_squared)
    for blob in (
        b"\x01" * (width - 1),
        bytes(width),
        n_squared.to_bytes(width, "big"),
        P.to_bytes(width, "big"),
        (3 * Q).to_bytes(width, "big"),
    ):
        with pytest.raises(Malformed):
            KEY.decrypt_many(blob)


def test_the_secret_key_does_not_travel_by_accident():
    """Pickling and copying are refused and repr shows neither prime."""
    for steal in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="not pickled"):
            steal(KEY)
    assert repr(KEY) == "SecretKey(1024 bits)"


def test_fixed_base_powers_equal_plain_powers():
    """A table gives base^e for exponents of all its digits, also where the last window is not full."""
    ring = residues(2**127 - 1)
    exponents = (0, 1, 2**61 - 1, 0x123456789ABCDEF)
    raw = np.frombuffer(b"".join(each.to_bytes(8, "little") for each in exponents), dtype=np.uint8).reshape(-1, 8)
    for window in (4, 5, 8):
        table = FixedBase(ring, mpz(3), 61, window)
        expected = [gmpy2.powmod(3, exponent, 2**127 - 1) for exponent in exponents]
        assert ring.numbers(table.powers(raw)) == expected


def test_windows_respect_the_memory_bound():
    """The window offered is the widest whose table fits; exponents twice as long get a narrower one."""
    window = window_for(256, 328, LARGEST_TABLE)
    assert table_bytes(256, window, 328) <= LARGEST_TABLE < table_bytes(256, window + 1, 328)
    assert window_for(1024, 328, LARGEST_TABLE) < window
    assert window_for(1024, 328, 0) == 4


def test_tables_of_a_worker_take_no_more_than_64_mb(monkeypatch):
    """Those of a key, and those of a party without it, for each obfuscation that has any."""
    made = []

    class Kept(FixedBase):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            made.append(self)

    for module in ("secret_key", "public_key"):
        monkeypatch.setattr(f"treetap.additive.paillier.{module}.FixedBase", Kept)
    key = SecretKey.generate(2048)
    for kind in ("short-exponent", "half-length"):
        made.clear()
        key.prepare(kind)
        assert len(made) >= 2
        assert sum(table.bytes for table in made) <= 64_000_000
        assert all(table._table.nbytes <= table.bytes for table in made)
        made.clear()
        TwistedObfuscators(key.public, kind)
        assert 0 < sum(table.bytes for table in made) <= 64_000_000
