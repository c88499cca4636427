# distutils: language = c
"""Local randomisers with finitely many outputs, driven by tables."""

from cython cimport floating
from libc.math cimport INFINITY
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from dpcore_ext._c_encode cimport (
    DPC_MAX_LOG2_COLUMNS,
    dpc_cut_t,
    dpc_encode_f32,
    dpc_encode_f64,
    dpc_rows_entries,
    dpc_rows_t,
)
from dpcore_ext._c_seam cimport is_aligned, is_span, overlap
from dpcore_ext._c_simd cimport dpc_key_t, dpc_status
from dpcore_ext.rng cimport Key, kernels

import numpy as np

from dpcore_ext.errors import ParameterError, raise_status

# Indices of entries have 32 bits in the kernels, and signs at some levels; devices have this limit.
cdef Py_ssize_t MOST_ENTRIES = 1 << 28

ctypedef fused code_t:
    uint8_t
    uint16_t


cdef int encode_f64(const dpc_key_t *key, const dpc_rows_t *rows, const dpc_cut_t *cut,
                    uint64_t start, const double *x, void *codes, size_t n) noexcept nogil:
    return <int>dpc_encode_f64(kernels(), key, rows, cut, start, x, codes, n)


cdef int encode_f32(const dpc_key_t *key, const dpc_rows_t *rows, const dpc_cut_t *cut,
                    uint64_t start, const float *x, void *codes, size_t n) noexcept nogil:
    return <int>dpc_encode_f32(kernels(), key, rows, cut, start, x, codes, n)


cdef object read_only(array):
    view = array.view()
    view.flags.writeable = False
    return view


cdef class Rows:
    """Alias tables of every grid point of a mechanism; see encode.h.

    Parameters
    ----------
    cut : array of uint64, shape (n_intervals + 1, n_columns, 2)
        128-bit fractions, high word first; n_columns is a power of two.
    alias : array of uint16, shape (n_intervals + 1, n_columns)
    n_intervals : int
    lower, upper : float
        Inputs of the first and the last row.
    """

    def __cinit__(self, const uint64_t[:, :, ::1] cut not None,
                  const uint16_t[:, ::1] alias not None, int n_intervals, double lower,
                  double upper):
        cdef Py_ssize_t n_columns = alias.shape[1]
        cdef int bits = int(n_columns).bit_length() - 1
        if n_columns != 1 << bits or not 1 <= bits <= DPC_MAX_LOG2_COLUMNS:
            raise ParameterError("The 'alias' parameter must have 2**1 to 2**16 columns.")
        if (n_intervals < 1 or alias.shape[0] != n_intervals + 1 or cut.shape[0] != alias.shape[0]
                or cut.shape[1] != n_columns or cut.shape[2] != 2 or not lower < upper):
            raise ParameterError("The 'cut' and 'alias' parameters must describe the same rows.")
        if (<Py_ssize_t>n_intervals + 1) << bits > MOST_ENTRIES:
            raise ParameterError("The 'alias' parameter must have at most 2**28 entries.")
        own_alias = np.array(alias, dtype=np.uint16, order="C")
        if own_alias.max() >= n_columns:
            raise ParameterError("The 'alias' parameter must hold numbers of columns.")
        if not 0 < n_intervals / (upper - lower) < INFINITY:
            raise ParameterError("The 'lower' and 'upper' parameters must be finite.")
        own_cut = np.array(cut, dtype=np.uint64, order="C")
        entries = np.empty((n_intervals + 1, n_columns), dtype=np.uint32)
        self.buffers = (own_cut, entries)
        cdef uint64_t[:, :, ::1] cut_view = own_cut
        cdef uint32_t[:, ::1] entry_view = entries
        cdef uint16_t[:, ::1] alias_view = own_alias
        self.cut = <const dpc_cut_t *>&cut_view[0, 0, 0]
        dpc_rows_entries(self.cut, &alias_view[0, 0], entries.size, bits, &entry_view[0, 0])
        self.rows.entry = &entry_view[0, 0]
        self.rows.n_intervals = n_intervals
        self.rows.log2_columns = bits
        self.rows.lower = lower
        self.rows.per_unit = n_intervals / (upper - lower)

    @property
    def dtype(self):
        """The dtype of codes."""
        return np.dtype(np.uint16 if self.rows.log2_columns > 8 else np.uint8)

    @property
    def addresses(self):
        """Where the rows and the cuts lie in memory as long as this object lives."""
        return <size_t>&self.rows, <size_t>self.cut

    @property
    def cuts(self):
        """The 128-bit fractions of every row and column: a read-only view."""
        return read_only(self.buffers[0])

    @property
    def entries(self):
        """What the kernel looks up for every row and column; see encode.h. A read-only view."""
        return read_only(self.buffers[1])

    def encode(self, Key key not None, uint64_t start, const floating[::1] x not None,
               code_t[::1] out not None):
        """out = codes of x for elements start, start + 1, ..."""
        cdef size_t n = x.shape[0]
        cdef dpc_status status
        if out.shape[0] != x.shape[0] or sizeof(code_t) != self.dtype.itemsize:
            raise ParameterError("The 'out' parameter must be a code array of the shape of 'x'.")
        if not is_span(start, n):
            raise ParameterError("The 'start' parameter must leave all indices below 2**62.")
        if n:
            if overlap(&x[0], n * sizeof(floating), &out[0], n * sizeof(code_t)):
                raise ParameterError("The 'out' parameter must not share memory with 'x'.")
            if not is_aligned(&out[0], sizeof(code_t)):
                raise ParameterError("The 'out' parameter must be an aligned array.")
            if not is_aligned(&x[0], sizeof(floating)):
                x = np.array(x)
            with nogil:
                if floating is double:
                    status = dpc_encode_f64(kernels(), &key.key, &self.rows, self.cut, start,
                                            &x[0], &out[0], n)
                else:
                    status = dpc_encode_f32(kernels(), &key.key, &self.rows, self.cut, start,
                                            &x[0], &out[0], n)
            raise_status(status, "x")
