/* Lines of memory, one by one: read in an order that no prefetcher guesses, or thrown out of every cache. */
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define LINE 64

/* Follow `count` links from line to line; gives nanoseconds a line. `lines` holds, at the start of each, the next. */
double follow(const uint32_t *lines, size_t count) {
    struct timespec begin, end;
    volatile uint32_t last;
    uint32_t at = 0;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (size_t i = 0; i < count; i++) at = lines[at * (LINE / sizeof *lines)];
    clock_gettime(CLOCK_MONOTONIC, &end);
    last = at;
    (void)last;
    return ((end.tv_sec - begin.tv_sec) * 1e9 + (end.tv_nsec - begin.tv_nsec)) / count;
}

/* Throw `bytes` from `start` on out of all caches of all cores. */
__attribute__((target("clflushopt"))) void throw_out(const char *start, size_t bytes) {
    for (size_t i = 0; i < bytes; i += LINE) _mm_clflushopt((void *)(start + i));
    _mm_sfence();
}
