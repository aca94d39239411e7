"""Blocks of ciphertexts: as many for each worker, of one size, and none longer than its message may be."""

import pytest

from treetap.additive.sums.key_holder import BLOCK, BLOCK_BYTES, SMALLEST_BLOCK, block_size


@pytest.mark.parametrize("width", [256, 512, 768])
@pytest.mark.parametrize("workers", [1, 2, 3, 8])
@pytest.mark.parametrize("records", [1, 100, 2048, 3072, 3073, 24_000, 1_000_001])
def test_blocks_are_even_and_bounded(records: int, workers: int, width: int) -> None:
    """A worker has no more blocks than another but where the last is small, and as few as the bounds let it have."""
    size = block_size(records, workers, width)
    most = min(BLOCK, BLOCK_BYTES // width)
    assert SMALLEST_BLOCK <= size <= most
    blocks, of_worker = -(-records // size), -(-records // workers)
    assert blocks <= workers * -(-of_worker // most)
    assert size == SMALLEST_BLOCK or blocks > workers * (-(-of_worker // most) - 1)


def test_a_caller_may_ask_for_smaller_ones() -> None:
    """Of a ciphertext that fills a message too."""
    assert [block_size(1000, 2, 512, most) for most in (1, 100, 10**6)] == [1, 100, 500]
    assert block_size(1000, 2, 2 * BLOCK_BYTES) == 1
