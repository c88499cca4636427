# distutils: language = c
"""Codes of a few bits, packed without gaps, and counts of codes straight from the packed bytes."""

cimport cython
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from dpcore_ext._c_pack cimport (
    DPC_ERR_CODE,
    DPC_MAX_BITS,
    dpc_count_packed,
    dpc_count_u8,
    dpc_count_u16,
    dpc_pack_u8,
    dpc_pack_u16,
    dpc_packed_size,
    dpc_unpack_u8,
    dpc_unpack_u16,
)

from numbers import Integral

from dpcore_ext.errors import DataError, ParameterError, raise_status

MAX_BITS = DPC_MAX_BITS

ctypedef fused code_t:
    uint8_t
    uint16_t


cdef size_t packed_size(size_t n, uint32_t n_bits) noexcept nogil:
    return dpc_packed_size(n, n_bits)


cdef int pack_u8(const uint8_t *codes, size_t n, uint32_t n_bits, uint8_t *out) noexcept nogil:
    return dpc_pack_u8(codes, n, n_bits, out)


cdef int pack_u16(const uint16_t *codes, size_t n, uint32_t n_bits, uint8_t *out) noexcept nogil:
    return dpc_pack_u16(codes, n, n_bits, out)


cdef void unpack_u8(const uint8_t *packed, uint32_t n_bits, uint8_t *codes,
                    size_t n) noexcept nogil:
    dpc_unpack_u8(packed, n_bits, codes, n)


cdef void unpack_u16(const uint8_t *packed, uint32_t n_bits, uint16_t *codes,
                     size_t n) noexcept nogil:
    dpc_unpack_u16(packed, n_bits, codes, n)


cdef void count_packed_fill(const uint8_t *packed, uint32_t n_bits, size_t n,
                            uint64_t *counts) noexcept nogil:
    dpc_count_packed(packed, n_bits, n, counts)


cdef int count_u8(const uint8_t *codes, size_t n, uint64_t *counts,
                  size_t n_counts) noexcept nogil:
    return dpc_count_u8(codes, n, counts, n_counts)


cdef int count_u16(const uint16_t *codes, size_t n, uint64_t *counts,
                   size_t n_counts) noexcept nogil:
    return dpc_count_u16(codes, n, counts, n_counts)


cdef uint32_t checked_bits(object n_bits, uint32_t most) except 0:
    if not isinstance(n_bits, Integral) or not 1 <= n_bits <= most:
        raise ParameterError(f"The 'n_bits' parameter must be an integer from 1 to {most}.")
    return n_bits


cdef int check_packed(Py_ssize_t n_bytes, size_t n, uint32_t n_bits, str name) except -1:
    # A code has a bit at least, so the first comparison keeps absurd n away from the product.
    if n > 8 * <size_t>n_bytes or dpc_packed_size(n, n_bits) != <size_t>n_bytes:
        raise ParameterError(f"The '{name}' parameter must hold exactly the bytes of the codes.")
    return 0


@cython.embedsignature(False)  # that of a fused function is the dispatcher's
def pack(const code_t[::1] codes not None, n_bits, uint8_t[::1] out not None):
    """out = the codes at n_bits bits each, the first one in the lowest bits; see pack.h.

    n_bits is at most 8 for codes of uint8 and 16 for uint16. A stream may be packed in pieces of
    a multiple of 8 codes.
    """
    cdef size_t n = codes.shape[0]
    cdef uint32_t bits = checked_bits(n_bits, 8 * sizeof(code_t))
    cdef int status
    check_packed(out.shape[0], n, bits, "out")
    if n:
        with nogil:
            if code_t is uint8_t:
                status = dpc_pack_u8(&codes[0], n, bits, &out[0])
            else:
                status = dpc_pack_u16(&codes[0], n, bits, &out[0])
        raise_status(status, "codes")


@cython.embedsignature(False)
def unpack(const uint8_t[::1] data not None, n_bits, code_t[::1] out not None):
    """out = the codes packed in data, as many as out has room for."""
    cdef size_t n = out.shape[0]
    cdef uint32_t bits = checked_bits(n_bits, 8 * sizeof(code_t))
    check_packed(data.shape[0], n, bits, "data")
    if n:
        with nogil:
            if code_t is uint8_t:
                dpc_unpack_u8(&data[0], bits, &out[0], n)
            else:
                dpc_unpack_u16(&data[0], bits, &out[0], n)


def count_packed(const uint8_t[::1] data not None, n_bits, size_t n,
                 uint64_t[::1] counts not None):
    """counts[c] += how many of the n codes packed in data equal c, for all 2**n_bits codes."""
    cdef uint32_t bits = checked_bits(n_bits, DPC_MAX_BITS)
    check_packed(data.shape[0], n, bits, "data")
    if counts.shape[0] != 1 << bits:
        raise ParameterError("The 'counts' parameter must have 2**n_bits elements.")
    if n:
        with nogil:
            dpc_count_packed(&data[0], bits, n, &counts[0])


@cython.embedsignature(False)
def count(const code_t[::1] codes not None, uint64_t[::1] counts not None):
    """counts[c] += how many codes equal c; nothing is counted if a code has no place in counts."""
    cdef size_t n = codes.shape[0], n_counts = counts.shape[0]
    cdef int status = DPC_ERR_CODE
    if n and n_counts:
        with nogil:
            if code_t is uint8_t:
                status = dpc_count_u8(&codes[0], n, &counts[0], n_counts)
            else:
                status = dpc_count_u16(&codes[0], n, &counts[0], n_counts)
    if n and status == DPC_ERR_CODE:
        raise DataError("The 'codes' parameter must hold codes below the length of 'counts'.")
