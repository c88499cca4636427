/* A meter that reports private readings: ./meter TABLE KEY NAME NUMBER NEXT < readings > message
 *
 * TABLE holds `mechanism.to_table()`, KEY 32 secret bytes; NAME and NUMBER name the stream, NEXT is the
 * index of the first reading. On a real device the table lies in flash, the key was drawn there once
 * by a hardware generator, and the next index is kept in memory that outlives a reset.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpcore/device.h"

enum { MOST_READINGS = 4096, MOST_TABLE = 1 << 24 };

static uint64_t table_words[MOST_TABLE / 8];
static double readings[MOST_READINGS];
static uint16_t codes[MOST_READINGS];
static uint8_t message[1024 + 2 * MOST_READINGS];

static size_t read_all(const char *path, void *out, size_t most)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return 0;
    }
    size_t n = fread(out, 1, most, file);
    fclose(file);
    return n;
}

static int fail(const char *what, int status)
{
    fprintf(stderr, "meter: %s (%d)\n", what, status);
    return 1;
}

int main(int argc, char **argv)
{
    dpc_device_table_t table;
    dpc_device_name_t name;
    dpc_device_t device;
    uint8_t key[32];
    if (argc != 6) {
        return fail("usage: meter TABLE KEY NAME NUMBER NEXT", 0);
    }
    size_t n = read_all(argv[1], table_words, sizeof table_words);
    int status = dpc_device_load(&table, (const uint8_t *)table_words, n);
    if (status != DPC_DEVICE_OK) {
        return fail("the table was refused", status);
    }
    if (read_all(argv[2], key, sizeof key) != sizeof key) {
        return fail("the key must be 32 bytes long", 0);
    }
    dpc_device_name_begin(&name);
    dpc_device_name_text(&name, argv[3], strlen(argv[3]));
    dpc_device_name_integer(&name, strtoll(argv[4], NULL, 10));
    dpc_device_stream(key, key, &name);
    dpc_device_open(&device, &table, key, strtoull(argv[5], NULL, 10));
    memset(key, 0, sizeof key);

    n = 0;
    while (n < MOST_READINGS && scanf("%lf", &readings[n]) == 1) {
        n++;
    }
    status = dpc_device_encode_f64(&device, readings, n, codes);
    dpc_device_close(&device);
    if (status != DPC_DEVICE_OK) {
        return fail("the readings were refused", status);
    }
    status = dpc_device_pack(&table, codes, n, message, sizeof message);
    if (status != DPC_DEVICE_OK) {
        return fail("the codes were refused", status);
    }
    fwrite(message, 1, dpc_device_message_size(&table, n), stdout);
    return 0;
}
