"""Compiled kernels: arithmetic on eight numbers at once, for processors with AVX-512 IFMA.

    processor.c   which instructions this processor and its operating system offer
    numbers.c     products, powers and conversions modulo one odd number (ciphertexts)
    curve.c       scalar multiplications of blinded identifiers (alignment), over the field of curve_field.h

The C files need a C compiler and nothing else: no headers of Python. They are compiled into `kernels.so` when treetap
is installed, and `treetap.native.library` loads it. Every call releases the interpreter's lock, as calls of ctypes do.
`treetap.native.arithmetic` decides whether this process computes with them.
"""
