"""Where the randomness of a release comes from: a key, a stream, an element index."""

from __future__ import annotations

import hashlib
import itertools
import operator
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from dpcore.errors import InsecureNoiseError, ParameterError
from dpcore_ext.rng import Key, fork_generation

__all__ = ["Noise", "NotPrivateArray"]


class Noise:
    """A source of addressed noise.

    The noise of element i of a release is a function of a 256-bit key, a stream and i. How a
    release is cut into chunks, threads or processes, and how often it is repeated, does not enter.

    ``Noise()`` takes its key from the operating system. Releases made with it use a fresh stream
    each, so no two share noise, in this process, in its threads or in forked children. This is what
    every releasing function does when ``noise`` is not given.

    `stream` pins a stream by name instead: releases of the same kind on the same pinned stream get
    the *same* noise. That is what a retried or distributed job needs, and it must only ever be used
    for the same data. Name the release in the ids (data set, round, node), never reuse a name.

    Attributes
    ----------
    private : bool
        False for `insecure` sources, whose results carry no privacy.

    Privacy
    -------
    None by itself: it is what the guarantees of releases rest on. They hold as long as the key
    stays secret and a pinned stream is used for one data set only; with `insecure` noise they do
    not hold.

    Cost
    ----
    A few microseconds for a source or a stream. Nothing is stored but the key: noise is computed
    when a release asks for it.

    Notes
    -----
    Objects are safe to share between threads and across a fork. They can be pickled only if made
    from an explicit key (the pickle then contains it). Keys are wiped from memory when the last
    reference goes, and appear in no ``repr``, message or log.

    Examples
    --------
    A job that may be run again, in whole or in parts, with one result:

    >>> import dpcore
    >>> noise = dpcore.Noise.from_key(bytes(range(32))).stream("visits", 2026, "week", 46)
    >>> whole = dpcore.laplace([10, 20, 30, 40], epsilon=1, sensitivity=1, noise=noise)
    >>> part = dpcore.laplace([30, 40], epsilon=1, sensitivity=1, noise=noise, start=2)
    >>> bool((whole[2:] == part).all())
    True
    """

    __slots__ = ("_claim", "_explicit", "_fresh", "_key", "_pinned", "_prepaid", "_private")

    def __init__(self) -> None:
        self._setup(Key.from_os(), explicit=False)

    def _setup(
        self, key: Key, *, explicit: bool, private: bool = True, pinned: bool = False
    ) -> None:
        self._key = key
        self._explicit = explicit
        self._private = private
        self._pinned = pinned
        self._fresh = None if pinned else _FreshStreams(random=private)
        self._prepaid = False
        self._claim: str | None = None

    @classmethod
    def _make(cls, key: Key, **options: bool) -> Noise:
        self = cls.__new__(cls)
        self._setup(key, **options)
        return self

    @classmethod
    def from_key(cls, key: bytes) -> Noise:
        """Noise from a secret key of 32 bytes that the caller keeps.

        Only pinned streams are reproducible: releases without `stream` still use fresh ones, so
        that two processes with one key do not repeat each other.
        """
        try:
            secret = Key.from_bytes(key)
        except (TypeError, ValueError):
            raise ParameterError("The 'key' parameter must be 32 bytes long.") from None
        return cls._make(secret, explicit=True)

    @classmethod
    def insecure(cls, seed: int) -> Noise:
        """Reproducible noise for tests and simulations. It protects nobody.

        Anyone who knows or guesses the seed can remove the noise, so results are
        `NotPrivateArray` objects, which say so. The n-th release depends on the seed and n.
        """
        try:
            digest = _digest(b"insecure", operator.index(seed))
        except TypeError:
            raise ParameterError("The 'seed' parameter must be an integer.") from None
        return cls._make(Key.from_bytes(digest), explicit=True, private=False)

    @property
    def private(self) -> bool:
        return self._private

    def stream(self, *ids: int | str | bytes) -> Noise:
        """The pinned stream of these ids: integers, strings or bytes, at least one.

        Ids are compared with their types and in order; streams of different ids, and streams of
        streams, are independent.
        """
        if not ids:
            raise ParameterError("The 'ids' parameter of stream must name the stream.")
        key = self._key.derive(_digest(b"pinned", *ids))
        return self._child(key, explicit=self._explicit)

    def key_for(self, purpose: str, *parameters: int | str | bytes) -> Key:
        """The key of one release: fresh, or fixed by the pinned stream and the purpose.

        The purpose and public parameters are part of the address: two kinds of release, or two
        noise levels, on one pinned stream do not share noise that could be subtracted.
        """
        base = self._key
        if self._fresh is not None:
            base = base.derive(_digest(b"fresh", *self._fresh.next()))
        return base.derive(_digest(b"purpose", purpose, *parameters))

    def release(self, purpose: str, *parameters: int | str | bytes) -> Noise:
        """A pinned source for the parts of one release: fresh, or pinned as this one is.

        For mechanisms that draw several kinds of noise for one result.
        """
        return self._child(self.key_for(purpose, *parameters), explicit=False)

    def _child(self, key: Key, *, explicit: bool) -> Noise:
        child = self._make(key, explicit=explicit, private=self._private, pinned=True)
        return child.for_ledger(claim=self._claim, prepaid=self._prepaid)

    @property
    def pinned(self) -> bool:
        """Whether releases of one kind get the same noise every time."""
        return self._pinned

    @property
    def portable(self) -> bool:
        """Whether it can be sent to other processes: made from an explicit key, as pickles show."""
        return self._explicit and (self._private or self._pinned)

    def fingerprint(self, purpose: str, *parameters: int | str | bytes) -> str:
        """A public name of what a pinned stream draws for a purpose; tells nothing of the key."""
        key = self.key_for("fingerprint", purpose, *parameters).export()
        return hashlib.sha256(b"dpcore/v1/fingerprint" + key).hexdigest()

    @property
    def is_prepaid(self) -> bool:
        """Whether a ledger has charged everything that is drawn from here."""
        return self._prepaid

    @property
    def claim(self) -> str | None:
        """The keyed release of a ledger that this source is for."""
        return self._claim

    def for_ledger(self, *, claim: str | None = None, prepaid: bool = False) -> Noise:
        """This source with a note for the ledger: what it is for, or that it is paid for."""
        copy = object.__new__(type(self))
        for name in self.__slots__:
            setattr(copy, name, getattr(self, name))
        copy._claim, copy._prepaid = claim, prepaid
        return copy

    def mark(self, result: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The result as it is, or labelled if this source is insecure."""
        return result if self._private else result.view(NotPrivateArray)

    def __repr__(self) -> str:
        kind = "secure" if self._private else "insecure, results are not private"
        return f"<dpcore.Noise: {kind}{', pinned stream' if self._pinned else ''}>"

    def __copy__(self) -> Noise:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Noise:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if not self._explicit:
            raise TypeError(
                "Noise() cannot be pickled: its key must not leave the process. Use "
                "Noise.from_key with a key that all processes hold, and name streams."
            )
        if not self._private and not self._pinned:
            raise TypeError(
                "An insecure Noise cannot be pickled: every copy would draw the same noise. Name a "
                "stream for each with Noise.stream."
            )
        return _restore, (self._key.export(), self._private, self._pinned)


class _FreshStreams:
    """Names of streams never used before: a salt of this process and a counter.

    Insecure sources have no salt. They cannot tell two children of one fork apart and would give
    all of them the same noise, so they refuse.
    """

    __slots__ = ("_random", "_state")

    def __init__(self, *, random: bool) -> None:
        self._random = random
        self._state = self._begin()

    def _begin(self) -> tuple[int, bytes, itertools.count[int]]:
        salt = Key.from_os().export() if self._random else b""
        return fork_generation(), salt, itertools.count()

    def next(self) -> tuple[bytes, int]:
        # One read of one attribute, so that threads never mix the salt of one with the counter of
        # another.
        state = self._state
        if state[0] != fork_generation():
            if not self._random:
                raise InsecureNoiseError(
                    "An insecure Noise made before a fork would repeat itself in every child; "
                    "name a stream for each with Noise.stream."
                )
            state = self._state = self._begin()
        return state[1], next(state[2])


class NotPrivateArray(np.ndarray[Any, np.dtype[Any]]):
    """An array made with insecure noise. What is computed from it is marked as well.

    Privacy
    -------
    None: whoever knows or guesses the seed can remove the noise.

    Cost
    ----
    That of an array: marking a result makes a view, no copy.
    """

    private = False
    __array_priority__ = 100.0

    def __repr__(self) -> str:
        return f"<not private: insecure noise>\n{np.asarray(self)!r}"


def _restore(key: bytes, private: bool, pinned: bool) -> Noise:
    return Noise._make(Key.from_bytes(key), explicit=True, private=private, pinned=pinned)


def _digest(domain: bytes, *ids: int | str | bytes) -> bytes:
    """SHA-256 of an injective encoding of the ids."""
    state = hashlib.sha256(b"dpcore/v1/" + domain)
    for item in ids:
        if isinstance(item, str):
            try:
                tag, data = b"s", item.encode()
            except UnicodeEncodeError:
                _refuse_id()
        elif isinstance(item, bytes):
            tag, data = b"b", item
        else:
            try:
                number = operator.index(item)
            except TypeError:
                _refuse_id()
            if isinstance(item, bool | np.bool_):
                _refuse_id()
            tag, data = b"i", b"%d" % number
        state.update(tag + len(data).to_bytes(8, "little") + data)
    return state.digest()


def _refuse_id() -> NoReturn:
    raise ParameterError(
        "The 'ids' parameter must consist of integers, strings and bytes."
    ) from None
