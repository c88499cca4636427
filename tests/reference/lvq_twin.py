"""Slow twin of the LVQ kernel: one explicit gradient per sample, straight from the definitions."""

import numpy as np


def cost(x, y, w, labels, omega, phi):
    """Transfer of the relative distance of one sample."""
    delta = (x - w) if omega is None else (x - w) @ omega.T
    d = (delta**2).sum(axis=1)
    own, other = np.flatnonzero(labels == y), np.flatnonzero(labels != y)
    p, m = own[d[own].argmin()], other[d[other].argmin()]
    return phi((d[p] - d[m]) / (d[p] + d[m]))


def gradient(x, y, w, labels, omega, slope=lambda mu: 1.0):
    """Gradients for prototypes and Omega of one sample; Omega of GRLVQ is a vector of weights."""
    diagonal = omega is not None and omega.ndim == 1
    matrix = np.eye(len(x)) if omega is None else np.diag(np.sqrt(omega)) if diagonal else omega
    v = (x - w) @ matrix.T
    d = (v**2).sum(axis=1)
    own, other = np.flatnonzero(labels == y), np.flatnonzero(labels != y)
    p, m = own[d[own].argmin()], other[d[other].argmin()]
    s = d[p] + d[m]
    g_w = np.zeros_like(w)
    if s < 1e-12:
        return g_w, None if omega is None else np.zeros_like(omega)
    factor = slope((d[p] - d[m]) / s)
    a, b = factor * 4 * d[m] / s**2, factor * 4 * d[p] / s**2
    g_w[p] = -a * matrix.T @ v[p]
    g_w[m] = b * matrix.T @ v[m]
    if omega is None:
        return g_w, None
    if diagonal:
        return g_w, (a * (x - w[p]) ** 2 - b * (x - w[m]) ** 2) / 2
    return g_w, a * np.outer(v[p], x - w[p]) - b * np.outer(v[m], x - w[m])


def norm(g_w, g_omega):
    return np.sqrt((g_w**2).sum() + (0 if g_omega is None else (g_omega**2).sum()))


def clipped_sums(x, y, w, labels, omega, clip, slope=lambda mu: 1.0):
    total_w = np.zeros_like(w)
    total_omega = None if omega is None else np.zeros_like(omega)
    for row, label in zip(x, y, strict=True):
        g_w, g_omega = gradient(row, label, w, labels, omega, slope)
        size = norm(g_w, g_omega)
        factor = 1 if size <= clip else clip / size
        total_w += factor * g_w
        if omega is not None:
            total_omega += factor * g_omega
    return total_w, total_omega
