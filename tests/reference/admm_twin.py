"""Consensus ADMM user by user, one record at a time where it matters: slow, and easy to check."""

import numpy as np


def logistic_gradient(w, X, y):
    return sum(
        -label * row / (1 + np.exp(label * (row @ w))) for row, label in zip(X, y, strict=True)
    )


def minimise(X, y, z, rho):
    """argmin of the logistic loss + rho / 2 * norm(w - z)**2, by plain Newton steps."""
    w = np.zeros(len(z))
    for _ in range(60):
        p = 1 / (1 + np.exp(y * (X @ w)))
        gradient = -X.T @ (y * p) + rho * (w - z)
        if np.linalg.norm(gradient) < 1e-12:
            break
        hessian = X.T @ (X * (p * (1 - p))[:, None]) + rho * np.eye(len(z))
        w = w - np.linalg.solve(hessian, gradient)
    return w


class Twin:
    """Server and users as written down: both parts of the message, deltas, averages."""

    def __init__(self, datasets, beta, rho, update):
        self.datasets, self.beta, self.rho, self.update = datasets, beta, rho, update
        self.n, self.d = len(datasets), datasets[0][0].shape[1]
        self.w = [np.zeros(self.d) for _ in range(self.n)]
        self.dual = [np.zeros(self.d) for _ in range(self.n)]
        self.received = [np.zeros(self.d) for _ in range(self.n)]
        self.w0, self.wbar, self.lbar = np.zeros(self.d), np.zeros(self.d), np.zeros(self.d)

    def round(self, users):
        sum_w, sum_dual = np.zeros(self.d), np.zeros(self.d)
        for i in users:
            X, y = self.datasets[i]
            new = minimise(X, y, self.received[i] - self.dual[i], self.rho)
            sum_w += new - self.w[i]
            sum_dual += new - self.received[i]
            self.dual[i] = self.dual[i] + new - self.received[i]
            self.w[i] = new
        self.wbar = self.wbar + sum_w / self.n
        self.lbar = self.lbar + sum_dual / self.n
        self.w0 = self.update(self.wbar + self.lbar, self.n, self.rho, self.beta)
        for i in users:
            self.received[i] = self.w0


def update_l2(v, n, rho, beta):
    return n * rho * v / (beta + n * rho)
