/* Shamir's threshold secret sharing over GF(2^128), for secrets of several 16-byte elements.
 *
 * The field is that of the polynomial x^128 + x^7 + x^2 + x + 1; 16 bytes are an element, the first
 * byte the most significant, as in PyCryptodome's Crypto.Protocol.SecretSharing, whose shares are
 * these. The evaluation points are 1 to 65535: that makes a step of Horner's rule a few shifts.
 *
 * Points are public. The time does not depend on secrets, coefficients or shares.
 */
#ifndef DPCORE_SHAMIR_H
#define DPCORE_SHAMIR_H

#include <stddef.h>
#include <stdint.h>

#define DPC_SHAMIR_BYTES 16

/* coefficients: threshold rows of n_elements * 16 bytes, the leading one first and the secret last.
 * shares: one such row for each of the points. */
void dpc_shamir_split(const uint8_t *coefficients, size_t threshold, size_t n_elements,
                      const uint16_t *points, size_t n_points, uint8_t *shares);

/* weights[n_points * 16] with secret = sum of weight * share; the points differ and are not 0. */
void dpc_shamir_weights(const uint16_t *points, size_t n_points, uint8_t *weights);

/* secret[n_elements * 16] from as many shares as there are weights. */
void dpc_shamir_combine(const uint8_t *weights, const uint8_t *shares, size_t n_points,
                        size_t n_elements, uint8_t *secret);

#endif
