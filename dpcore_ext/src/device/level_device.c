/* The kernels that a device runs, one block at a time. It encodes so few readings at once that all of
 * them are settled without the kernel for many. */
#include "private/levels.h"
#include "private/memory.h"

#define LANES 1
#define LEVEL(name) name##_device
#include "kernels/chacha.inc"

const dpc_kernels_t dpc_kernels_device = {
    .name = "device",
    .keystream = LEVEL(keystream),
    .keystream_at = LEVEL(keystream_at),
};
