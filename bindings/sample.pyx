# distutils: language = c
"""Exact integer samplers over addressed keystream, and fixed-point conversion."""

from libc.stdint cimport int16_t, int64_t, uint64_t

from dpcore_ext._c_sample cimport (
    DPC_BOTH_ENDS,
    DPC_GAUSS_GUARD,
    DPC_GUIDE_SIZE,
    DPC_LAST_END,
    DPC_MAX_DIGITS,
    DPC_NO_END,
    DPC_SMALL,
    dpc_all_small,
    dpc_dequantize,
    dpc_digits_t,
    dpc_exp_neg,
    dpc_gauss_t,
    dpc_guide_fill,
    dpc_quantize,
    dpc_sample_digits,
    dpc_sample_gauss,
    dpc_sample_integers,
    dpc_u256_t,
)
from dpcore_ext._c_seam cimport is_aligned, is_span, overlap
from dpcore_ext._c_simd cimport DPC_ERR_RANGE, DPC_OK, dpc_key_t, dpc_status
from dpcore_ext.rng cimport Key, kernels

import numpy as np

from dpcore_ext.errors import ParameterError, raise_status

SMALL = DPC_SMALL
MAX_DIGITS = DPC_MAX_DIGITS
GAUSS_GUARD = DPC_GAUSS_GUARD


cdef int add_digits(const dpc_key_t *key, const dpc_digits_t *law, uint64_t start,
                    const int64_t *x, int64_t *out, size_t n) noexcept nogil:
    if x != NULL and not dpc_all_small(x, n):
        return <int>DPC_ERR_RANGE
    dpc_sample_digits(kernels(), key, law, start, x, out, n)
    return <int>DPC_OK


cdef int add_gauss(const dpc_key_t *key, const dpc_gauss_t *law, uint64_t start,
                   const int64_t *x, int64_t *out, size_t n) noexcept nogil:
    if x != NULL and not dpc_all_small(x, n):
        return <int>DPC_ERR_RANGE
    dpc_sample_gauss(kernels(), key, law, start, x, out, n)
    return <int>DPC_OK


cdef int check_start(uint64_t start, size_t n) except -1:
    if not is_span(start, n):
        raise ParameterError("The 'start' parameter must leave all indices below 2**62.")
    return 0


cdef bint not_decreasing(const uint64_t[:, ::1] cdf) noexcept:
    cdef Py_ssize_t i, j
    for i in range(1, cdf.shape[0]):
        for j in range(4):
            if cdf[i, j] != cdf[i - 1, j]:
                if cdf[i, j] < cdf[i - 1, j]:
                    return False
                break
    return True


cdef class Table:
    """Cumulative probabilities in units of 2**-256 and the guide into them.

    Parameters
    ----------
    cdf : array of uint64, shape (n_thresholds, 4)
        Non-decreasing thresholds, most significant limb first.
    first : int
        Value of outcome 0; outcome k stands for first + k.
    open_ends : {0, 1, 2}
        How many end outcomes a tail continues: none, the last, or both.
    """

    def __cinit__(self, const uint64_t[:, ::1] cdf not None, int64_t first, int open_ends=0):
        if cdf.shape[1] != 4:
            raise ParameterError("The 'cdf' parameter must have four limbs for each threshold.")
        if not -(1 << 62) <= first <= 1 << 62:
            raise ParameterError("The 'first' parameter must lie within 2**62 of zero.")
        if not 0 <= open_ends <= 2:
            raise ParameterError("The 'open_ends' parameter must be 0, 1 or 2.")
        self.cdf = np.array(cdf, dtype=np.uint64, order="C")
        self.guide_array = np.empty(DPC_GUIDE_SIZE, dtype=np.int16)
        cdef uint64_t[:, ::1] own = self.cdf
        cdef int16_t[::1] guide = self.guide_array
        if not not_decreasing(own):
            raise ParameterError("The 'cdf' parameter must hold thresholds that do not decrease.")
        self.table.n_thresholds = own.shape[0]
        self.table.cdf = <const dpc_u256_t *>&own[0, 0] if own.shape[0] else NULL
        self.table.first = first
        self.table.open_ends = (DPC_NO_END, DPC_LAST_END, DPC_BOTH_ENDS)[open_ends]
        raise_status(dpc_guide_fill(&self.table, &guide[0]), "cdf")
        self.table.guide = &guide[0]

    @property
    def guide(self):
        """The guide, for tests: a read-only view."""
        view = self.guide_array.view()
        view.flags.writeable = False
        return view


cdef class Law:
    """A compiled law: what `add_to` adds is one integer per element, addressed by its index."""

    # Laws are filled by __cinit__, which runs once: there is none without its tables, and none
    # whose tables change while another thread draws from it.
    def __cinit__(self, *args, **kwargs):
        if not isinstance(self, (DigitLaw, GaussLaw)):
            raise TypeError("A Law is a DigitLaw or a GaussLaw.")

    def add_to(self, Key key not None, uint64_t start, const int64_t[::1] x,
               int64_t[::1] out not None):
        """out = x + noise of elements start, start + 1, ...; without x the noise alone.

        out may be x itself, but must not share a part of its memory.
        """
        if x is not None and x.shape[0] != out.shape[0]:
            raise ParameterError("The 'out' parameter must have the shape of 'x'.")
        cdef size_t n = out.shape[0]
        cdef const int64_t *source = NULL
        check_start(start, n)
        if n == 0:
            return
        if not is_aligned(&out[0], sizeof(int64_t)):
            raise ParameterError("The 'out' parameter must be an aligned array.")
        if x is not None and &x[0] != &out[0]:
            if overlap(&x[0], 8 * n, &out[0], 8 * n):
                raise ParameterError("The 'out' parameter must not share a part of 'x'.")
            if not is_aligned(&x[0], sizeof(int64_t)):
                x = np.array(x)
        if x is not None:
            source = &x[0]
        with nogil:
            self.fill(&key.key, start, source, &out[0], n)

    cdef void fill(self, const dpc_key_t *key, uint64_t start, const int64_t *x, int64_t *out,
                   size_t n) noexcept nogil:
        pass


cdef class DigitLaw(Law):
    """A law drawn as one table and, optionally, low digits and an unbounded tail; see sample.h."""

    def __cinit__(self, Table top not None, *, Table tail=None, digits=(), bint symmetric=False):
        cdef Table digit
        digits = tuple(digits)
        if len(digits) > DPC_MAX_DIGITS:
            raise ParameterError("The 'digits' parameter holds too many digits.")
        self.parts = (top, tail, digits)
        self.law.top = &top.table
        self.law.tail = NULL if tail is None else &tail.table
        self.law.symmetric = symmetric
        self.law.n_digits = len(digits)
        cdef int shift = 0, d = 0
        for digit, bits in digits:
            # Guides hold values of 15 bits; all digits leave room for the top in 64.
            if not 1 <= bits <= 15 or shift + bits > 62:
                raise ParameterError("The 'digits' parameter must hold 1 to 15 bits each.")
            if digit.table.first < 0 or digit.table.first + digit.table.n_thresholds >> bits:
                raise ParameterError("The 'digits' parameter must hold tables that fit their bits.")
            self.law.digit[d] = &digit.table
            self.law.shift[d] = shift
            shift += bits
            d += 1
        self.law.top_shift = shift

    @property
    def address(self):
        """Where the dpc_digits_t lies in memory as long as this object lives."""
        return <size_t>&self.law

    cdef void fill(self, const dpc_key_t *key, uint64_t start, const int64_t *x, int64_t *out,
                   size_t n) noexcept nogil:
        dpc_sample_digits(kernels(), key, &self.law, start, x, out, n)


cdef class GaussLaw(Law):
    """A Gaussian by rejection from cells 2**shift units wide; see sample.h."""

    def __cinit__(self, Table cells not None, *, kappa, int shift, bint lattice,
                  uint64_t guard=DPC_GAUSS_GUARD):
        if not 1 <= shift <= 31:
            raise ParameterError("The 'shift' parameter must lie between 1 and 31.")
        if not 0 < kappa < 1 << 128:
            raise ParameterError("The 'kappa' parameter must be a positive integer below 2**128.")
        # The kernels have 10 bits for the number of a cell.
        if (cells.table.first < -1024
                or cells.table.first + <int64_t>cells.table.n_thresholds > 1023):
            raise ParameterError("The 'cells' parameter must hold cells from -1024 to 1023.")
        self.cells = cells
        self.law.cells = cells.table
        self.law.bulk.guide = cells.table.guide
        self.law.bulk.kappa = (kappa >> 96) + 1
        self.law.bulk.shift = shift
        self.law.bulk.offset_mask = ((1 << shift) - 1) << (32 - shift) if lattice else 0xffffffff
        self.law.kappa_high = kappa >> 64
        self.law.kappa_low = kappa & 0xffffffffffffffff
        self.law.guard = guard
        self.law.lattice = lattice

    @property
    def address(self):
        """Where the dpc_gauss_t lies in memory as long as this object lives."""
        return <size_t>&self.law

    cdef void fill(self, const dpc_key_t *key, uint64_t start, const int64_t *x, int64_t *out,
                   size_t n) noexcept nogil:
        dpc_sample_gauss(kernels(), key, &self.law, start, x, out, n)


def integers(Key key not None, int64_t low, uint64_t bound, uint64_t start,
             int64_t[::1] out not None):
    """Uniform integers low, ..., low + bound - 1 for elements start, start + 1, ..."""
    cdef size_t n = out.shape[0]
    check_start(start, n)
    if n:
        with nogil:
            dpc_sample_integers(kernels(), &key.key, low, bound, start, &out[0], n)


def exp_neg(uint64_t exponent):
    """e**-x in units of 2**-64, x = exponent / 2**62: the evaluation the rejection step uses."""
    return dpc_exp_neg(exponent)


def all_small(const int64_t[::1] x not None):
    """Whether no element is further than 2**62 from zero."""
    cdef size_t n = x.shape[0]
    cdef int result = 1
    if n:
        with nogil:
            result = dpc_all_small(&x[0], n)
    return bool(result)


def quantize(const double[::1] x not None, double lower, double upper, int exponent,
             int64_t[::1] out not None, str name="x"):
    """out = clamp(x) / 2**exponent to the nearest integer; raises on what is not finite or fits."""
    cdef size_t n = x.shape[0]
    cdef dpc_status status
    if out.shape[0] != x.shape[0]:
        raise ParameterError("The 'out' parameter must have the shape of 'x'.")
    if n:
        if not is_aligned(&out[0], sizeof(int64_t)):
            raise ParameterError("The 'out' parameter must be an aligned array.")
        if not is_aligned(&x[0], sizeof(double)):
            x = np.array(x)
        with nogil:
            status = dpc_quantize(&x[0], lower, upper, exponent, &out[0], n)
        raise_status(status, name)


def dequantize(const int64_t[::1] q not None, int exponent, double[::1] out not None):
    """out = q * 2**exponent; out may share the memory of q."""
    cdef size_t n = q.shape[0]
    if out.shape[0] != q.shape[0]:
        raise ParameterError("The 'out' parameter must have the shape of 'q'.")
    if n:
        with nogil:
            dpc_dequantize(&q[0], exponent, &out[0], n)
