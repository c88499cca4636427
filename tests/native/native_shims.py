"""Libraries to be preloaded in front of libc, and the programs run under them."""

WIPE_SHIM = r"""
#define _GNU_SOURCE
#include <malloc.h>
#include <string.h>

extern void __libc_free(void *);

/* Watches the block that holds an address: was it freed, and did it then hold the pattern? The
 * pattern is handed over inverted, so that no copy of it is made by asking. */
static unsigned char inverted[32];
static char *watched;
static int freed, found;

void watch(const unsigned char *pattern, void *address)
{
    memcpy(inverted, pattern, 32);
    watched = address;
    freed = found = 0;
}

int outcome(void) { return freed | found << 1; }

void free(void *p)
{
    if (p != 0 && watched != 0) {
        size_t size = malloc_usable_size(p);
        char *block = p;
        if (block <= watched && watched < block + size) {
            unsigned char pattern[32];
            for (int i = 0; i < 32; i++) {
                pattern[i] = (unsigned char)~inverted[i];
            }
            freed = 1;
            found = memmem(p, size, pattern, 32) != 0;
            watched = 0;
        }
    }
    __libc_free(p);
}
"""

WIPE_PROGRAM = r"""
import ctypes, gc
import numpy as np
from dpcore.random import ChaCha20
from dpcore_ext.rng import Key, keystream

shim = ctypes.CDLL(None)
shim.watch.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
INVERTED = bytes((37 * i + 11) % 256 for i in range(32))


def outcome(thing, inverted):
    # 1: freed; 2: the pattern was still there
    holder = [thing]
    del thing
    shim.watch(inverted, id(holder[0]))
    holder.clear()
    gc.collect()
    return shim.outcome()


def key():
    return bytes(255 - b for b in INVERTED)


def generator():
    made = ChaCha20(key=key())
    made.random_raw(3)
    return made


def invert(data):
    return bytes(255 - b for b in data)


first_words = np.zeros(64, np.uint8)
keystream(Key.from_bytes(key()), 0, 0, first_words)
print(outcome(key(), INVERTED),
      outcome(Key.from_bytes(key()), INVERTED),
      outcome(Key.from_bytes(bytes(32)).derive(bytes(32)),
              invert(Key.from_bytes(bytes(32)).derive(bytes(32)).export())),
      outcome(generator(), INVERTED),
      outcome(generator(), invert(first_words.tobytes()[:32])))
"""

ENTROPY_SHIM = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* Serves ENTROPY_CALLS requests for 32 bytes and then fails. With ENTROPY_DRIP, serves 0, 1, 2, ...
 * in pieces of five bytes with an interruption between any two. */
ssize_t getrandom(void *buffer, size_t n, unsigned flags)
{
    static int served, turn;
    const char *calls = getenv("ENTROPY_CALLS"), *drip = getenv("ENTROPY_DRIP");
    if (drip != 0 && n <= 32 && (32 - n) % 5 == 0) {
        size_t now = n < 5 ? n : 5;
        if (turn++ % 2 == 0) {
            errno = EINTR;
            return -1;
        }
        for (size_t i = 0; i < now; i++) {
            ((unsigned char *)buffer)[i] = (unsigned char)(32 - n + i);
        }
        return (ssize_t)now;
    }
    if (calls != 0 && n == 32 && served++ >= atoi(calls)) {
        errno = ENOSYS;
        return -1;
    }
    return syscall(SYS_getrandom, buffer, n, flags);
}
"""

ENTROPY_PROGRAM = r"""
import numpy as np
import dpcore
from dpcore.errors import DPCoreError, EntropyError
from dpcore.random import ChaCha20
from dpcore_ext.rng import Key

out = np.full(3, 77)
calls = {
    "Key": Key.from_os,
    "Noise": dpcore.Noise,
    "ChaCha20": ChaCha20,
    "from_key": lambda: dpcore.Noise.from_key(bytes(32)),
    "laplace": lambda: dpcore.laplace([1, 2, 3], epsilon=1, sensitivity=1, out=out),
    "gaussian": lambda: dpcore.gaussian([1.0], sigma=1, sensitivity=1),
    "histogram": lambda: dpcore.histogram([1], 3, epsilon=1),
    "bounded_sum": lambda: dpcore.bounded_sum([1.0], 0, 1, epsilon=1),
    "random": lambda: dpcore.random.integers(0, 5),
}
for name, call in calls.items():
    try:
        call()
    except EntropyError as error:
        assert isinstance(error, DPCoreError) and isinstance(error, OSError)
        assert str(error).startswith("The operating system gave no randomness"), error
        print(name)
assert out.tolist() == [77] * 3
dpcore.laplace([1], epsilon=1, sensitivity=1, noise=dpcore.Noise.insecure(1))
print("done")
"""
