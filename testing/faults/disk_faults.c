/* Faults of the disk and the clock for one process, loaded by LD_PRELOAD: rules in a file that is mapped into memory.

The test writes rules there (disk.py, which has the same layout) and they hold from the next call on. Only
paths below the prefix of the table are touched. With `journal`, each sync tells which bytes of which inode would outlive
a loss of power. Left to others: which rule when, and what is left after the loss (disk.py). */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define MAGIC 0x53464c54u
#define RULES 16
#define BOOT_ID "/proc/sys/kernel/random/boot_id"
enum { WRITE = 1, SYNC = 2, READ = 4, OPEN = 8, RENAME = 16, TRUNCATE = 32, UNLINK = 64 };

struct rule {
    uint32_t enabled, ops;
    int32_t error;      /* errno, 0: the call is made */
    uint32_t after;     /* delay after the call, not before */
    uint64_t delay_us;
    int64_t left;       /* how often it still strikes, -1: always */
    uint64_t hits;
    char part[208];     /* the path contains this */
};
struct table {
    uint32_t magic, journal;
    int64_t clock_us;   /* added to the wall clock */
    char prefix[240];
    char boot_id[256];  /* read instead of the kernel's, unless empty */
    struct rule rules[RULES];
};

static struct table *table;
static int journal = -1;
static int (*real_fstat)(int, struct stat *);

#define REAL(name) ((__typeof__(&name))real(#name))
static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("DISK_FAULTS_TABLE");
    char told[PATH_MAX];
    int fd;
    if (!path || (fd = REAL(open)(path, O_RDWR | O_CLOEXEC)) < 0) return;
    void *at = mmap(NULL, sizeof(struct table), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    REAL(close)(fd);
    if (at == MAP_FAILED || ((struct table *)at)->magic != MAGIC) return;
    table = at;
    real_fstat = (int (*)(int, struct stat *))real("fstat");
    snprintf(told, sizeof told, "%s.journal", path);
    if (table->journal) journal = REAL(open)(told, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
}

static void wait_us(uint64_t us) {
    struct timespec left = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};
    while (us && nanosleep(&left, &left) && errno == EINTR) {}
}

static int below(const char *path) {
    size_t size = strlen(table->prefix);
    return size && !strncmp(path, table->prefix, size);
}

/* Delays, and returns an errno or 0; `later_us` is what is to be waited after the call. */
static int strike(uint32_t op, const char *path, uint64_t *later_us) {
    *later_us = 0;
    if (!below(path)) return 0;
    for (int i = 0; i < RULES; i++) {
        struct rule *rule = &table->rules[i];
        if (!rule->enabled || !(rule->ops & op) || !strstr(path, rule->part)) continue;
        if (__atomic_load_n(&rule->left, __ATOMIC_SEQ_CST) == 0) continue;
        if (rule->left > 0) __atomic_fetch_sub(&rule->left, 1, __ATOMIC_SEQ_CST);
        if (rule->after) *later_us = rule->delay_us;
        else wait_us(rule->delay_us);
        if (rule->error || !rule->after) __atomic_fetch_add(&rule->hits, 1, __ATOMIC_SEQ_CST);
        if (rule->error) return rule->error;
        if (rule->after) return -1 - i; /* counted when the call has been made */
    }
    return 0;
}

static int path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, PATH_MAX - 1);
    if (size <= 0) return 0;
    path[size] = 0;
    return 1;
}

static int by_fd(uint32_t op, int fd, uint64_t *later_us) {
    char path[PATH_MAX];
    *later_us = 0;
    return path_of(fd, path) ? strike(op, path, later_us) : 0;
}

static int is_on(void) {
    if (!table) return 0;
    for (int i = 0; i < RULES; i++)
        if (table->rules[i].enabled) return 1;
    return 0;
}

static void made(int struck, uint64_t later_us) {
    if (struck < 0) __atomic_fetch_add(&table->rules[-1 - struck].hits, 1, __ATOMIC_SEQ_CST);
    int kept = errno;
    wait_us(later_us);
    errno = kept;
}

#define GUARD(op, fd, result, call)                                            \
    uint64_t later_us;                                                         \
    int struck = is_on() ? by_fd(op, fd, &later_us) : 0;                       \
    if (struck > 0) { errno = struck; return -1; }                             \
    result got = call;                                                         \
    if (struck < 0) made(struck, later_us);                                    \
    return got;

ssize_t write(int fd, const void *data, size_t size) { GUARD(WRITE, fd, ssize_t, REAL(write)(fd, data, size)) }
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { GUARD(WRITE, fd, ssize_t, REAL(pwrite)(fd, data, size, at)) }
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) { GUARD(WRITE, fd, ssize_t, REAL(pwrite64)(fd, data, size, at)) }
ssize_t pwritev(int fd, const struct iovec *v, int n, off_t at) { GUARD(WRITE, fd, ssize_t, REAL(pwritev)(fd, v, n, at)) }
ssize_t pwritev64(int fd, const struct iovec *v, int n, off64_t at) { GUARD(WRITE, fd, ssize_t, REAL(pwritev64)(fd, v, n, at)) }
ssize_t pwritev2(int fd, const struct iovec *v, int n, off_t at, int f) { GUARD(WRITE, fd, ssize_t, REAL(pwritev2)(fd, v, n, at, f)) }
ssize_t pwritev64v2(int fd, const struct iovec *v, int n, off64_t at, int f) { GUARD(WRITE, fd, ssize_t, REAL(pwritev64v2)(fd, v, n, at, f)) }
ssize_t read(int fd, void *data, size_t size) { GUARD(READ, fd, ssize_t, REAL(read)(fd, data, size)) }
ssize_t pread(int fd, void *data, size_t size, off_t at) { GUARD(READ, fd, ssize_t, REAL(pread)(fd, data, size, at)) }
ssize_t pread64(int fd, void *data, size_t size, off64_t at) { GUARD(READ, fd, ssize_t, REAL(pread64)(fd, data, size, at)) }
ssize_t preadv(int fd, const struct iovec *v, int n, off_t at) { GUARD(READ, fd, ssize_t, REAL(preadv)(fd, v, n, at)) }
ssize_t preadv64(int fd, const struct iovec *v, int n, off64_t at) { GUARD(READ, fd, ssize_t, REAL(preadv64)(fd, v, n, at)) }
ssize_t preadv2(int fd, const struct iovec *v, int n, off_t at, int f) { GUARD(READ, fd, ssize_t, REAL(preadv2)(fd, v, n, at, f)) }
ssize_t preadv64v2(int fd, const struct iovec *v, int n, off64_t at, int f) { GUARD(READ, fd, ssize_t, REAL(preadv64v2)(fd, v, n, at, f)) }
int ftruncate(int fd, off_t size) { GUARD(TRUNCATE, fd, int, REAL(ftruncate)(fd, size)) }
int ftruncate64(int fd, off64_t size) { GUARD(TRUNCATE, fd, int, REAL(ftruncate64)(fd, size)) }

/* What would outlive a loss of power: "inode bytes", the last line about an inode counts. */
static void tell(ino_t inode, off_t size) {
    char line[64];
    int length = snprintf(line, sizeof line, "%llu %lld\n", (unsigned long long)inode, (long long)size);
    if (journal >= 0 && length > 0 && REAL(write)(journal, line, (size_t)length) < 0) abort();
}

static void lasting(int fd) {
    struct stat found;
    char path[PATH_MAX];
    if (journal >= 0 && path_of(fd, path) && below(path) && real_fstat(fd, &found) == 0 && S_ISREG(found.st_mode))
        tell(found.st_ino, found.st_size);
}

static void forgotten(const char *path) {
    struct stat found;
    if (journal >= 0 && below(path) && stat(path, &found) == 0 && S_ISREG(found.st_mode)) tell(found.st_ino, 0);
}

static int each(const char *path, const struct stat *found, int kind, struct FTW *where) {
    (void)path; (void)where;
    if (kind == FTW_F) tell(found->st_ino, found->st_size);
    return 0;
}

#define SYNCED(fd, call)                                                       \
    uint64_t later_us;                                                         \
    int struck = is_on() ? by_fd(SYNC, fd, &later_us) : 0;                     \
    if (struck > 0) { errno = struck; return -1; }                             \
    int got = call;                                                            \
    if (got == 0) lasting(fd);                                                 \
    if (struck < 0) made(struck, later_us);                                    \
    return got;

int fsync(int fd) { SYNCED(fd, REAL(fsync)(fd)) }
int fdatasync(int fd) { SYNCED(fd, REAL(fdatasync)(fd)) }
int syncfs(int fd) {
    uint64_t later_us;
    int struck = is_on() ? by_fd(SYNC, fd, &later_us) : 0;
    if (struck > 0) { errno = struck; return -1; }
    int got = REAL(syncfs)(fd);
    if (got == 0 && journal >= 0 && table->prefix[0]) nftw(table->prefix, each, 16, FTW_PHYS);
    if (struck < 0) made(struck, later_us);
    return got;
}

#define NAMED(op, path, call)                                                  \
    uint64_t later_us;                                                         \
    int struck = is_on() ? strike(op, path, &later_us) : 0;                    \
    if (struck > 0) { errno = struck; return -1; }                             \
    int got = call;                                                            \
    if (struck < 0) made(struck, later_us);                                    \
    return got;

static const char *shown(const char *path) {
    return table && table->boot_id[0] && !strcmp(path, BOOT_ID) ? table->boot_id : path;
}

#define MODE mode_t mode = 0; if (flags & (O_CREAT | O_TMPFILE)) { va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); }
int open(const char *path, int flags, ...) { MODE NAMED(OPEN, path, REAL(open)(shown(path), flags, mode)) }
int open64(const char *path, int flags, ...) { MODE NAMED(OPEN, path, REAL(open64)(shown(path), flags, mode)) }
int openat(int at, const char *path, int flags, ...) { MODE NAMED(OPEN, path, REAL(openat)(at, path, flags, mode)) }
int openat64(int at, const char *path, int flags, ...) { MODE NAMED(OPEN, path, REAL(openat64)(at, path, flags, mode)) }

int rename(const char *from, const char *to) {
    uint64_t later_us;
    int struck = is_on() ? strike(RENAME, to, &later_us) : 0;
    if (struck > 0) { errno = struck; return -1; }
    forgotten(to);
    int got = REAL(rename)(from, to);
    if (struck < 0) made(struck, later_us);
    return got;
}
int unlink(const char *path) {
    uint64_t later_us;
    int struck = is_on() ? strike(UNLINK, path, &later_us) : 0;
    if (struck > 0) { errno = struck; return -1; }
    forgotten(path);
    int got = REAL(unlink)(path);
    if (struck < 0) made(struck, later_us);
    return got;
}

int clock_gettime(clockid_t which, struct timespec *told) {
    int got = REAL(clock_gettime)(which, told);
    if (got == 0 && table && which == CLOCK_REALTIME && table->clock_us) {
        int64_t us = (int64_t)told->tv_sec * 1000000 + told->tv_nsec / 1000 + table->clock_us;
        told->tv_sec = us / 1000000;
        told->tv_nsec = (us % 1000000) * 1000;
    }
    return got;
}
