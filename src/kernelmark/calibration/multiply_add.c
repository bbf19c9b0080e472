/* The rate of the fastest multiply-add loop that this processor runs, per dtype, on a number of threads.
 *
 *     multiply_add THREADS SECONDS_PER_LOOP
 *
 * prints "DTYPE INSTRUCTION OPERATIONS_PER_SECOND" for each loop. A multiply-add is two operations. Each loop keeps
 * as many independent sums as registers hold, so that neither latency nor memory bounds it. In a pass of 10 ms each
 * thread runs as much as it can, so that one on a slower or shared core holds nobody up, and the sum is counted; the
 * fastest pass counts, since whatever disturbs one makes it slower.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif
#if defined(__AMX_TILE__) && defined(__linux__)
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#if defined(__AVX512F__)
#define BYTES 64
#define SUMS 24 /* of 32 registers */
#elif defined(__AVX__)
#define BYTES 32
#define SUMS 12 /* of 16 */
#elif defined(__aarch64__)
#define BYTES 16
#define SUMS 24
#else
#define BYTES 16
#define SUMS 12
#endif

static volatile double sink;
static const long STEPS = 64; /* of all sums, in one turn of the outer loop */

typedef struct {
    const char *dtype, *instruction;
    double per_turn; /* operations */
    void (*turns)(long);
} loop;

/* A loop over SUMS values of TYPE; STEP says how `sum` takes one more product of `x` and `y`. */
#define LOOP(NAME, TYPE, FIRST, FACTOR, STEP)                                  \
    static void NAME(long turns) {                                             \
        TYPE sums[SUMS], x = FACTOR, y = FACTOR;                               \
        for (int i = 0; i < SUMS; i++) sums[i] = FIRST;                        \
        __asm__ volatile("" : "+m"(x), "+m"(y));                               \
        for (long turn = 0; turn < turns; turn++)                              \
            for (long step = 0; step < STEPS; step++) {                        \
                _Pragma("GCC unroll 24") for (int i = 0; i < SUMS; i++) {      \
                    TYPE sum = sums[i];                                        \
                    STEP;                                                      \
                    sums[i] = sum;                                             \
                }                                                              \
            }                                                                  \
        for (int i = 0; i < SUMS; i++) sink += ((volatile char *)&sums[i])[0]; \
    }

#define OF_VECTORS (2.0 * SUMS * STEPS * BYTES)

typedef double doubles __attribute__((vector_size(BYTES)));
typedef float floats __attribute__((vector_size(BYTES)));
LOOP(in_float64, doubles, (doubles){0}, (doubles){0} + 0.5, sum = sum * x + y)
LOOP(in_float32, floats, (floats){0}, (floats){0} + 0.5f, sum = sum * x + y)
#if defined(__AVX512FP16__) || defined(__ARM_FEATURE_FP16_VECTOR_ARITHMETIC)
#define HAS_FLOAT16
typedef _Float16 halves __attribute__((vector_size(BYTES)));
LOOP(in_float16, halves, (halves){0}, (halves){0} + (_Float16)0.5, sum = sum * x + y)
#endif
#if defined(__AVX512BF16__)
#define HAS_BFLOAT16 "vdpbf16ps"
LOOP(in_bfloat16, __m512, _mm512_setzero_ps(), _mm512_set1_ps(0.5f),
     sum = _mm512_dpbf16_ps(sum, (__m512bh)x, (__m512bh)y))
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define HAS_BFLOAT16 "bfmmla" /* 2 x 4 by 4 x 2: twice the products of a plain vector */
LOOP(in_bfloat16, float32x4_t, vdupq_n_f32(0), vdupq_n_f32(0.5f),
     sum = vbfmmlaq_f32(sum, vreinterpretq_bf16_f32(x), vreinterpretq_bf16_f32(y)))
#endif
#if defined(__AVX512VNNI__)
#define HAS_INT8 "vpdpbusd"
LOOP(in_int8, __m512i, _mm512_setzero_si512(), _mm512_set1_epi8(1), sum = _mm512_dpbusd_epi32(sum, x, y))
#elif defined(__AVXVNNI__)
#define HAS_INT8 "vpdpbusd"
LOOP(in_int8, __m256i, _mm256_setzero_si256(), _mm256_set1_epi8(1), sum = _mm256_dpbusd_avx_epi32(sum, x, y))
#elif defined(__ARM_FEATURE_DOTPROD)
#define HAS_INT8 "sdot"
typedef int8_t bytes_t __attribute__((vector_size(16)));
LOOP(in_int8, int32x4_t, vdupq_n_s32(0), vdupq_n_s32(1),
     sum = vdotq_s32(sum, vreinterpretq_s8_s32(x), vreinterpretq_s8_s32(y)))
#endif

#if defined(__AMX_TILE__) && defined(__linux__)
/* Tiles are 16 rows of 64 bytes; four sums and two factors. The kernel lets a process use them on request. */
static void set_tiles(void) {
    struct {
        unsigned char palette, start, rest[14];
        unsigned short row_bytes[16];
        unsigned char rows[16];
    } shape;
    static const char zeros[1024];
    memset(&shape, 0, sizeof shape);
    shape.palette = 1;
    for (int i = 0; i < 8; i++) shape.row_bytes[i] = 64, shape.rows[i] = 16;
    _tile_loadconfig(&shape);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, zeros, 64);
    _tile_loadd(5, zeros, 64);
}
static int tiles_allowed(void) { return syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18) == 0; }
#define TILE_LOOP(NAME, MULTIPLY)                              \
    static void NAME(long turns) {                             \
        set_tiles();                                           \
        for (long step = 0; step < turns * STEPS; step++) {    \
            MULTIPLY(0, 4, 5);                                 \
            MULTIPLY(1, 4, 5);                                 \
            MULTIPLY(2, 4, 5);                                 \
            MULTIPLY(3, 4, 5);                                 \
        }                                                      \
        _tile_release();                                       \
    }
#define OF_TILES(ELEMENTS) (2.0 * 4 * STEPS * 16 * 16 * (ELEMENTS))
#if defined(__AMX_BF16__)
TILE_LOOP(in_bfloat16_tiles, _tile_dpbf16ps)
#endif
#if defined(__AMX_INT8__)
TILE_LOOP(in_int8_tiles, _tile_dpbusd)
#endif
#endif

#define PASS_S 10e-3
#define CHUNK_S 20e-6 /* what a thread may have under way, uncounted, when a pass ends */

static int threads;
static atomic_int arrived, round_, stop;
static atomic_long counted; /* turns of a pass; negative: the end */
static const loop *loop_now;
static long chunk; /* turns */

static void meet(void) {
    int now = atomic_load(&round_);
    if (atomic_fetch_add(&arrived, 1) == threads - 1) {
        atomic_store(&arrived, 0);
        atomic_fetch_add(&round_, 1);
    } else
        for (long spins = 0; atomic_load(&round_) == now; spins++)
            if (spins > 1000) sched_yield(); /* more threads than processors */
}

static void *work(void *unused) {
    (void)unused;
    for (;;) {
        meet();
        if (atomic_load(&counted) < 0) return NULL;
        long done = -chunk; /* the last one is not counted */
        do {
            loop_now->turns(chunk);
            done += chunk;
        } while (!atomic_load(&stop));
        atomic_fetch_add(&counted, done);
        meet();
    }
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

/* Turns per second of all threads together. */
static double one_pass(void) {
    long done = 0;
    double taken;
    atomic_store(&counted, 0);
    atomic_store(&stop, 0);
    meet();
    double begin = seconds();
    do {
        loop_now->turns(chunk);
        done += chunk;
        taken = seconds() - begin;
    } while (taken < PASS_S);
    atomic_store(&stop, 1);
    meet();
    return (atomic_load(&counted) + done) / taken;
}

static void report(loop which, double budget) {
    double best = 0, taken = 0;
    loop_now = &which;
    for (chunk = 1; taken < CHUNK_S; chunk *= 2) {
        double begin = seconds();
        which.turns(chunk);
        taken = seconds() - begin;
    }
    for (double end = seconds() + budget; best == 0 || seconds() < end;) {
        double rate = which.per_turn * one_pass();
        if (rate > best) best = rate;
    }
    printf("%s %s %.6e\n", which.dtype, which.instruction, best);
    fflush(stdout);
}

int main(int count, char **given) {
    if (count != 3 || (threads = atoi(given[1])) < 1) return 2;
    double budget = atof(given[2]);
    for (int i = 1; i < threads; i++) {
        pthread_t one;
        if (pthread_create(&one, NULL, work, NULL)) return 3;
    }
    char vectors[16];
    snprintf(vectors, sizeof vectors, "%d-bit", 8 * BYTES);
    report((loop){"float64", vectors, OF_VECTORS / 8, in_float64}, budget);
    report((loop){"float32", vectors, OF_VECTORS / 4, in_float32}, budget);
#if defined(HAS_FLOAT16)
    report((loop){"float16", vectors, OF_VECTORS / 2, in_float16}, budget);
#endif
#if defined(__AVX512BF16__)
    report((loop){"bfloat16", HAS_BFLOAT16, OF_VECTORS / 2, in_bfloat16}, budget);
#elif defined(HAS_BFLOAT16)
    report((loop){"bfloat16", HAS_BFLOAT16, OF_VECTORS, in_bfloat16}, budget);
#endif
#if defined(__AVX512VNNI__) || defined(__ARM_FEATURE_DOTPROD) || defined(__AVXVNNI__)
    report((loop){"int8", HAS_INT8, OF_VECTORS, in_int8}, budget);
#endif
#if defined(__AMX_TILE__) && defined(__linux__)
    if (tiles_allowed()) {
#if defined(__AMX_BF16__)
        report((loop){"bfloat16", "tdpbf16ps", OF_TILES(32), in_bfloat16_tiles}, budget);
#endif
#if defined(__AMX_INT8__)
        report((loop){"int8", "tdpbusd", OF_TILES(64), in_int8_tiles}, budget);
#endif
    }
#endif
    atomic_store(&counted, -1);
    meet();
    return 0;
}
