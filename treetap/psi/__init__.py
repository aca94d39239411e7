"""Private set intersection: blinded identifiers and lists of them (docs/alignment.md).

group           the group, its secret exponents, and what a backend computes in it
kernels         blocks of ids and points, for the workers of `treetap.workers`: by compiled kernels, or libsodium
proof           proofs that a list was raised by one exponent
lists           lists of points in files: shuffled and intersected by parts
"""
