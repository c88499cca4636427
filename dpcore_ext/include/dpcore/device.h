/* dpcore on a device: local randomisers, their keys and their messages, without an operating system.
 *
 * `make device` builds libdpcore_device.a; this header is all that a program needs besides. Nothing is
 * allocated, nothing is global; memcpy, memset and the compiler's runtime are all that is taken from
 * outside, and no header of a libc is read. A little-endian machine is needed; floating point (in hardware or in software) places a reading on the public grid
 * of the mechanism, as dpcore does, and never takes part in choosing what is sent.
 *
 * In Python, `mechanism.to_table()` gives the bytes that dpc_device_load takes. A device with the key
 * k and the stream "meter", 7 sends the very bytes of
 *
 *     noise = dpcore.Noise.from_key(k).stream("meter", 7)
 *     mechanism.pack(mechanism.encode(readings, noise=noise, start=next))
 *
 * Whoever knows the key can take the noise off every report: draw it on the device, from a hardware
 * generator, and keep it there. A server needs no key to read the reports.
 *
 * Two different readings must never be encoded with one key, stream and index. `next` is the index of
 * the next reading: keep it in memory that outlives a reset, and store it before a report is sent.
 */
#ifndef DPCORE_DEVICE_H
#define DPCORE_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#define DPC_DEVICE_TABLE_VERSION 1

#ifdef __cplusplus
extern "C" {
#endif

enum dpc_device_status {
    DPC_DEVICE_OK = 0,
    DPC_DEVICE_ALIGNMENT, /* the table does not begin at a multiple of 8 */
    DPC_DEVICE_VERSION,   /* not a table, or one of another version */
    DPC_DEVICE_DAMAGED,   /* the length or the checksum of the table is wrong */
    DPC_DEVICE_TABLE,     /* the table describes no mechanism */
    DPC_DEVICE_READING,   /* a reading is not finite */
    DPC_DEVICE_CODE,      /* a code is not one of the mechanism */
    DPC_DEVICE_INDEX,     /* indices have to stay below 2^62 */
    DPC_DEVICE_SPACE,     /* the message is longer than the buffer */
    DPC_DEVICE_END
};

#if defined(__GNUC__)
#define DPC_DEVICE_CHECK __attribute__((warn_unused_result))
#else
#define DPC_DEVICE_CHECK
#endif

/* A mechanism: a view into bytes that stay where they are, in flash for instance. */
typedef struct dpc_device_table {
    const uint8_t *bytes;
    const uint32_t *entry;
    const uint64_t *cut;
    double lower, per_unit;
    uint32_t n_outputs, n_intervals;
    uint8_t kind, n_bits;
} dpc_device_table_t;

/* Takes bytes[n], which begin at a multiple of 8, after looking at all of them; table is set on
 * success only. The checksum finds accidents. Where somebody else can write the table, compare the
 * digest of a known one: dpc_device_table_digest. */
enum dpc_device_status dpc_device_load(dpc_device_table_t *table, const uint8_t *bytes,
                                       size_t n) DPC_DEVICE_CHECK;

/* The SHA-256 at the end of the table, which dpc_device_load has compared with its contents: 32
 * bytes. */
const uint8_t *dpc_device_table_digest(const dpc_device_table_t *table);

/* The name of a stream: begin, then one call for each id, as many as in Noise.stream(...). Text is
 * UTF-8 without a final zero. */
typedef struct dpc_device_name {
    uint32_t state[8];
    uint64_t length;
    uint8_t block[64];
} dpc_device_name_t;

void dpc_device_name_begin(dpc_device_name_t *name);
void dpc_device_name_text(dpc_device_name_t *name, const char *text, size_t length);
void dpc_device_name_bytes(dpc_device_name_t *name, const uint8_t *data, size_t length);
void dpc_device_name_integer(dpc_device_name_t *name, int64_t number);

/* stream = key of the stream of that name under key; they may be the same 32 bytes. name is used up.
 * The key cannot be computed from the stream. */
void dpc_device_stream(uint8_t stream[32], const uint8_t key[32], dpc_device_name_t *name);

/* One mechanism on one stream. `key` is secret: dpc_device_close wipes it. */
typedef struct dpc_device {
    const dpc_device_table_t *table;
    uint64_t next;
    uint32_t key[8];
} dpc_device_t;

void dpc_device_open(dpc_device_t *device, const dpc_device_table_t *table,
                     const uint8_t stream[32], uint64_t next);
void dpc_device_close(dpc_device_t *device);

/* codes[i] = code of readings[i], for i < n, and next += n; readings outside the bounds count as the
 * nearer one. codes are uint8_t where n_bits <= 8 and uint16_t above. If an error is returned nothing
 * was drawn: codes and next are as before. The readings decide neither a branch nor the number of memory
 * accesses, but which row of the table is read, and they pass through floating point: the time depends
 * on them only as that of a cache or of the machine's floating point does. Without a cache and with
 * floating point in hardware it is the same for all that are finite; floating point in software takes
 * branches of its own. */
enum dpc_device_status dpc_device_encode_f64(dpc_device_t *device, const double *readings, size_t n,
                                             void *codes) DPC_DEVICE_CHECK;
enum dpc_device_status dpc_device_encode_i32(dpc_device_t *device, const int32_t *readings,
                                             size_t n, void *codes) DPC_DEVICE_CHECK;

/* Bytes of a message of n codes, or 0 for 2^28 and more, which no message holds. */
size_t dpc_device_message_size(const dpc_device_table_t *table, size_t n);

/* The message of n codes into out[capacity]; DPC_DEVICE_SPACE also where n is 2^28 or more. */
enum dpc_device_status dpc_device_pack(const dpc_device_table_t *table, const void *codes, size_t n,
                                       uint8_t *out, size_t capacity) DPC_DEVICE_CHECK;

#ifdef __cplusplus
}
#endif

#endif
