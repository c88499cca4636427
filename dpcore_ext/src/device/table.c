#include "dpcore/device.h"
#include "private/device.h"
#include "private/floats.h"
#include "private/memory.h"
#include "private/sha256.h"

static uint32_t load_32(const uint8_t *p)
{
    uint32_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

static double load_f64(const uint8_t *p)
{
    double number;
    memcpy(&number, p, sizeof number);
    return number;
}

static uint32_t bits_for(uint32_t n_outputs)
{
    uint32_t bits = 1;
    while ((n_outputs - 1) >> bits) {
        bits++;
    }
    return bits;
}

/* Comparisons that a NaN fails. */
static int are_bounds(double lower, double upper)
{
    return lower >= -1e150 && upper <= 1e150 && upper - lower >= 1e-150;
}

/* Whether every column yields codes of the mechanism only, and every entry begins its cut. */
static int are_rows(const dpc_device_table_t *table, uint64_t n_entries)
{
    const uint32_t prefix = 0xffffu << table->n_bits & 0xffffu;
    const uint32_t last_column = (1u << table->n_bits) - 1;
    uint32_t wrong = 0;
    for (size_t i = 0; i < n_entries; i++) {
        const uint32_t entry = table->entry[i], column = (uint32_t)i & last_column;
        const uint64_t high = table->cut[2 * i], low = table->cut[2 * i + 1];
        wrong |= entry >> 16 ^ ((uint32_t)(high >> 48) & prefix);
        wrong |= (entry & 0xffff) >= table->n_outputs;
        wrong |= column >= table->n_outputs && (high | low) != 0;
    }
    return wrong == 0;
}

enum dpc_device_status dpc_device_load(dpc_device_table_t *table, const uint8_t *bytes, size_t n)
{
    dpc_device_table_t found;
    if ((uintptr_t)bytes % 8 != 0) {
        return DPC_DEVICE_ALIGNMENT;
    }
    if (n < 5 || differ(bytes, "dpct", 4) || bytes[4] != DPC_DEVICE_TABLE_VERSION) {
        return DPC_DEVICE_VERSION;
    }
    if (n < TABLE_HEADER + TABLE_DIGEST) {
        return DPC_DEVICE_DAMAGED;
    }
    found.bytes = bytes;
    found.kind = bytes[5];
    found.n_bits = bytes[6];
    found.n_outputs = load_32(bytes + 8);
    found.n_intervals = load_32(bytes + 12);
    if (found.n_bits < 1 || found.n_bits > 16) {
        return DPC_DEVICE_TABLE;
    }
    const uint64_t n_entries = ((uint64_t)found.n_intervals + 1) << found.n_bits;
    if (n != TABLE_HEADER + TABLE_DIGEST + 20 * n_entries) {
        return DPC_DEVICE_DAMAGED;
    }
    sha256_t sha;
    uint8_t digest[TABLE_DIGEST];
    dpc_sha256_begin(&sha);
    dpc_sha256_add(&sha, bytes, n - TABLE_DIGEST);
    dpc_sha256_end(&sha, digest);
    if (differ(digest, bytes + n - TABLE_DIGEST, TABLE_DIGEST)) {
        return DPC_DEVICE_DAMAGED;
    }
    const double epsilon = load_f64(bytes + AT_EPSILON), upper = load_f64(bytes + AT_UPPER);
    found.lower = load_f64(bytes + AT_LOWER);
    if (bytes[7] != 0 || found.n_outputs < 2 || found.n_outputs > 65536 ||
        bits_for(found.n_outputs) != found.n_bits || found.n_intervals < 1 ||
        n_entries > MOST_ENTRIES || !(epsilon >= 0.001 && epsilon <= 50) ||
        !are_bounds(found.lower, upper)) {
        return DPC_DEVICE_TABLE;
    }
    found.per_unit = found.n_intervals / (upper - found.lower);
    found.entry = (const uint32_t *)(const void *)(bytes + TABLE_HEADER);
    found.cut = (const uint64_t *)(const void *)(bytes + TABLE_HEADER + 4 * n_entries);
    if (!are_rows(&found, n_entries)) {
        return DPC_DEVICE_TABLE;
    }
    *table = found;
    return DPC_DEVICE_OK;
}

const uint8_t *dpc_device_table_digest(const dpc_device_table_t *table)
{
    const size_t n_entries = ((size_t)table->n_intervals + 1) << table->n_bits;
    return table->bytes + TABLE_HEADER + 20 * n_entries;
}
