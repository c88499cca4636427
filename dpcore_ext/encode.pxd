"""C-level face of dpcore_ext.encode: a local randomiser, to be run without the GIL."""

from dpcore_ext._c_encode cimport dpc_cut_t, dpc_rows_t


cdef class Rows:
    cdef dpc_rows_t rows
    cdef const dpc_cut_t *cut
    cdef object buffers
