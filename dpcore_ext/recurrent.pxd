"""C-level face of dpcore_ext.recurrent: the buffers of a call."""

from dpcore_ext._c_simd cimport dpc_lstm_t


cdef class Cells:
    cdef const float[:, :, ::1] x
    cdef const float[:, ::1] wx
    cdef const float[:, :, ::1] wh
    cdef const float[:, ::1] bias
    cdef float[:, :, :, ::1] h
    cdef float[:, :, :, ::1] c
    cdef float[:, :, :, ::1] gates
    cdef dpc_lstm_t group(self, Py_ssize_t g) noexcept nogil
