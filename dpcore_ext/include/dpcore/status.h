#ifndef DPCORE_STATUS_H
#define DPCORE_STATUS_H

/* Result of every fallible function. dpcore_ext/errors.py maps each code to an exception. */
enum dpc_status {
    DPC_OK = 0,
    DPC_ERR_ENTROPY,   /* the operating system gave no randomness */
    DPC_ERR_LEVEL,     /* the SIMD level is unknown, or this CPU lacks it */
    DPC_ERR_NOT_FINITE,/* a NaN or an infinity among the data */
    DPC_ERR_RANGE,     /* a value lies outside the range of the fixed-point grid */
    DPC_ERR_CODE,      /* a code needs more bits than it is given */
    DPC_ERR_END
};

#if defined(__GNUC__)
#define DPC_MUST_CHECK __attribute__((warn_unused_result))
#else
#define DPC_MUST_CHECK
#endif

#endif
