"""Compiled kernels: arithmetic on many numbers at once.

    processor.c   which instructions this processor and its operating system offer
    numbers.c     products and powers modulo one odd number (ciphertexts), by multiply.h: four forms, see lanes.h
    words.c       these numbers from and to bytes, and sums: every processor
    curve.c       blinded identifiers (alignment), over the field of curve_field.h: four forms, see lanes.h
    sha512.c      digests of ids, which curve.c maps to points: every processor
    lattice.c     the lattice scheme, on the polynomials of polynomials.h: every processor, faster with AVX2
    rings.c       numbers modulo powers of 2^64 (shared sums): every processor
    histogram_words.c, histogram_sums.c
                  encrypted histograms on a lattice, by the transform of fourier.h: three forms, AVX-512 without IFMA

The C files need a C compiler and nothing else: no headers of Python. They are compiled into `kernels.so` when treetap
is installed, and `treetap.native.library` loads it. Every call releases the interpreter's lock, as calls of ctypes do.
`treetap.native.arithmetic` decides by which form this process computes with ciphertexts and blinded identifiers.

A form is the same source compiled for other instructions: digits of 52 bits by AVX-512 IFMA (multiply_ifma.h), or of 49
bits by the fused multiply-add of doubles (multiply_fma.h), eight or four numbers side by side. Digits differ between
forms and never leave a process; bytes that do are the same.
"""
