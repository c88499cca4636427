/* SHA-256 (FIPS 180-4): small rather than fast. */
#ifndef DPC_PRIVATE_SHA256_H
#define DPC_PRIVATE_SHA256_H

#include "dpcore/device.h"

typedef dpc_device_name_t sha256_t;

void dpc_sha256_begin(sha256_t *sha);
void dpc_sha256_add(sha256_t *sha, const void *data, size_t n);
/* Wipes sha. */
void dpc_sha256_end(sha256_t *sha, uint8_t digest[32]);

#endif
