/* How much stack the library for devices uses: ./device_stack TABLE prints name and bytes.
 *
 * The stack below the caller is painted, the call is made, and what is no longer paint was used. Built
 * with -O0 or -O1 the frame of used_by may not fit OWN. */
#include <stdio.h>
#include <string.h>

#include "dpcore/device.h"

enum { DEPTH = 16384, OWN = 96, PAINT = 0xa5, MOST_TABLE = 1 << 24, N = 96 };

static uint64_t table_words[MOST_TABLE / 8];
static dpc_device_table_t table;
static dpc_device_t device;
static size_t table_bytes;
static double readings[N];
static uint16_t codes[N];
static uint8_t message[1024], key[32];

static void load(void)
{
    if (dpc_device_load(&table, (const uint8_t *)table_words, table_bytes) != DPC_DEVICE_OK) {
        table.n_bits = 0;
    }
}

static void open_stream(void)
{
    dpc_device_name_t name;
    dpc_device_name_begin(&name);
    dpc_device_name_integer(&name, 1);
    dpc_device_stream(key, key, &name);
    dpc_device_open(&device, &table, key, 0);
}

static void encode(void)
{
    if (dpc_device_encode_f64(&device, readings, N, codes) != DPC_DEVICE_OK) {
        table.n_bits = 0;
    }
}

static void pack(void)
{
    if (dpc_device_pack(&table, codes, N, message, sizeof message) != DPC_DEVICE_OK) {
        table.n_bits = 0;
    }
}

static __attribute__((noinline)) size_t used_by(void (*call)(void))
{
    /* The frame of this function lies within OWN bytes; they are counted as used by the call. */
    volatile uint8_t *here = (volatile uint8_t *)__builtin_frame_address(0) - OWN;
    for (size_t i = 0; i < DEPTH; i++) {
        here[-(ptrdiff_t)i] = PAINT;
    }
    call();
    size_t used = DEPTH;
    while (used > 0 && here[1 - (ptrdiff_t)used] == PAINT) {
        used--;
    }
    return used + OWN;
}

int main(int argc, char **argv)
{
    FILE *file = argc == 2 ? fopen(argv[1], "rb") : NULL;
    if (file == NULL) {
        return 1;
    }
    table_bytes = fread(table_words, 1, sizeof table_words, file);
    fclose(file);
    printf("load %zu\n", used_by(load));
    printf("open %zu\n", used_by(open_stream));
    printf("encode %zu\n", used_by(encode));
    printf("pack %zu\n", used_by(pack));
    printf("state %zu\n", sizeof table + sizeof device);
    printf("name %zu\n", sizeof(dpc_device_name_t));
    return table.n_bits == 0;
}
