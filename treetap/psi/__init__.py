"""Private set intersection: blinded identifiers and lists of them (docs/alignment.md).

group           the group, and what a backend computes in it
sodium_group    by libsodium, a point at a time: also what the others are tested against
ifma_group      by the compiled kernels of `treetap.native`, eight points at a time
backends        the choice between both; no other file asks which it is
exponents       secret exponents
kernels         blocks of ids and points, for the workers of `treetap.workers`
lists           lists of points in files: shuffled and intersected by parts
"""
