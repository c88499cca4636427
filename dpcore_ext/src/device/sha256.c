#include "private/sha256.h"

#include "dpcore/chacha.h"
#include "private/memory.h"

static const uint32_t first[8] = {
    0x6a09e667u, 0xbb67ae85u, 0x3c6ef372u, 0xa54ff53au,
    0x510e527fu, 0x9b05688cu, 0x1f83d9abu, 0x5be0cd19u,
};

static const uint32_t round_word[64] = {
    0x428a2f98u, 0x71374491u, 0xb5c0fbcfu, 0xe9b5dba5u, 0x3956c25bu, 0x59f111f1u, 0x923f82a4u,
    0xab1c5ed5u, 0xd807aa98u, 0x12835b01u, 0x243185beu, 0x550c7dc3u, 0x72be5d74u, 0x80deb1feu,
    0x9bdc06a7u, 0xc19bf174u, 0xe49b69c1u, 0xefbe4786u, 0x0fc19dc6u, 0x240ca1ccu, 0x2de92c6fu,
    0x4a7484aau, 0x5cb0a9dcu, 0x76f988dau, 0x983e5152u, 0xa831c66du, 0xb00327c8u, 0xbf597fc7u,
    0xc6e00bf3u, 0xd5a79147u, 0x06ca6351u, 0x14292967u, 0x27b70a85u, 0x2e1b2138u, 0x4d2c6dfcu,
    0x53380d13u, 0x650a7354u, 0x766a0abbu, 0x81c2c92eu, 0x92722c85u, 0xa2bfe8a1u, 0xa81a664bu,
    0xc24b8b70u, 0xc76c51a3u, 0xd192e819u, 0xd6990624u, 0xf40e3585u, 0x106aa070u, 0x19a4c116u,
    0x1e376c08u, 0x2748774cu, 0x34b0bcb5u, 0x391c0cb3u, 0x4ed8aa4au, 0x5b9cca4fu, 0x682e6ff3u,
    0x748f82eeu, 0x78a5636fu, 0x84c87814u, 0x8cc70208u, 0x90befffau, 0xa4506cebu, 0xbef9a3f7u,
    0xc67178f2u,
};

static uint32_t turn(uint32_t x, int n) { return x >> n | x << (32 - n); }

/* The schedule is kept as a ring of 16 words: 192 bytes less than all 64. */
static void mix_block(sha256_t *sha)
{
    uint32_t w[16], s[8];
    for (int i = 0; i < 16; i++) {
        const uint8_t *b = sha->block + 4 * i;
        w[i] = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
    }
    memcpy(s, sha->state, sizeof s);
    for (int i = 0; i < 64; i++) {
        if (i >= 16) {
            uint32_t a = w[(i + 1) % 16], b = w[(i + 14) % 16];
            w[i % 16] += w[(i + 9) % 16] + (turn(a, 7) ^ turn(a, 18) ^ a >> 3) +
                         (turn(b, 17) ^ turn(b, 19) ^ b >> 10);
        }
        uint32_t up = s[7] + (turn(s[4], 6) ^ turn(s[4], 11) ^ turn(s[4], 25)) +
                      ((s[4] & s[5]) ^ (~s[4] & s[6])) + round_word[i] + w[i % 16];
        uint32_t down = (turn(s[0], 2) ^ turn(s[0], 13) ^ turn(s[0], 22)) +
                        ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
        for (int j = 7; j > 0; j--) {
            s[j] = s[j - 1];
        }
        s[4] += up;
        s[0] = up + down;
    }
    for (int i = 0; i < 8; i++) {
        sha->state[i] += s[i];
    }
    dpc_wipe(w, sizeof w);
    dpc_wipe(s, sizeof s);
}

void dpc_sha256_begin(sha256_t *sha)
{
    memcpy(sha->state, first, sizeof first);
    sha->length = 0;
}

void dpc_sha256_add(sha256_t *sha, const void *data, size_t n)
{
    const uint8_t *byte = (const uint8_t *)data;
    while (n > 0) {
        size_t at = (size_t)(sha->length % 64), now = 64 - at < n ? 64 - at : n;
        memcpy(sha->block + at, byte, now);
        sha->length += now;
        byte += now;
        n -= now;
        if (at + now == 64) {
            mix_block(sha);
        }
    }
}

void dpc_sha256_end(sha256_t *sha, uint8_t digest[32])
{
    static const uint8_t one = 0x80, zero = 0;
    const uint64_t bits = sha->length * 8;
    uint8_t length[8];
    for (int i = 0; i < 8; i++) {
        length[i] = (uint8_t)(bits >> (56 - 8 * i));
    }
    dpc_sha256_add(sha, &one, 1);
    while (sha->length % 64 != 56) {
        dpc_sha256_add(sha, &zero, 1);
    }
    dpc_sha256_add(sha, length, sizeof length);
    for (int i = 0; i < 32; i++) {
        digest[i] = (uint8_t)(sha->state[i / 4] >> (24 - 8 * (i % 4)));
    }
    dpc_wipe(sha, sizeof *sha);
}
