/* A wall clock that is ahead of the true one by as many seconds as a file says, right now.
 *
 * Preloaded into a program; the file, 8 bytes in the machine's order, is mapped, so a change takes
 * effect at once and looking costs nothing. Other clocks, and all sleeping, are left alone. (That
 * is what libfaketime 0.9.10 cannot do: with it clock_nanosleep, which is Python's time.sleep,
 * fails.)
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static int (*true_clock)(clockid_t, struct timespec *);
static const volatile int64_t *ahead_s;

__attribute__((constructor)) static void open_clock(void) {
    const char *path = getenv("CHAOS_CLOCK");
    true_clock = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *mapped = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *ahead_s, PROT_READ, MAP_SHARED, fd, 0);
    if (true_clock == NULL || mapped == MAP_FAILED) abort();
    ahead_s = mapped;
}

int clock_gettime(clockid_t id, struct timespec *now) {
    if (true_clock == NULL) open_clock(); /* another library's constructor came first */
    int result = true_clock(id, now);
    if (result == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) now->tv_sec += *ahead_s;
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *seconds) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (seconds != NULL) *seconds = now.tv_sec;
    return now.tv_sec;
}
