"""Local search for cluster labels under a loss that the user wrote.

A move changes two columns of the implied proportions, so it costs one pass over the batches; the
native search is for the squared loss, which needs none.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numba import njit
from numba.extending import is_jitted

__all__ = ["search"]

REFRESH = 1000  # moves after which everything is computed afresh, as by the native search


def search(loss, shares, targets, weights, starts):
    """Best labeling of all starts, its total loss, and the moves made.

    Parameters
    ----------
    loss : function of (implied, given) -> float
        Compiled here unless it is already.
    shares : float64, shape (n_clusters, n_batches)
    targets : float64, shape (n_labels, n_batches)
    weights : float64, shape (n_batches,)
    starts : int32, shape (n_starts, n_clusters)
    """
    return _compiled(loss)(shares, targets, weights, starts)


@cache
def _compiled(loss):
    cell = loss if is_jitted(loss) else njit(loss)

    @njit
    def column_loss(implied, target, weights):
        total = 0.0
        for i in range(implied.size):
            total += weights[i] * cell(implied[i], target[i])
        return total

    @njit
    def moved_loss(implied, share, sign, target, weights):
        total = 0.0
        for i in range(implied.size):
            total += weights[i] * cell(implied[i] + sign * share[i], target[i])
        return total

    @njit
    def implied_by(labels, shares, n_labels):
        implied = np.zeros((n_labels, shares.shape[1]))
        for c in range(shares.shape[0]):
            implied[labels[c]] += shares[c]
        return implied

    @njit
    def run(shares, targets, weights, starts):
        k, n_labels = shares.shape[0], targets.shape[0]
        best_labels, best_total, n_moves = starts[0].copy(), np.inf, 0
        for s in range(starts.shape[0]):
            labels = starts[s].copy()
            implied = implied_by(labels, shares, n_labels)
            parts = np.zeros(n_labels)
            for y in range(n_labels):
                parts[y] = column_loss(implied[y], targets[y], weights)
            last, here = parts.sum(), 0
            while True:
                # More than the rounding of these sums: ties would be taken back again for ever.
                size = np.abs(parts).sum()
                least = 1e-12 + (size * (implied.shape[1] + 8) * 2.0**-50 if size < np.inf else 0.0)
                gain, best_c, best_e, best_q = -least, -1, -1, -1
                for c in range(k):
                    p = labels[c]
                    left = moved_loss(implied[p], shares[c], -1.0, targets[p], weights) - parts[p]
                    for q in range(n_labels):
                        if q != p:
                            right = moved_loss(implied[q], shares[c], 1.0, targets[q], weights)
                            change = left + right - parts[q]
                            if change < gain:
                                gain, best_c, best_q = change, c, q
                if best_c < 0:
                    for c in range(k):
                        for e in range(c + 1, k):
                            p, q = labels[c], labels[e]
                            if p != q:
                                trade = shares[e] - shares[c]
                                change = moved_loss(implied[p], trade, 1.0, targets[p], weights)
                                change += moved_loss(implied[q], trade, -1.0, targets[q], weights)
                                change -= parts[p] + parts[q]
                                if change < gain:
                                    gain, best_c, best_e = change, c, e
                if best_c < 0:
                    break
                p = labels[best_c]
                q = best_q if best_e < 0 else labels[best_e]
                implied[p] -= shares[best_c]
                implied[q] += shares[best_c]
                labels[best_c] = q
                if best_e >= 0:
                    implied[q] -= shares[best_e]
                    implied[p] += shares[best_e]
                    labels[best_e] = p
                parts[p] = column_loss(implied[p], targets[p], weights)
                parts[q] = column_loss(implied[q], targets[q], weights)
                n_moves += 1
                here += 1
                if here % REFRESH == 0:
                    # Fresh totals are a function of the labels: they cannot fall for ever.
                    implied = implied_by(labels, shares, n_labels)
                    for y in range(n_labels):
                        parts[y] = column_loss(implied[y], targets[y], weights)
                    if not parts.sum() < last:
                        break
                    last = parts.sum()
            total = parts.sum()
            if total < best_total:
                best_labels, best_total = labels, total
        return best_labels, best_total, n_moves

    return run
