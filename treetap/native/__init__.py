"""Compiled kernels: arithmetic on many numbers at once.

    processor.c   which instructions this processor and its operating system offer
    numbers.c     products, powers and conversions modulo one odd number (ciphertexts): AVX-512 IFMA
    curve.c       blinded identifiers (alignment), over the field of curve_field.h: four forms, see lanes.h
    sha512.c      digests of ids, which curve.c maps to points: every processor
    lattice.c     the lattice scheme, on the polynomials of polynomials.h: every processor, faster with AVX2

The C files need a C compiler and nothing else: no headers of Python. They are compiled into `kernels.so` when treetap
is installed, and `treetap.native.library` loads it. Every call releases the interpreter's lock, as calls of ctypes do.
`treetap.native.arithmetic` decides whether this process computes with the first two.
"""
