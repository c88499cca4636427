# distutils: language = c
"""LSTM cells of many groups of weights, forward and backward; see recurrent.h."""

from dpcore_ext._c_simd cimport dpc_kernels_t, dpc_lstm_scratch, dpc_lstm_t
from dpcore_ext.rng cimport kernels

import numpy as np

from dpcore_ext.errors import ParameterError


cdef class Cells:
    """Buffers of all groups of one call: x (G, B, T), wx and bias (G, 4H), wh (G, H, 4H).

    `h` and `c` are (G, B, T, H), `gates` is (G, B, T, 4H); all are float32 and contiguous.
    """

    def __cinit__(self, const float[:, :, ::1] x not None, const float[:, ::1] wx not None,
                  const float[:, :, ::1] wh not None, const float[:, ::1] bias not None,
                  float[:, :, :, ::1] h not None, float[:, :, :, ::1] c not None,
                  float[:, :, :, ::1] gates not None):
        cdef Py_ssize_t groups = x.shape[0], rows = x.shape[1], steps = x.shape[2]
        cdef Py_ssize_t hidden = wh.shape[1], i
        if groups == 0 or rows == 0 or steps == 0 or hidden == 0 or hidden % 16:
            raise ParameterError("The 'wh' parameter must have a multiple of 16 hidden units.")
        if (wx.shape[0] != groups or wh.shape[0] != groups or bias.shape[0] != groups
                or wx.shape[1] != 4 * hidden or wh.shape[2] != 4 * hidden
                or bias.shape[1] != 4 * hidden):
            raise ParameterError("The weights must have a row for every group of 'x'.")
        for i in range(3):
            if h.shape[i] != x.shape[i] or c.shape[i] != x.shape[i] or gates.shape[i] != x.shape[i]:
                raise ParameterError("The 'h', 'c' and 'gates' parameters must be shaped as 'x'.")
        if h.shape[3] != hidden or c.shape[3] != hidden or gates.shape[3] != 4 * hidden:
            raise ParameterError("The 'h', 'c' and 'gates' parameters must fit the hidden units.")
        self.x, self.wx, self.wh, self.bias = x, wx, wh, bias
        self.h, self.c, self.gates = h, c, gates

    cdef dpc_lstm_t group(self, Py_ssize_t g) noexcept nogil:
        cdef dpc_lstm_t cells
        cells.hidden = self.h.shape[3]
        cells.n_rows, cells.n_steps = self.x.shape[1], self.x.shape[2]
        cells.x, cells.wx = &self.x[g, 0, 0], &self.wx[g, 0]
        cells.wh, cells.bias = &self.wh[g, 0, 0], &self.bias[g, 0]
        cells.h, cells.c = &self.h[g, 0, 0, 0], &self.c[g, 0, 0, 0]
        cells.gates = &self.gates[g, 0, 0, 0]
        cells.dh = cells.dwx = cells.dwh = cells.dbias = cells.scratch = NULL
        return cells

    def _check(self, Py_ssize_t first, Py_ssize_t last):
        if not 0 <= first <= last <= self.x.shape[0]:
            raise ParameterError("The 'first' and 'last' parameters must name groups.")

    def forward(self, Py_ssize_t first, Py_ssize_t last):
        """All steps of some groups."""
        self._check(first, last)
        cdef const dpc_kernels_t *table = kernels()
        cdef dpc_lstm_t cells
        cdef Py_ssize_t g
        with nogil:
            for g in range(first, last):
                cells = self.group(g)
                table.lstm_forward(&cells)

    def backward(self, const float[:, :, :, ::1] dh not None, float[:, ::1] dwx not None,
                 float[:, :, ::1] dwh not None, float[:, ::1] dbias not None, Py_ssize_t first,
                 Py_ssize_t last):
        """Gradients of the weights of some groups, from the gradient dh of max(h, 0)."""
        self._check(first, last)
        cdef Py_ssize_t i, g, hidden = self.h.shape[3]
        for i in range(4):
            if dh.shape[i] != self.h.shape[i]:
                raise ParameterError("The 'dh' parameter must be shaped as 'h'.")
        if (dwx.shape[0] != self.wx.shape[0] or dwx.shape[1] != self.wx.shape[1]
                or dbias.shape[0] != self.bias.shape[0] or dbias.shape[1] != self.bias.shape[1]
                or dwh.shape[0] != self.wh.shape[0] or dwh.shape[1] != self.wh.shape[1]
                or dwh.shape[2] != self.wh.shape[2]):
            raise ParameterError("The gradients must be shaped as the weights.")
        cdef float[::1] scratch = np.empty(dpc_lstm_scratch(hidden), np.float32)
        cdef const dpc_kernels_t *table = kernels()
        cdef dpc_lstm_t cells
        with nogil:
            for g in range(first, last):
                cells = self.group(g)
                cells.dh, cells.scratch = &dh[g, 0, 0, 0], &scratch[0]
                cells.dwx, cells.dwh = &dwx[g, 0], &dwh[g, 0, 0]
                cells.dbias = &dbias[g, 0]
                table.lstm_backward(&cells)
