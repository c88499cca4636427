/* Counts the instructions of dpc_device_encode_f64, step by step, for readings all over the range:
 * one line of counts for each index. x86-64 and Linux only. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>

#include "dpcore/device.h"

static uint64_t bytes[1 << 19];
static volatile long n_steps;

static void on_step(int number)
{
    (void)number;
    n_steps++;
}

int main(int argc, char **argv)
{
    static const uint8_t key[32] = {1, 2, 3};
    dpc_device_table_t table;
    FILE *file = argc == 2 ? fopen(argv[1], "rb") : NULL;
    if (file == NULL) {
        return 1;
    }
    const size_t n = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    if (dpc_device_load(&table, (const uint8_t *)bytes, n) != DPC_DEVICE_OK) {
        return 2;
    }
    signal(SIGTRAP, on_step);
    const double width = table.n_intervals / table.per_unit;
    for (uint64_t next = 0; next < 3; next++) {
        for (int i = 0; i <= 12; i++) {
            const double x = i == 12 ? 1e300 : table.lower + width * (i - 1) / 10;
            uint16_t code = 0;
            dpc_device_t device;
            dpc_device_open(&device, &table, key, next);
            n_steps = 0;
            __asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq" : : : "memory", "cc");
            enum dpc_device_status status = dpc_device_encode_f64(&device, &x, 1, &code);
            __asm__ volatile("pushfq; andq $~0x100, (%%rsp); popfq" : : : "memory", "cc");
            if (status != DPC_DEVICE_OK) {
                return 3;
            }
            printf("%ld ", n_steps);
        }
        puts("");
    }
    return 0;
}
