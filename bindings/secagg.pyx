# distutils: language = c
"""Kernels of secure aggregation: masks of many peers, and Shamir's secret sharing."""

cimport cython
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from dpcore_ext._c_secagg cimport (
    DPC_SHAMIR_BYTES,
    dpc_mask_add_u32,
    dpc_mask_add_u64,
    dpc_shamir_combine,
    dpc_shamir_split,
    dpc_shamir_weights,
)
from dpcore_ext.rng cimport kernels

from dpcore_ext.errors import ParameterError

SHARE_BYTES = DPC_SHAMIR_BYTES

ctypedef fused word_t:
    uint32_t
    uint64_t


cdef void mask_add_u32(const uint8_t *keys, const uint8_t *negative, size_t n_keys,
                       uint64_t counter, uint32_t *acc, size_t n) noexcept nogil:
    dpc_mask_add_u32(kernels(), keys, negative, n_keys, counter, acc, n)


cdef void mask_add_u64(const uint8_t *keys, const uint8_t *negative, size_t n_keys,
                       uint64_t counter, uint64_t *acc, size_t n) noexcept nogil:
    dpc_mask_add_u64(kernels(), keys, negative, n_keys, counter, acc, n)


@cython.embedsignature(False)  # that of a fused function is the dispatcher's
def mask_add(const uint8_t[:, ::1] keys not None, const uint8_t[::1] negative not None,
             uint64_t counter, word_t[::1] acc not None):
    """acc plus or minus the masks of all keys, from 64-byte block `counter` of each on."""
    cdef size_t n_keys = keys.shape[0], n = acc.shape[0]
    if keys.shape[1] != 32:
        raise ParameterError("The 'keys' parameter must have 32 bytes for each key.")
    if negative.shape[0] != keys.shape[0]:
        raise ParameterError("The 'negative' parameter must have a flag for each key.")
    if n and n_keys:
        with nogil:
            if word_t is uint32_t:
                mask_add_u32(&keys[0, 0], &negative[0], n_keys, counter, &acc[0], n)
            else:
                mask_add_u64(&keys[0, 0], &negative[0], n_keys, counter, &acc[0], n)


cdef int check_points(const uint16_t[::1] points) except -1:
    cdef Py_ssize_t i
    if points.shape[0] == 0 or points[0] == 0:
        raise ParameterError("The 'points' parameter must hold integers from 1 to 65535.")
    for i in range(1, points.shape[0]):
        if points[i] <= points[i - 1]:
            raise ParameterError("The 'points' parameter must hold increasing integers.")
    return 0


cdef size_t n_elements_of(const uint8_t[:, ::1] rows) except 0:
    if rows.shape[0] == 0 or rows.shape[1] == 0 or rows.shape[1] % DPC_SHAMIR_BYTES:
        raise ParameterError("Rows of shares must be a multiple of 16 bytes long.")
    return rows.shape[1] // DPC_SHAMIR_BYTES


def split(const uint8_t[:, ::1] coefficients not None, const uint16_t[::1] points not None,
          uint8_t[:, ::1] shares not None):
    """shares[p] = the polynomial at points[p]; the last row of coefficients is the secret."""
    check_points(points)
    cdef size_t n_elements = n_elements_of(coefficients)
    if shares.shape[0] != points.shape[0] or shares.shape[1] != coefficients.shape[1]:
        raise ParameterError("The 'shares' parameter must have a row for each point.")
    with nogil:
        dpc_shamir_split(&coefficients[0, 0], coefficients.shape[0], n_elements, &points[0],
                         points.shape[0], &shares[0, 0])


def weights(const uint16_t[::1] points not None, uint8_t[:, ::1] out not None):
    """out[p] = what the share of points[p] is multiplied with to give the secret."""
    check_points(points)
    if out.shape[0] != points.shape[0] or out.shape[1] != DPC_SHAMIR_BYTES:
        raise ParameterError("The 'out' parameter must have 16 bytes for each point.")
    with nogil:
        dpc_shamir_weights(&points[0], points.shape[0], &out[0, 0])


def combine(const uint8_t[:, ::1] weights not None, const uint8_t[:, ::1] shares not None,
            uint8_t[::1] secret not None):
    """secret = the sum of weights times shares, one row each."""
    cdef size_t n_elements = n_elements_of(shares)
    if weights.shape[0] != shares.shape[0] or weights.shape[1] != DPC_SHAMIR_BYTES:
        raise ParameterError("The 'weights' parameter must have 16 bytes for each share.")
    if secret.shape[0] != shares.shape[1]:
        raise ParameterError("The 'secret' parameter must be as long as a share.")
    with nogil:
        dpc_shamir_combine(&weights[0, 0], &shares[0, 0], shares.shape[0], n_elements, &secret[0])
