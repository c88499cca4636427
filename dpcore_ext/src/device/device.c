#include "dpcore/device.h"

#include "dpcore/encode.h"
#include "dpcore/pack.h"
#include "private/device.h"
#include "private/memory.h"
#include "private/sha256.h"

enum { GROUP = 16, MESSAGE_HEADER = 28, MESSAGE_PARAMETERS = 36, MESSAGE_CHECKSUM = 4 };

static const uint64_t index_limit = (uint64_t)1 << 62;
static const size_t most_codes = (size_t)1 << 28; /* 2 bytes each: no size wraps in 32 bits */

extern const dpc_kernels_t dpc_kernels_device;

static void store_32(uint8_t *p, uint32_t word) { memcpy(p, &word, sizeof word); }

static void store_64(uint8_t *p, uint64_t word) { memcpy(p, &word, sizeof word); }

/* Names: the encoding of ids of dpcore/noise.py. */

static void begin_ids(sha256_t *sha, const char *domain, size_t length)
{
    dpc_sha256_begin(sha);
    dpc_sha256_add(sha, "dpcore/v1/", 10);
    dpc_sha256_add(sha, domain, length);
}

static void add_id(sha256_t *sha, char tag, const void *data, size_t length)
{
    uint8_t size[8];
    store_64(size, length);
    dpc_sha256_add(sha, &tag, 1);
    dpc_sha256_add(sha, size, sizeof size);
    dpc_sha256_add(sha, data, length);
}

void dpc_device_name_begin(dpc_device_name_t *name) { begin_ids(name, "pinned", 6); }

void dpc_device_name_text(dpc_device_name_t *name, const char *text, size_t length)
{
    add_id(name, 's', text, length);
}

void dpc_device_name_bytes(dpc_device_name_t *name, const uint8_t *data, size_t length)
{
    add_id(name, 'b', data, length);
}

void dpc_device_name_integer(dpc_device_name_t *name, int64_t number)
{
    char digits[20];
    size_t at = sizeof digits;
    uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    do {
        digits[--at] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest);
    if (number < 0) {
        digits[--at] = '-';
    }
    add_id(name, 'i', digits + at, sizeof digits - at);
}

void dpc_device_stream(uint8_t stream[32], const uint8_t key[32], dpc_device_name_t *name)
{
    dpc_key_t words;
    uint8_t digest[32];
    dpc_sha256_end(name, digest);
    dpc_key_load(&words, key);
    dpc_key_derive(&words, &words, digest);
    dpc_key_store(&words, stream);
    dpc_wipe(&words, sizeof words);
}

void dpc_device_open(dpc_device_t *device, const dpc_device_table_t *table,
                     const uint8_t stream[32], uint64_t next)
{
    sha256_t sha;
    uint8_t digest[32];
    dpc_key_t words;
    /* The fingerprint of a mechanism: its law and its bounds. */
    dpc_sha256_begin(&sha);
    dpc_sha256_add(&sha, table->bytes + AT_NAME, 32);
    dpc_sha256_add(&sha, table->bytes + AT_LOWER, 16);
    dpc_sha256_end(&sha, digest);
    begin_ids(&sha, "purpose", 7);
    add_id(&sha, 's', "local", 5);
    add_id(&sha, 'b', digest, sizeof digest);
    dpc_sha256_end(&sha, digest);
    dpc_key_load(&words, stream);
    dpc_key_derive(&words, &words, digest);
    memcpy(device->key, words.word, sizeof device->key);
    dpc_wipe(&words, sizeof words);
    device->table = table;
    device->next = next;
}

void dpc_device_close(dpc_device_t *device) { dpc_wipe(device, sizeof *device); }

static int has_room(const dpc_device_t *device, size_t n)
{
    return device->next <= index_limit && n <= index_limit - device->next;
}

/* Readings that are known to be finite, GROUP at most: so few that all are refined. */
static void encode_group(dpc_device_t *device, const double *x, size_t n, uint8_t *codes)
{
    const dpc_device_table_t *table = device->table;
    const dpc_rows_t rows = {table->entry, table->n_intervals, table->n_bits, table->lower,
                             table->per_unit};
    dpc_key_t key;
    memcpy(key.word, device->key, sizeof key.word);
    enum dpc_status status =
        dpc_encode_f64(&dpc_kernels_device, &key, &rows, (const dpc_cut_t *)(const void *)table->cut,
                       device->next, x, codes, n);
    (void)status;
    dpc_wipe(&key, sizeof key);
    device->next += n;
}

static size_t code_bytes(const dpc_device_table_t *table) { return table->n_bits > 8 ? 2 : 1; }

enum dpc_device_status dpc_device_encode_f64(dpc_device_t *device, const double *readings, size_t n,
                                             void *codes)
{
    uint8_t *out = (uint8_t *)codes;
    if (!has_room(device, n)) {
        return DPC_DEVICE_INDEX;
    }
    int finite = 1;
    for (size_t i = 0; i < n; i++) {
        finite &= readings[i] - readings[i] == 0.0;
    }
    if (!finite) {
        return DPC_DEVICE_READING;
    }
    for (size_t i = 0; i < n; i += GROUP) {
        encode_group(device, readings + i, n - i < GROUP ? n - i : GROUP,
                     out + i * code_bytes(device->table));
    }
    return DPC_DEVICE_OK;
}

enum dpc_device_status dpc_device_encode_i32(dpc_device_t *device, const int32_t *readings,
                                             size_t n, void *codes)
{
    uint8_t *out = (uint8_t *)codes;
    double wide[GROUP];
    if (!has_room(device, n)) {
        return DPC_DEVICE_INDEX;
    }
    for (size_t i = 0; i < n; i += GROUP) {
        const size_t m = n - i < GROUP ? n - i : GROUP;
        for (size_t j = 0; j < m; j++) {
            wide[j] = readings[i + j];
        }
        encode_group(device, wide, m, out + i * code_bytes(device->table));
    }
    dpc_wipe(wide, sizeof wide);
    return DPC_DEVICE_OK;
}

/* CRC-32 as of zlib, half a byte at a time: 64 bytes of table. */
static uint32_t crc_32(const uint8_t *data, size_t n)
{
    static const uint32_t step[16] = {
        0x00000000u, 0x1db71064u, 0x3b6e20c8u, 0x26d930acu, 0x76dc4190u, 0x6b6b51f4u,
        0x4db26158u, 0x5005713cu, 0xedb88320u, 0xf00f9344u, 0xd6d6a3e8u, 0xcb61b38cu,
        0x9b64c2b0u, 0x86d3d2d4u, 0xa00ae278u, 0xbdbdf21cu,
    };
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < n; i++) {
        crc ^= data[i];
        crc = crc >> 4 ^ step[crc & 15];
        crc = crc >> 4 ^ step[crc & 15];
    }
    return ~crc;
}

size_t dpc_device_message_size(const dpc_device_table_t *table, size_t n)
{
    if (n >= most_codes) {
        return 0;
    }
    return MESSAGE_HEADER + MESSAGE_PARAMETERS + dpc_packed_size(n, table->n_bits) +
           MESSAGE_CHECKSUM;
}

static int are_codes(const dpc_device_table_t *table, const void *codes, size_t n)
{
    uint32_t wrong = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t code = table->n_bits > 8 ? ((const uint16_t *)codes)[i]
                                          : ((const uint8_t *)codes)[i];
        wrong |= code >= table->n_outputs;
    }
    return wrong == 0;
}

enum dpc_device_status dpc_device_pack(const dpc_device_table_t *table, const void *codes, size_t n,
                                       uint8_t *out, size_t capacity)
{
    const size_t size = dpc_device_message_size(table, n), payload = dpc_packed_size(n, table->n_bits);
    if (size == 0 || capacity < size) {
        return DPC_DEVICE_SPACE;
    }
    if (!are_codes(table, codes, n)) {
        return DPC_DEVICE_CODE;
    }
    /* The header of dpcore/wire.py, then the parameters of dpcore/local/base.py. */
    uint8_t *p = out;
    memcpy(p, "dpcr\x01", 5);
    p[5] = table->kind;
    p[6] = table->n_bits;
    p[7] = 0;
    store_64(p + 8, n);
    store_64(p + 16, payload);
    store_32(p + 24, MESSAGE_PARAMETERS);
    p += MESSAGE_HEADER;
    memcpy(p, table->bytes + AT_EPSILON, 24);
    store_32(p + 24, table->n_outputs);
    memcpy(p + 28, table->bytes + AT_NAME, 8);
    p += MESSAGE_PARAMETERS;
    enum dpc_status status =
        table->n_bits > 8 ? dpc_pack_u16((const uint16_t *)codes, n, table->n_bits, p)
                          : dpc_pack_u8((const uint8_t *)codes, n, table->n_bits, p);
    if (status != DPC_OK) {
        return DPC_DEVICE_CODE;
    }
    store_32(p + payload, crc_32(out, (size_t)(p - out) + payload));
    return DPC_DEVICE_OK;
}
