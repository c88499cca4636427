"""What all parties of a session agree on, and each of them holds on to."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import Any

from dpcore._checks import check_choice, check_index, exact
from dpcore._laws import MAX_SIGMA
from dpcore.errors import ParameterError, WireFormatError
from dpcore.secure.graph import SERVERS, threshold_of
from dpcore.secure.keys import digest
from dpcore.secure.noise import LEAST_SIGMA
from dpcore.secure.ring import FixedPoint

__all__ = ["LEAST_SURVIVORS", "Parameters"]

LEAST_SURVIVORS = 3  # the sum of two tells each of them the other's vector
MOST_WORDS = 1 << 40  # of a vector
_MOST_CLIENTS = 65535  # points of the secret sharing
_FIXED = struct.Struct("<QBBBQQQQ")


@dataclass(frozen=True)
class Parameters:
    """Public parameters of a session of secure aggregation.

    Clients are given theirs by somebody they trust, not by the server, and refuse rounds that use
    others.

    Parameters
    ----------
    session : bytes
        Name of the session, 1 to 255 bytes, never used again. Part of every key.
    dimension : int
        Length of the vectors.
    bound, fraction_bits, ring_bits
        See `FixedPoint`.
    max_clients : int
        The most clients in a round. Vectors, bound and noise of so many must fit the ring: if they
        do not, this constructor raises.
    min_clients : int
        The fewest clients that others accept in a round, 3 or more.
    min_survivors : int, optional
        The fewest clients of which a sum is ever disclosed, 3 or more; by default more than two
        thirds of `min_clients`. Noise is planned for this number.
    server : {"malicious", "curious"}
        Whether the server may lie to clients, or follows the protocol and only looks. Decides how
        many shares give a secret back: more than two thirds of the holders, or more than half.
    degree : int, optional
        Even number of neighbours in a sparse mask graph; by default everybody masks with everybody.
        See `choose_degree`.
    noise_sigma : float, int or Fraction
        Standard deviation, in units of 2**-fraction_bits, of the discrete Gaussian noise that each
        client adds, 2 at least; 0 means none. See `dpcore.secure.noise`.

    Privacy
    -------
    Everything here is public. Without noise the sum itself is disclosed exactly: secure aggregation
    hides who contributed what, not what the sum says.

    Cost
    ----
    A few operations on integers; nothing is allocated in proportion to the dimension or to the
    number of clients.

    Examples
    --------
    >>> parameters = Parameters(b"demo", dimension=3, bound=1.0, max_clients=10)
    >>> parameters.min_clients, parameters.min_survivors
    (3, 3)
    """

    session: bytes
    dimension: int
    bound: Any
    fraction_bits: int = 16
    ring_bits: int = 64
    max_clients: int = 1000
    min_clients: int = 3
    min_survivors: int | None = None
    server: str = "malicious"
    degree: int | None = None
    noise_sigma: Any = 0
    fixed_point: FixedPoint = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        def put(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        if not isinstance(self.session, bytes) or not 1 <= len(self.session) <= 255:
            raise ParameterError("The 'session' parameter must be 1 to 255 bytes.")
        put("dimension", check_index(self.dimension, "dimension", least=1, limit=MOST_WORDS))
        put("fixed_point", FixedPoint(self.bound, self.fraction_bits, self.ring_bits))
        put("bound", self.fixed_point.bound)
        check_choice(self.server, "server", SERVERS)
        put("min_clients", check_index(self.min_clients, "min_clients", least=LEAST_SURVIVORS))
        survivors = self.min_survivors
        if survivors is None:
            survivors = threshold_of(self.min_clients, "malicious")
        survivors = check_index(survivors, "min_survivors", least=LEAST_SURVIVORS)
        put("min_survivors", survivors)
        put("max_clients", check_index(self.max_clients, "max_clients", least=1))
        if not survivors <= self.min_clients <= self.max_clients <= _MOST_CLIENTS:
            raise ParameterError(
                "The 'min_survivors', 'min_clients' and 'max_clients' parameters must not decrease "
                "in this order, and stay below 65536."
            )
        if self.degree is not None:
            put("degree", check_index(self.degree, "degree", least=4, limit=_MOST_CLIENTS))
            if self.degree % 2:
                raise ParameterError("The 'degree' parameter must be even.")
        put("noise_sigma", exact(self.noise_sigma, "noise_sigma"))
        if self.noise_sigma and not LEAST_SIGMA <= self.noise_sigma <= MAX_SIGMA:
            raise ParameterError("The 'noise_sigma' parameter must be 0, or from 2 to 2**36 units.")
        if not self.fixed_point.holds(self.max_clients, self.noise_sigma):
            raise ParameterError(
                "The 'max_clients' parameter must be at most what the ring holds with this bound, "
                "these fraction bits and this noise."
            )

    @property
    def least_survivors(self) -> int:
        """`min_survivors` as an integer."""
        assert self.min_survivors is not None
        return self.min_survivors

    def threshold(self, n_holders: int) -> int:
        """Shares that give a secret back, of n_holders."""
        return threshold_of(n_holders, self.server)

    def to_bytes(self) -> bytes:
        """The one encoding of these parameters."""
        rationals = (self.bound, self.noise_sigma)
        numbers = [part for number in rationals for part in (number.numerator, number.denominator)]
        texts = [self.session, *(b"%d" % number for number in numbers)]
        head = _FIXED.pack(
            self.dimension,
            self.fraction_bits,
            self.ring_bits,
            SERVERS.index(self.server),
            self.max_clients,
            self.min_clients,
            self.least_survivors,
            self.degree or 0,
        )
        return head + b"".join(len(text).to_bytes(4, "little") + text for text in texts)

    @staticmethod
    def from_bytes(data: bytes) -> Parameters:
        """The parameters that `to_bytes` encoded; refuses everything else."""
        if not isinstance(data, bytes):
            raise WireFormatError("The message must be bytes.")
        try:
            head = _FIXED.unpack_from(data)
            texts, at = [], _FIXED.size
            for _ in range(5):
                length = int.from_bytes(data[at : at + 4], "little")
                if length > 1024:
                    raise ValueError
                texts.append(data[at + 4 : at + 4 + length])
                at += 4 + length
            a, b, c, d = (int(text) for text in texts[1:])
            parameters = Parameters(
                texts[0],
                dimension=head[0],
                bound=Fraction(a, b),
                fraction_bits=head[1],
                ring_bits=head[2],
                max_clients=head[4],
                min_clients=head[5],
                min_survivors=head[6],
                server=SERVERS[head[3]],
                degree=head[7] or None,
                noise_sigma=Fraction(c, d),
            )
        except (struct.error, ValueError, IndexError, ArithmeticError):
            parameters = None
        if parameters is None or parameters.to_bytes() != data:
            raise WireFormatError("The message does not hold parameters of secure aggregation.")
        return parameters

    def digest(self) -> bytes:
        """32 bytes that stand for these parameters."""
        return digest(b"parameters", self.to_bytes())

    def first_difference(self, other: Parameters) -> str:
        """Name of a parameter in which two sessions differ; empty if they do not."""
        names = (item.name for item in fields(self) if item.compare)
        return next((name for name in names if getattr(self, name) != getattr(other, name)), "")
