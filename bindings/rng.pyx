# distutils: language = c
"""Keys, keystream and SIMD levels; a NumPy bit generator over the same kernel."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdio cimport fprintf, stderr
from libc.stdlib cimport abort
from libc.string cimport memcpy
from numpy.random cimport BitGenerator

from dpcore_ext._c_simd cimport (
    DPC_LEVEL_END,
    DPC_OK,
    dpc_entropy,
    dpc_fork_generation,
    dpc_kernels,
    dpc_kernels_at,
    dpc_kernels_t,
    dpc_key_derive,
    dpc_key_load,
    dpc_key_store,
    dpc_key_t,
    dpc_level,
    dpc_select,
    dpc_watch_forks,
    dpc_wipe,
    dpc_wipe_stack,
)

from numbers import Integral

import numpy as np

from dpcore_ext.errors import ParameterError, raise_status

DEF WORDS = 512


cdef const dpc_kernels_t *kernels() noexcept nogil:
    return dpc_kernels()


cdef object own_call = object()  # which Python code cannot name


cdef class Key:
    """A 256-bit ChaCha20 key. Opaque: wiped when freed, and shown by no method but `export`."""

    def __cinit__(self, caller=None):
        # A key that nobody set would be all zeros: noise that anybody can take off.
        if caller is not own_call:
            raise TypeError("A Key is made by Key.from_os or Key.from_bytes.")

    def __dealloc__(self):
        dpc_wipe(&self.key, sizeof(self.key))

    @staticmethod
    def from_os():
        """A key from the operating system's generator."""
        cdef Key new = Key.__new__(Key, own_call)
        cdef uint8_t data[32]
        raise_status(dpc_entropy(data, 32))
        dpc_key_load(&new.key, data)
        dpc_wipe(data, 32)
        return new

    @staticmethod
    def from_bytes(const uint8_t[::1] data not None):
        """A key of exactly 32 bytes, used as it is."""
        if data.shape[0] != 32:
            raise ParameterError("The 'key' parameter must be 32 bytes long.")
        cdef Key new = Key.__new__(Key, own_call)
        dpc_key_load(&new.key, &data[0])
        return new

    def derive(self, const uint8_t[::1] digest not None):
        """The key addressed by a 32-byte digest under this one."""
        if digest.shape[0] != 32:
            raise ParameterError("The 'digest' parameter must be 32 bytes long.")
        cdef Key new = Key.__new__(Key, own_call)
        dpc_key_derive(&new.key, &self.key, &digest[0])
        return new

    def export(self):
        """The key's bytes: only for a caller that has to store the key it made explicitly."""
        cdef uint8_t data[32]
        dpc_key_store(&self.key, data)
        result = bytes(data[:32])
        dpc_wipe(data, 32)
        return result

    @property
    def address(self):
        """Where the dpc_key_t lies in memory as long as this object lives."""
        return <size_t>&self.key

    def __reduce__(self):
        raise TypeError("A Key cannot be pickled.")


def keystream(Key key not None, uint64_t nonce, uint64_t counter, uint8_t[::1] out not None):
    """Fill out, whose length is a multiple of 64, with blocks counter, counter + 1, ..."""
    if out.shape[0] % 64:
        raise ParameterError("The 'out' parameter must be a multiple of 64 bytes long.")
    if out.shape[0]:
        with nogil:
            dpc_kernels().keystream(&key.key, nonce, counter, out.shape[0] // 64, &out[0])
            dpc_wipe_stack()


def keystream_at(Key key not None, uint64_t nonce, const uint64_t[::1] counters not None,
                 uint8_t[::1] out not None):
    """Fill out with the blocks whose numbers are given."""
    if out.shape[0] != 64 * counters.shape[0]:
        raise ParameterError("The 'out' parameter must have 64 bytes for each counter.")
    if out.shape[0]:
        with nogil:
            dpc_kernels().keystream_at(&key.key, nonce, &counters[0], counters.shape[0], &out[0])
            dpc_wipe_stack()


def levels():
    """Names of the SIMD levels that this build and this CPU have, slowest first."""
    cdef int number
    return [dpc_kernels_at(<dpc_level>number).name.decode()
            for number in range(<int>DPC_LEVEL_END) if dpc_kernels_at(<dpc_level>number) != NULL]


def level():
    """Name of the SIMD level in use."""
    return dpc_kernels().name.decode()


def select(str name not None):
    """Use another SIMD level from now on, in the whole process. For tests and benchmarks."""
    cdef int number
    for number in range(<int>DPC_LEVEL_END):
        if (dpc_kernels_at(<dpc_level>number) != NULL
                and dpc_kernels_at(<dpc_level>number).name.decode() == name):
            raise_status(dpc_select(<dpc_level>number))
            return
    raise_status(2)


def fork_generation():
    """Number of forks between the first process that called this and the present one."""
    return dpc_fork_generation()


for _name in levels():
    select(_name)
if not dpc_watch_forks():
    raise ImportError("dpcore cannot be used here: the system does not tell of forked processes.")


cdef struct chacha_state_t:
    dpc_key_t key
    uint64_t nonce
    uint64_t block
    uint64_t generation
    int rekey_on_fork
    int has_half
    uint32_t half
    size_t at
    uint64_t words[WORDS]


cdef void refill(chacha_state_t *state) noexcept nogil:
    dpc_kernels().keystream(&state.key, state.nonce, state.block, WORDS // 8,
                            <uint8_t *>state.words)
    dpc_wipe_stack()
    state.block += WORDS // 8
    state.at = 0


cdef void leave_parent(chacha_state_t *state) noexcept nogil:
    """A new key in a forked child. NumPy's callbacks cannot raise, so without entropy we stop."""
    cdef uint8_t data[32]
    state.generation = dpc_fork_generation()
    if not state.rekey_on_fork:
        return
    if dpc_entropy(data, 32) != DPC_OK:
        fprintf(stderr, b"dpcore: no entropy in a forked process\n")
        abort()
    dpc_key_load(&state.key, data)
    dpc_wipe(data, 32)
    state.block = 0
    state.at = WORDS
    state.has_half = 0


cdef uint64_t next_uint64(void *st) noexcept nogil:
    cdef chacha_state_t *state = <chacha_state_t *>st
    if state.generation != dpc_fork_generation():
        leave_parent(state)
    if state.at == WORDS:
        refill(state)
    state.at += 1
    return state.words[state.at - 1]


cdef uint32_t next_uint32(void *st) noexcept nogil:
    cdef chacha_state_t *state = <chacha_state_t *>st
    cdef uint64_t word
    if state.generation != dpc_fork_generation():
        leave_parent(state)
    if state.has_half:
        state.has_half = 0
        return state.half
    word = next_uint64(st)
    state.has_half = 1
    state.half = <uint32_t>(word >> 32)
    return <uint32_t>word


cdef double next_double(void *st) noexcept nogil:
    return (next_uint64(st) >> 11) * (1.0 / 9007199254740992.0)


cdef class ChaCha20(BitGenerator):
    """A NumPy bit generator whose words are the ChaCha20 keystream.

    Parameters
    ----------
    key : bytes-like of 32 bytes, optional
        Used as it is. Without it the key comes from the operating system, and a forked process
        takes a new one, so that it never repeats its parent.
    nonce : int
        Streams of one key with different nonces are independent.

    Privacy
    -------
    No data are read. The words cannot be predicted without the key; what NumPy makes of them is
    not safe to release as noise (see the notes), and no ledger is charged.

    Cost
    ----
    8 bytes of keystream per 64-bit word or double, computed 4 KiB at a time.

    Notes
    -----
    With an explicit key the generator is reproducible, as any NumPy bit generator is, also across
    a fork. The state cannot be read, set, copied or pickled: it contains the key. This generator
    makes NumPy's own distributions unpredictable; it does not make their floating-point outputs
    safe to release as noise. Use the functions of `dpcore` for that.

    Examples
    --------
    >>> import numpy as np
    >>> from dpcore.random import ChaCha20
    >>> float(np.random.Generator(ChaCha20(key=bytes(32))).random())
    0.34362633018055454
    """

    cdef chacha_state_t chacha

    def __init__(self, key=None, nonce=0):
        cdef Key source
        try:
            source = Key.from_os() if key is None else Key.from_bytes(key)
        except (TypeError, ValueError):
            raise ParameterError("The 'key' parameter must be 32 bytes long.") from None
        if isinstance(nonce, bool) or not isinstance(nonce, Integral) or not 0 <= nonce < 1 << 64:
            raise ParameterError("The 'nonce' parameter must be an integer from 0 below 2**64.")
        BitGenerator.__init__(self, 0)
        memcpy(&self.chacha.key, &source.key, sizeof(dpc_key_t))
        self.chacha.nonce = nonce
        self.chacha.block = 0
        self.chacha.at = WORDS
        self.chacha.has_half = 0
        self.chacha.generation = dpc_fork_generation()
        self.chacha.rekey_on_fork = key is None
        self._bitgen.state = &self.chacha
        self._bitgen.next_uint64 = &next_uint64
        self._bitgen.next_uint32 = &next_uint32
        self._bitgen.next_double = &next_double
        self._bitgen.next_raw = &next_uint64

    def __dealloc__(self):
        dpc_wipe(&self.chacha, sizeof(self.chacha))

    @property
    def seed_seq(self):
        raise TypeError("ChaCha20 has no seed sequence: it is keyed, not seeded.")

    def spawn(self, int n_children):
        """n_children new generators, each with a key of its own drawn from this one.

        Children of a generator that takes a new key in a forked process do so, too.
        """
        cdef ChaCha20 child
        children = []
        with self.lock:
            keys = [np.array([next_uint64(&self.chacha) for _ in range(4)], dtype="<u8").tobytes()
                    for _ in range(n_children)]
        for key in keys:
            child = type(self)(key=key)
            child.chacha.rekey_on_fork = self.chacha.rekey_on_fork
            children.append(child)
        return children

    @property
    def state(self):
        raise TypeError("The state of ChaCha20 contains its key and cannot be read or set.")

    @state.setter
    def state(self, value):
        raise TypeError("The state of ChaCha20 contains its key and cannot be read or set.")

    def __getstate__(self):
        raise TypeError("ChaCha20 cannot be pickled: a copy would repeat its stream.")

    def __reduce__(self):
        raise TypeError("ChaCha20 cannot be pickled: a copy would repeat its stream.")
