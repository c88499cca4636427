/* The two kernels that a device runs, one block and a few readings at a time. */
#include <string.h>

#include "private/levels.h"

#define LANES 1
#define LEVEL(name) name##_device
#include "kernels/chacha.inc"
#include "kernels/encode.inc"

const dpc_kernels_t dpc_kernels_device = {
    .name = "device",
    .keystream = LEVEL(keystream),
    .keystream_at = LEVEL(keystream_at),
    .encode = LEVEL(encode),
};
