"""Who masks with whom: everybody, or a random regular graph, and what the latter is worth.

In a graph of degree k a client shares its secrets among itself and its k neighbours, so k + 1
holders stand where all clients stood, and the cost of a client grows with k. The price is that bad
luck can give an honest client too many corrupt neighbours; `security` computes how likely that is,
for corrupt clients who were chosen before the graph was drawn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from dpcore._checks import check_array, check_choice, check_index, exact
from dpcore.errors import ParameterError
from dpcore.secure.keys import digest
from dpcore_ext.rng import Key, keystream

__all__ = [
    "SERVERS",
    "GraphSecurity",
    "always_connected",
    "choose_degree",
    "committee",
    "neighbours",
    "security",
    "threshold_of",
]

SERVERS = ("malicious", "curious")


def threshold_of(n_holders: int, server: str) -> int:
    """Shares that give a secret back, of n_holders: more than 2/3, or more than half.

    A malicious server may tell holders different stories. With more than 2/3 it would need one
    holder in three on its side to get both secrets of one client.
    """
    return (2 * n_holders if server == "malicious" else n_holders) // (
        3 if server == "malicious" else 2
    ) + 1


def _order(seed: bytes, purpose: bytes, n: int) -> npt.NDArray[np.int64]:
    """A random order of n things: that of n words of keystream."""
    return np.argsort(_words(digest(purpose, seed), n), kind="stable")


def _words(key: bytes, n: int) -> npt.NDArray[np.uint64]:
    words = np.empty(-(-n // 8) * 8, np.uint64)
    keystream(Key.from_bytes(key), 0, 0, words.view(np.uint8))
    return words[:n]


@lru_cache(maxsize=8)
def neighbours(seed: bytes, n: int, degree: int | None) -> npt.NDArray[np.int64]:
    """Row i: the increasing positions of the clients that client i masks with.

    Parameters
    ----------
    seed : bytes
        Public, and not known before the keys of the round are: a digest of them.
    n : int
        Number of clients.
    degree : int or None
        Even number of neighbours; None, or n - 1 and more, means everybody.

    Returns
    -------
    ndarray of int64, shape (n, degree), read-only

    Examples
    --------
    >>> neighbours(b"seed", 4, None).tolist()
    [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]
    >>> neighbours(b"seed", 1000, 30).shape
    (1000, 30)
    """
    if degree is None or degree >= n - 1:
        grid = np.tile(np.arange(n), (n, 1))
        result = grid[~np.eye(n, dtype=bool)].reshape(n, n - 1)
    else:
        # Beyond half of all others it is the pairs left out that are drawn.
        drawn = min(degree, n - 1 - degree)
        attempt = 0
        while (pairs := _regular(digest(b"graph %d" % attempt, seed), n, drawn)) is None:
            attempt += 1
        linked = np.zeros((n, n), bool)
        linked[pairs[:, 0], pairs[:, 1]] = linked[pairs[:, 1], pairs[:, 0]] = True
        if drawn < degree:
            linked = ~linked & ~np.eye(n, dtype=bool)
        result = np.nonzero(linked)[1].reshape(n, degree)
    result.flags.writeable = False
    return result


def _regular(seed: bytes, n: int, degree: int) -> npt.NDArray[np.int64] | None:
    """Edges of a random simple graph in which everybody has the same degree.

    All ends of edges are paired at random. A pair that is a loop or there already is resolved with
    a random edge: the two swap ends if that makes two new edges. Small graphs may get stuck: None.
    """
    ends = np.repeat(np.arange(n), degree)[_order(seed, b"graph", n * degree)].reshape(-1, 2)
    ends.sort(axis=1)
    codes = ends @ np.array([n, 1])
    _, first = np.unique(codes, return_index=True)
    good = np.zeros(codes.size, bool)
    good[first] = True
    good &= ends[:, 0] != ends[:, 1]
    edges: list[list[int]] = ends[good].tolist()
    bad: list[list[int]] = ends[~good].tolist()
    present = set(codes[good].tolist())
    for word in _words(digest(b"swap", seed), 16 * n + 4096).tolist() if bad else ():
        if not bad or not edges:
            break
        place = (word >> 1) % len(edges)
        (u, v), (a, b) = bad[-1], edges[place]
        if word & 1:
            a, b = b, a
        new = {min(u, a) * n + max(u, a), min(v, b) * n + max(v, b)}
        if len(new) == 2 and u != a and v != b and not new & present:
            bad.pop()
            present -= {min(a, b) * n + max(a, b)}
            present |= new
            edges[place] = [u, a]
            edges.append([v, b])
    return None if bad else np.array(edges)


def committee(seed: bytes, n: int, degree: int | None) -> npt.NDArray[np.int64]:
    """Positions of those who sign the list of survivors: everybody, or degree + 1 at random."""
    if degree is None or degree >= n - 1:
        return np.arange(n)
    return np.sort(_order(seed, b"committee", n)[: degree + 1])


@dataclass(frozen=True)
class GraphSecurity:
    """What a degree is worth; `security` computes it.

    Attributes
    ----------
    threshold : int
        Shares needed, of degree + 1 holders.
    max_corrupt : int
        Corrupt holders of one client that are harmless.
    failure_bits : float
        -log2 of a bound on the probability that some client has more, or the committee does.
    abort_bits : float
        -log2 of a bound on the probability that some client keeps too few holders, when each
        drops out with the given chance, and the round gives no result.

    Privacy
    -------
    A calculation with public numbers; no data are read. It holds under the assumptions of
    `security`.

    Cost
    ----
    Four numbers; `security` says what it takes to compute them.
    """

    threshold: int
    max_corrupt: int
    failure_bits: float
    abort_bits: float


def _upper_tail(n: int, marked: int, drawn: int, least: int) -> Fraction:
    """P(at least `least` of `drawn` out of n, `marked` of them special, are special)."""
    top = min(marked, drawn)
    ways = sum(
        math.comb(marked, x) * math.comb(n - marked, drawn - x) for x in range(least, top + 1)
    )
    return Fraction(ways, math.comb(n, drawn))


def _bits(chance: Fraction) -> float:
    if chance == 0:
        return math.inf
    return max(0.0, math.log2(chance.denominator) - math.log2(chance.numerator))


def _check_shares(server: str, corrupt: float, dropout: float) -> list[Fraction]:
    check_choice(server, "server", SERVERS)
    shares = [exact(corrupt, "corrupt"), exact(dropout, "dropout")]
    if not all(0 <= share < 1 for share in shares):
        raise ParameterError("The 'corrupt' and 'dropout' parameters must be fractions below 1.")
    return shares


def security(
    n: int, degree: int, *, server: str = "malicious", corrupt: float = 0.1, dropout: float = 0.1
) -> GraphSecurity:
    """How likely a random graph of this degree fails to protect, or fails to finish.

    Parameters
    ----------
    n, degree : int
        Number of clients, and of neighbours of each.
    server : {"malicious", "curious"}
        Whether the server may lie to clients, or follows the protocol and only looks.
    corrupt, dropout : float
        Fractions of clients that collude with the server, and that drop out after sharing.

    Privacy
    -------
    The bound holds for corrupt clients chosen before the seed of the graph is known. A malicious
    server that can try many rosters gets as many tries: take its number off `failure_bits`.

    Cost
    ----
    Sums of binomial coefficients, milliseconds.

    Examples
    --------
    >>> weak, strong = security(1000, 30), security(1000, 140)
    >>> weak.failure_bits < 40 < strong.failure_bits
    True
    """
    n = check_index(n, "n", least=2)
    degree = check_index(degree, "degree", least=1)
    shares = _check_shares(server, corrupt, dropout)
    if degree >= n:
        raise ParameterError("The 'degree' parameter must be less than 'n'.")
    n_corrupt, n_dropped = (math.ceil(round(n * share, 6)) for share in shares)
    holders = degree + 1
    threshold = threshold_of(holders, server)
    max_corrupt = 2 * threshold - holders - 1 if server == "malicious" else threshold - 1
    bad_holders = _upper_tail(n - 1, min(n_corrupt, n - 1), degree, max_corrupt + 1)
    bad_committee = _upper_tail(n, n_corrupt, holders, max_corrupt + 1)
    few_left = _upper_tail(n - 1, min(n_dropped, n - 1), degree, holders - threshold + 1)
    few_signers = _upper_tail(n, n_dropped, holders, holders - threshold + 1)
    return GraphSecurity(
        threshold,
        max_corrupt,
        _bits(n * bad_holders + bad_committee),
        _bits(n * few_left + few_signers),
    )


def choose_degree(
    n: int,
    *,
    server: str = "malicious",
    corrupt: float = 0.1,
    dropout: float = 0.1,
    failure_bits: float = 40,
    abort_bits: float = 10,
) -> int | None:
    """The least even degree that `security` finds good enough; None where it has to be everybody.

    Privacy
    -------
    A calculation with public numbers; no data are read. The degree is good enough under the
    assumptions of `security`.

    Cost
    ----
    One call of `security` for each even degree from 4 to the result, or to n: below a second for
    10000 clients and the defaults.

    Examples
    --------
    >>> choose_degree(30, corrupt=0.4) is None
    True
    >>> 30 < choose_degree(1000, server="curious", corrupt=0.05) < 80
    True
    """
    n = check_index(n, "n", least=2)
    least_failure = exact(failure_bits, "failure_bits")
    least_abort = exact(abort_bits, "abort_bits")
    _check_shares(server, corrupt, dropout)
    for degree in range(4, n - 1, 2):
        found = security(n, degree, server=server, corrupt=corrupt, dropout=dropout)
        if found.failure_bits >= least_failure and found.abort_bits >= least_abort:
            return degree
    return None


def always_connected(graph: npt.NDArray[np.int64], least_honest: int) -> bool:
    """Whether no choice of survivors can cut the honest ones into two groups.

    True is a proof, from the second eigenvalue of the graph, for *every* set in which each honest
    survivor keeps `least_honest` honest neighbours: the server then learns one sum and not two.
    False means not proved.

    Parameters
    ----------
    graph : ndarray, shape (n, degree)
        What `neighbours` gives.
    least_honest : int
        Threshold - 1 - corrupt neighbours.

    Privacy
    -------
    A calculation with the public graph; no data are read.

    Cost
    ----
    The eigenvalues of an n x n matrix.

    Examples
    --------
    >>> always_connected(neighbours(b"seed", 300, 80), 40)
    True
    """
    graph = check_array(graph, "graph", dtype=np.int64, dimensions=2)
    least_honest = check_index(least_honest, "least_honest")
    n, degree = graph.shape
    if not graph.size or graph.min() < 0 or graph.max() >= n:
        raise ParameterError("The 'graph' parameter must hold neighbours from 0 to n - 1.")
    matrix = np.full((n, n), -degree / n)
    np.put_along_axis(matrix, graph, 1 - degree / n, axis=1)
    second = float(np.abs(np.linalg.eigvalsh(matrix)).max()) * (1 + 1e-9)
    if second >= degree:
        return False
    # Mixing lemma: a group in which all keep `least_honest` has this share of all at least, and two
    # groups of that share have an edge between them.
    share = (least_honest - second) / (degree - second)
    return bool(share > 0 and share * degree > second * (1 - share))
