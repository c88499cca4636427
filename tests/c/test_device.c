/* The library for devices: SHA-256, tables that are damaged in every way, readings and messages. */
#include <math.h>

#include "check.h"
#include "dpcore/device.h"
#include "private/device.h"
#include "private/sha256.h"

static uint64_t state = 88172645463325252ull;

static uint64_t next_random(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static int digest_is(const void *data, size_t n, const char *hex)
{
    sha256_t sha;
    uint8_t digest[32];
    char text[65];
    dpc_sha256_begin(&sha);
    for (size_t done = 0; done < n; done += 37) {
        dpc_sha256_add(&sha, (const uint8_t *)data + done, n - done < 37 ? n - done : 37);
    }
    dpc_sha256_end(&sha, digest);
    for (int i = 0; i < 32; i++) {
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
    }
    return strcmp(text, hex) == 0;
}

static void test_sha256(void)
{
    /* FIPS 180-4 and its examples. */
    CHECK(digest_is("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"));
    CHECK(digest_is("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
    CHECK(digest_is("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
                    "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"));
    char *many = exactly(1000000);
    memset(many, 'a', 1000000);
    CHECK(digest_is(many, 1000000,
                    "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"));
    free(many);
}

static void seal(uint8_t *bytes, size_t n)
{
    sha256_t sha;
    dpc_sha256_begin(&sha);
    dpc_sha256_add(&sha, bytes, n - TABLE_DIGEST);
    dpc_sha256_end(&sha, bytes + n - TABLE_DIGEST);
}

/* A valid table with random cuts, in exactly as many bytes as it needs. */
static uint8_t *make_table(uint32_t n_outputs, uint32_t n_intervals, size_t *n)
{
    uint8_t bits = 1;
    while ((n_outputs - 1) >> bits) {
        bits++;
    }
    const size_t n_entries = (size_t)(n_intervals + 1) << bits;
    const double numbers[3] = {1.0, -2.0, 3.0};
    *n = TABLE_HEADER + 20 * n_entries + TABLE_DIGEST;
    uint8_t *bytes = exactly(*n);
    memset(bytes, 0, *n);
    memcpy(bytes, "dpct\x01\x07", 6);
    bytes[6] = bits;
    memcpy(bytes + 8, &n_outputs, 4);
    memcpy(bytes + 12, &n_intervals, 4);
    memcpy(bytes + AT_EPSILON, numbers, sizeof numbers);
    for (int i = 0; i < 32; i++) {
        bytes[AT_NAME + i] = (uint8_t)next_random();
    }
    for (size_t i = 0; i < n_entries; i++) {
        const int used = (i & (((size_t)1 << bits) - 1)) < n_outputs;
        const uint64_t cut[2] = {used ? next_random() : 0, used ? next_random() : 0};
        const uint32_t prefix = 0xffffu << bits & 0xffffu;
        const uint32_t entry = ((uint32_t)(cut[0] >> 48) & prefix) << 16 |
                               (uint32_t)(next_random() % n_outputs);
        memcpy(bytes + TABLE_HEADER + 4 * i, &entry, 4);
        memcpy(bytes + TABLE_HEADER + 4 * n_entries + 16 * i, cut, 16);
    }
    seal(bytes, *n);
    return bytes;
}

/* Runs a loaded table: every code must be one of the mechanism, whatever the table says. */
static void run_table(const dpc_device_table_t *table)
{
    enum { N = 45 };
    static const uint8_t key[32] = {1, 2, 3};
    dpc_device_t device;
    double x[N];
    int32_t whole[N];
    const size_t width = table->n_bits > 8 ? 2 : 1, size = dpc_device_message_size(table, N);
    uint8_t *codes = exactly(N * width), *again = exactly(N * width), *message = exactly(size);
    for (int i = 0; i < N; i++) {
        whole[i] = i - N / 2;
        x[i] = whole[i];
    }
    dpc_device_open(&device, table, key, 1000);
    CHECK(dpc_device_encode_f64(&device, x, N, codes) == DPC_DEVICE_OK);
    CHECK(device.next == 1000 + N);
    CHECK(dpc_device_pack(table, codes, N, message, size) == DPC_DEVICE_OK);
    CHECK(dpc_device_pack(table, codes, N, message, size - 1) == DPC_DEVICE_SPACE);
    device.next = 1000;
    CHECK(dpc_device_encode_i32(&device, whole, 20, again) == DPC_DEVICE_OK);
    CHECK(dpc_device_encode_i32(&device, whole + 20, N - 20, again + 20 * width) == DPC_DEVICE_OK);
    CHECK(memcmp(codes, again, N * width) == 0);
    free(codes);
    free(again);
    free(message);
    dpc_device_close(&device);
}

static void test_refusals(const dpc_device_table_t *table)
{
    static const uint8_t key[32] = {9};
    static const uint8_t zeros[32];
    const double bad[3] = {0.0, INFINITY, 1.0}, worse[1] = {NAN};
    dpc_device_t device;
    uint16_t codes[3] = {0};
    uint8_t *message = exactly(dpc_device_message_size(table, 1));
    dpc_device_open(&device, table, key, 5);
    CHECK(dpc_device_encode_f64(&device, bad, 3, codes) == DPC_DEVICE_READING);
    CHECK(dpc_device_encode_f64(&device, worse, 1, codes) == DPC_DEVICE_READING);
    CHECK(device.next == 5 && memcmp(codes, zeros, sizeof codes) == 0);
    CHECK(dpc_device_encode_f64(&device, NULL, 0, NULL) == DPC_DEVICE_OK);
    device.next = ((uint64_t)1 << 62) - 1;
    CHECK(dpc_device_encode_f64(&device, bad, 2, codes) == DPC_DEVICE_INDEX);
    device.next = UINT64_MAX;
    CHECK(dpc_device_encode_i32(&device, (const int32_t *)&bad, 1, codes) == DPC_DEVICE_INDEX);
    memset(codes, 0xff, sizeof codes);
    CHECK(dpc_device_message_size(table, ((size_t)1 << 28) - 1) > (size_t)1 << 25);
    CHECK(dpc_device_message_size(table, (size_t)1 << 28) == 0);
    CHECK(dpc_device_message_size(table, SIZE_MAX) == 0);
    CHECK(dpc_device_pack(table, codes, SIZE_MAX, message, SIZE_MAX) == DPC_DEVICE_SPACE);
    CHECK(table->n_outputs == 256 ||
          dpc_device_pack(table, codes, 1, message, dpc_device_message_size(table, 1)) ==
              DPC_DEVICE_CODE);
    dpc_device_close(&device);
    CHECK(memcmp(device.key, zeros, sizeof device.key) == 0 && device.next == 0);
    free(message);
}

/* Damage without and with a new checksum: refused, or harmless. */
static void test_damage(uint32_t n_outputs, uint32_t n_intervals, int n_tries)
{
    size_t n;
    uint8_t *good = make_table(n_outputs, n_intervals, &n), *bytes = exactly(n);
    dpc_device_table_t table;
    CHECK(dpc_device_load(&table, good, n) == DPC_DEVICE_OK);
    CHECK(memcmp(dpc_device_table_digest(&table), good + n - 32, 32) == 0);
    run_table(&table);
    test_refusals(&table);
    const size_t step = n > 2000 ? n / 500 : 1;
    for (size_t i = 0; i < n; i += step) {
        memcpy(bytes, good, n);
        bytes[i] ^= (uint8_t)(1u << next_random() % 8);
        CHECK(dpc_device_load(&table, bytes, n) != DPC_DEVICE_OK);
        uint8_t *cut_short = exactly(i);
        memcpy(cut_short, good, i);
        CHECK(dpc_device_load(&table, cut_short, i) != DPC_DEVICE_OK);
        free(cut_short);
    }
    int accepted = 0;
    for (int i = 0; i < n_tries; i++) {
        memcpy(bytes, good, n);
        for (uint64_t k = next_random() % 3 + 1; k > 0; k--) {
            size_t at = next_random() % (next_random() % 2 ? TABLE_HEADER : n - TABLE_DIGEST);
            bytes[at] = (uint8_t)(next_random() % 3 ? next_random() : 0xff * (next_random() & 1));
        }
        seal(bytes, n);
        if (dpc_device_load(&table, bytes, n) == DPC_DEVICE_OK) {
            accepted++;
            run_table(&table);
        }
    }
    CHECK(accepted > 0 && accepted < n_tries);
    free(good);
    free(bytes);
}

static void test_loader(void)
{
    size_t n;
    dpc_device_table_t table;
    uint8_t *good = make_table(5, 3, &n), *moved = exactly(n + 8);
    memcpy(moved + 4, good, n);
    CHECK(dpc_device_load(&table, moved + 4, n) == DPC_DEVICE_ALIGNMENT);
    good[4] = 2;
    seal(good, n);
    CHECK(dpc_device_load(&table, good, n) == DPC_DEVICE_VERSION);
    CHECK(dpc_device_load(&table, good, 0) == DPC_DEVICE_VERSION);
    good[4] = 1;
    memset(good + 12, 0xff, 4); /* so many rows that lengths overflow 32 bits */
    seal(good, n);
    CHECK(dpc_device_load(&table, good, n) == DPC_DEVICE_DAMAGED);
    free(good);
    free(moved);
}

int main(void)
{
    test_sha256();
    test_loader();
    test_damage(2, 1, 4000);
    test_damage(3, 1, 4000);
    test_damage(16, 30, 500);
    test_damage(256, 7, 200);
    test_damage(300, 3, 200);
    return failures != 0;
}
