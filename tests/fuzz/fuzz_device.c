/* A target for libFuzzer: tables as somebody else may write them to the flash of a device.
 *
 * The bytes are the table. Its checksum is made right, since nobody who writes one leaves it wrong; what
 * dpc_device_load then accepts must encode every reading, up to the last index, into codes that pack.
 */
#include "target.h"

#include "dpcore/device.h"
#include "private/device.h"
#include "private/sha256.h"

uint64_t fuzz_state = 1;
const uint32_t fuzz_n_seeds = 4 * 6;

static void seal(uint8_t *bytes, size_t n)
{
    sha256_t sha;
    dpc_sha256_begin(&sha);
    dpc_sha256_add(&sha, bytes, n - TABLE_DIGEST);
    dpc_sha256_end(&sha, bytes + n - TABLE_DIGEST);
}

/* Valid tables of six shapes, the last with codes of two bytes, four of each with other cuts. */
size_t fuzz_seed(uint32_t number, uint8_t *out)
{
    static const uint32_t shapes[6][2] = {{2, 1}, {3, 1}, {4, 2}, {5, 3}, {16, 7}, {300, 1}};
    const uint32_t n_outputs = shapes[number % 6][0], n_intervals = shapes[number % 6][1];
    const double numbers[3] = {1.0, -2.0, number < 12 ? 3.0 : 1e150};
    uint8_t bits = 1;
    while ((n_outputs - 1) >> bits) {
        bits++;
    }
    const size_t n_entries = (size_t)(n_intervals + 1) << bits;
    const size_t size = TABLE_HEADER + 20 * n_entries + TABLE_DIGEST;
    memset(out, 0, size);
    memcpy(out, "dpct\x01\x07", 6);
    out[6] = bits;
    memcpy(out + 8, &n_outputs, 4);
    memcpy(out + 12, &n_intervals, 4);
    memcpy(out + AT_EPSILON, numbers, sizeof numbers);
    for (size_t i = 0; i < n_entries; i++) {
        const int used = (i & (((size_t)1 << bits) - 1)) < n_outputs;
        const uint64_t cut[2] = {used ? (uint64_t)next_random() << 33 : 0, used ? next_random() : 0};
        const uint32_t prefix = 0xffffu << bits & 0xffffu;
        const uint32_t entry = ((uint32_t)(cut[0] >> 48) & prefix) << 16 | next_random() % n_outputs;
        memcpy(out + TABLE_HEADER + 4 * i, &entry, 4);
        memcpy(out + TABLE_HEADER + 4 * n_entries + 16 * i, cut, 16);
    }
    seal(out, size);
    return size;
}

static void run(const dpc_device_table_t *table, uint64_t next)
{
    enum { N = 40 };
    static const uint8_t key[32] = {3};
    const size_t width = table->n_bits > 8 ? 2 : 1, size = dpc_device_message_size(table, N);
    uint8_t *codes = exactly(N * width), *message = exactly(size);
    double x[N];
    dpc_device_t device;
    for (int i = 0; i < N; i++) {
        x[i] = i < 10 ? table->lower + i * 0.37 / table->per_unit
                      : (i - 20) * 1e300 * (i % 2 ? 1e6 : 1e-3);
    }
    dpc_device_open(&device, table, key, next);
    REQUIRE(dpc_device_encode_f64(&device, x, N, codes) == DPC_DEVICE_OK);
    REQUIRE(device.next == next + N);
    REQUIRE(dpc_device_pack(table, codes, N, message, size) == DPC_DEVICE_OK);
    free(codes);
    free(message);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *bytes = copy_of(data, size);
    dpc_device_table_t table;
    if (size >= TABLE_DIGEST) {
        seal(bytes, size);
    }
    if (dpc_device_load(&table, bytes, size) == DPC_DEVICE_OK) {
        run(&table, 5);
        run(&table, ((uint64_t)1 << 62) - 40);
    }
    free(bytes);
    return 0;
}
