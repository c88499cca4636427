#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "dpcore/chacha.h"

#if defined(_WIN32)
#include <windows.h>
#include <bcrypt.h>

enum dpc_status dpc_entropy(uint8_t *out, size_t n)
{
    NTSTATUS status = BCryptGenRandom(NULL, out, (ULONG)n, BCRYPT_USE_SYSTEM_PREFERRED_RNG);
    return status == 0 ? DPC_OK : DPC_ERR_ENTROPY;
}

/* Windows has no fork. */
int dpc_watch_forks(void) { return 1; }
uint64_t dpc_fork_generation(void) { return 0; }

#else
#include <errno.h>
#include <pthread.h>
#include <sys/random.h>

enum dpc_status dpc_entropy(uint8_t *out, size_t n)
{
    while (n > 0) {
#if defined(__linux__)
        ssize_t got = getrandom(out, n, 0);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return DPC_ERR_ENTROPY;
        }
#else
        size_t got = n < 256 ? n : 256;
        if (getentropy(out, got) != 0) {
            return DPC_ERR_ENTROPY;
        }
#endif
        out += got;
        n -= (size_t)got;
    }
    return DPC_OK;
}

static uint64_t generation;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void in_child(void) { generation++; }
static int watching;
static void watch_forks(void) { watching = pthread_atfork(NULL, NULL, in_child) == 0; }

int dpc_watch_forks(void) { return pthread_once(&once, watch_forks) == 0 && watching; }

uint64_t dpc_fork_generation(void) { return generation; }
#endif
