#include "dpcore/chacha.h"

#include "private/memory.h"

void dpc_key_load(dpc_key_t *key, const uint8_t bytes[32])
{
    for (int i = 0; i < 8; i++) {
        const uint8_t *b = bytes + 4 * i;
        key->word[i] = (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 |
                       (uint32_t)b[3] << 24;
    }
}

void dpc_key_store(const dpc_key_t *key, uint8_t bytes[32])
{
    for (int i = 0; i < 32; i++) {
        bytes[i] = (uint8_t)(key->word[i / 4] >> (8 * (i % 4)));
    }
}

static uint32_t rotate(uint32_t x, int n) { return x << n | x >> (32 - n); }

static void quarter_round(uint32_t x[16], int a, int b, int c, int d)
{
    x[a] += x[b];
    x[d] = rotate(x[d] ^ x[a], 16);
    x[c] += x[d];
    x[b] = rotate(x[b] ^ x[c], 12);
    x[a] += x[b];
    x[d] = rotate(x[d] ^ x[a], 8);
    x[c] += x[d];
    x[b] = rotate(x[b] ^ x[c], 7);
}

/* HChaCha20: the ChaCha20 rounds without the final addition; the words next to the constants and
 * the input are the output (draft-irtf-cfrg-xchacha, section 2.2). */
static void hchacha20(dpc_key_t *out, const dpc_key_t *key, const uint8_t input[16])
{
    uint32_t x[16] = {0x61707865u, 0x3320646eu, 0x79622d32u, 0x6b206574u};
    memcpy(x + 4, key->word, sizeof key->word);
    for (int i = 0; i < 4; i++) {
        const uint8_t *b = input + 4 * i;
        x[12 + i] = (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 |
                    (uint32_t)b[3] << 24;
    }
    for (int round = 0; round < 20; round += 2) {
        for (int i = 0; i < 4; i++) {
            quarter_round(x, i, i + 4, i + 8, i + 12);
        }
        for (int i = 0; i < 4; i++) {
            quarter_round(x, i, (i + 1) % 4 + 4, (i + 2) % 4 + 8, (i + 3) % 4 + 12);
        }
    }
    memcpy(out->word, x, 4 * sizeof x[0]);
    memcpy(out->word + 4, x + 12, 4 * sizeof x[0]);
    dpc_wipe(x, sizeof x);
}

void dpc_key_derive(dpc_key_t *child, const dpc_key_t *parent, const uint8_t digest[32])
{
    hchacha20(child, parent, digest);
    hchacha20(child, child, digest + 16);
}

/* A kernel alone takes 2.2 KB at most; what is wiped beyond that is time of short calls. */
void dpc_wipe_stack(void)
{
    uint64_t below[384];
    dpc_wipe(below, sizeof below);
}
