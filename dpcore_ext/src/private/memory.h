/* memcpy and memset, also where there is no libc: the compiler itself needs them, so every system has
 * them, but a device may lack the header. */
#ifndef DPC_PRIVATE_MEMORY_H
#define DPC_PRIVATE_MEMORY_H

#ifdef DPC_DEVICE
#include <stddef.h>
void *memcpy(void *to, const void *from, size_t n);
void *memset(void *to, int byte, size_t n);
#else
#include <string.h>
#endif

#endif
