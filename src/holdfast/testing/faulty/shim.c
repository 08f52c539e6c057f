/* A library that is loaded before the C library and has calls on files fail, by the plan in a control file.

   The control file (HOLDFAST_FAULTS) is mapped by every process that has the library: counters of calls are shared, so
   "the third rename" is the third of all processes, and whoever runs the test arms and disarms all of them at once.
   Written by shim.py; 64-bit little-endian words:

       0        "HFFAULTS"
       1        1 while armed
       2        number of faults
       8 ..     calls so far, by kind
       64 ..    faults: kind, number, code (0: short), times, after
       1024 ..  (bytes 8192 ..) directories, each ended by a zero, then an empty one

   Each failure is appended to <control file>.log as a line: process, kind, code, path. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OPEN, CREATE, READ, WRITE, SYNC, TRUNCATE, MAP, STAT, LIST, MKDIR, REMOVE, RENAME, LINK, LOCK, KINDS };
static const char *const names[KINDS] = {"open", "create", "read", "write", "sync", "truncate", "map",
                                         "stat", "list", "mkdir", "remove", "rename", "link", "lock"};

typedef struct { int64_t kind, number, code, times, after; } fault;

static volatile int64_t *control;
static int record = -1;
#define FILES 65536
static char *paths[FILES]; /* open file -> its path, if it is below one of the directories */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("HOLDFAST_FAULTS");
    if (!path) return;
    int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
    if (file < 0) return;
    void *held = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    syscall(SYS_close, file);
    if (held == MAP_FAILED || memcmp(held, "HFFAULTS", 8)) return;
    char log[PATH_MAX];
    snprintf(log, sizeof log, "%s.log", path);
    record = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    control = held;
}

static int below(const char *path) {
    for (const char *one = (const char *)control + 8192; *one; one += strlen(one) + 1) {
        size_t size = strlen(one);
        if (!strncmp(path, one, size) && (path[size] == '/' || path[size] == 0)) return 1;
    }
    return 0;
}

/* The full path in `full` if it is below one of the directories, else NULL. */
static const char *concerned(int directory, const char *path, char *full) {
    if (!control || !path) return NULL;
    if (path[0] == '/') {
        if (strlen(path) >= PATH_MAX) return NULL;
        strcpy(full, path);
    } else {
        const char *base = NULL;
        if (directory == AT_FDCWD) {
            if (syscall(SYS_getcwd, full, PATH_MAX) < 0) return NULL;
            base = full;
        } else if (directory >= 0 && directory < FILES) {
            pthread_mutex_lock(&lock);
            if (paths[directory]) { strcpy(full, paths[directory]); base = full; }
            pthread_mutex_unlock(&lock);
        }
        if (!base || strlen(full) + strlen(path) + 2 >= PATH_MAX) return NULL;
        if (*path) { strcat(full, "/"); strcat(full, path); }
    }
    return below(full) ? full : NULL;
}

static int is_open(int file, char *full) {
    if (!control || file < 0 || file >= FILES || !paths[file]) return 0;
    pthread_mutex_lock(&lock);
    int there = paths[file] != NULL;
    if (there) strcpy(full, paths[file]);
    pthread_mutex_unlock(&lock);
    return there;
}

static void remember(int file, const char *path) {
    if (!control || file < 0 || file >= FILES) return;
    pthread_mutex_lock(&lock);
    free(paths[file]);
    paths[file] = path ? strdup(path) : NULL;
    pthread_mutex_unlock(&lock);
}

/* Counts a call; 1 if it fails, with what in `met`. */
static int fate(int kind, const char *path, fault *met) {
    if (!control || !control[1]) return 0;
    int64_t number = __atomic_add_fetch(&control[8 + kind], 1, __ATOMIC_SEQ_CST);
    for (int64_t i = 0; i < control[2]; i++) {
        fault *one = (fault *)(control + 64 + 5 * i);
        if (one->kind == kind && one->number <= number && number - one->number < one->times) {
            *met = *one;
            char line[PATH_MAX + 64];
            int size = snprintf(line, sizeof line, "%d %s %d %s\n", (int)getpid(), names[kind], (int)met->code, path);
            if (record >= 0) syscall(SYS_write, record, line, size);
            return 1;
        }
    }
    return 0;
}

#define FAIL(value) do { errno = (int)met.code; return (value); } while (0)
#define PATHED(kind, directory, path, failed, call) \
    char full[PATH_MAX]; fault met; int saved = 0; (void)saved; \
    const char *there = concerned(directory, path, full); \
    if (there && fate(kind, there, &met)) { if (met.after) (void)!(call); FAIL(failed); } \
    return call

/* -- opening ----------------------------------------------------------------------------------------------------- */

static int opened(int directory, const char *path, int flags, mode_t mode) {
    char full[PATH_MAX]; fault met;
    const char *there = concerned(directory, path, full);
    int kind = flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC | O_APPEND) ? CREATE : OPEN;
    if (there && fate(kind, there, &met)) FAIL(-1);
    int file = (int)syscall(SYS_openat, directory, path, flags, mode);
    if (file >= 0) remember(file, there);
    return file;
}

#define OPENING(name, first, directory) \
    int name first { \
        mode_t mode = 0; \
        if (flags & (O_CREAT | O_TMPFILE)) { va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); } \
        return opened(directory, path, flags, mode); \
    }
OPENING(open, (const char *path, int flags, ...), AT_FDCWD)
OPENING(open64, (const char *path, int flags, ...), AT_FDCWD)
OPENING(openat, (int directory, const char *path, int flags, ...), directory)
OPENING(openat64, (int directory, const char *path, int flags, ...), directory)
int creat(const char *path, mode_t mode) { return opened(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return opened(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

#define STREAM(name) \
    FILE *name(const char *path, const char *mode) { \
        REAL(name); \
        char full[PATH_MAX]; fault met; \
        const char *there = concerned(AT_FDCWD, path, full); \
        if (there && fate(mode[0] == 'r' && !strchr(mode, '+') ? OPEN : CREATE, there, &met)) FAIL(NULL); \
        FILE *file = real(path, mode); \
        if (file) remember(fileno(file), there); \
        return file; \
    }
STREAM(fopen)
STREAM(fopen64)

int close(int file) {
    REAL(close);
    if (file >= 0 && file < FILES && paths[file]) remember(file, NULL);
    return real(file);
}

/* -- open files -------------------------------------------------------------------------------------------------- */

#define MOVING(type, name, kind, arguments, data, given, less) \
    type name arguments { \
        REAL(name); \
        char full[PATH_MAX]; fault met; \
        if (is_open(file, full) && fate(kind, full, &met)) { \
            if (met.code) FAIL(-1); \
            return real less; \
        } \
        return real given; \
    }
#define HALF (size > 1 ? size / 2 : size)
MOVING(ssize_t, read, READ, (int file, void *data, size_t size), data, (file, data, size), (file, data, HALF))
MOVING(ssize_t, write, WRITE, (int file, const void *data, size_t size), data, (file, data, size), (file, data, HALF))
MOVING(ssize_t, pread, READ, (int file, void *data, size_t size, off_t at), data, (file, data, size, at), (file, data, HALF, at))
MOVING(ssize_t, pwrite, WRITE, (int file, const void *data, size_t size, off_t at), data, (file, data, size, at), (file, data, HALF, at))
MOVING(ssize_t, pread64, READ, (int file, void *data, size_t size, off64_t at), data, (file, data, size, at), (file, data, HALF, at))
MOVING(ssize_t, pwrite64, WRITE, (int file, const void *data, size_t size, off64_t at), data, (file, data, size, at), (file, data, HALF, at))
MOVING(ssize_t, readv, READ, (int file, const struct iovec *parts, int count), parts, (file, parts, count), (file, parts, count > 1 ? 1 : count))
MOVING(ssize_t, writev, WRITE, (int file, const struct iovec *parts, int count), parts, (file, parts, count), (file, parts, count > 1 ? 1 : count))

#define HELD(name, kind, arguments, given) \
    int name arguments { \
        REAL(name); \
        char full[PATH_MAX]; fault met; \
        if (is_open(file, full) && fate(kind, full, &met)) FAIL(-1); \
        return real given; \
    }
HELD(fsync, SYNC, (int file), (file))
HELD(fdatasync, SYNC, (int file), (file))
HELD(ftruncate, TRUNCATE, (int file, off_t size), (file, size))
HELD(ftruncate64, TRUNCATE, (int file, off64_t size), (file, size))
HELD(flock, LOCK, (int file, int operation), (file, operation))

#define MAPPING(name, type) \
    void *name(void *at, size_t size, int protection, int flags, int file, type from) { \
        char full[PATH_MAX]; fault met; \
        if (file >= 0 && !(flags & MAP_ANONYMOUS) && is_open(file, full) && fate(MAP, full, &met)) FAIL(MAP_FAILED); \
        return (void *)syscall(SYS_mmap, at, size, protection, flags, file, from); \
    }
MAPPING(mmap, off_t)
MAPPING(mmap64, off64_t)

/* -- paths ------------------------------------------------------------------------------------------------------- */

int rename(const char *path, const char *to) { REAL(rename); PATHED(RENAME, AT_FDCWD, to, -1, real(path, to)); }
int renameat(int from, const char *path, int into, const char *to) { REAL(renameat); PATHED(RENAME, into, to, -1, real(from, path, into, to)); }
int renameat2(int from, const char *path, int into, const char *to, unsigned flags) { REAL(renameat2); PATHED(RENAME, into, to, -1, real(from, path, into, to, flags)); }
int link(const char *path, const char *to) { REAL(link); PATHED(LINK, AT_FDCWD, to, -1, real(path, to)); }
int linkat(int from, const char *path, int into, const char *to, int flags) { REAL(linkat); PATHED(LINK, into, to, -1, real(from, path, into, to, flags)); }
int symlink(const char *path, const char *to) { REAL(symlink); PATHED(LINK, AT_FDCWD, to, -1, real(path, to)); }
int unlink(const char *path) { REAL(unlink); PATHED(REMOVE, AT_FDCWD, path, -1, real(path)); }
int unlinkat(int from, const char *path, int flags) { REAL(unlinkat); PATHED(REMOVE, from, path, -1, real(from, path, flags)); }
int remove(const char *path) { REAL(remove); PATHED(REMOVE, AT_FDCWD, path, -1, real(path)); }
int rmdir(const char *path) { REAL(rmdir); PATHED(REMOVE, AT_FDCWD, path, -1, real(path)); }
int mkdir(const char *path, mode_t mode) { REAL(mkdir); PATHED(MKDIR, AT_FDCWD, path, -1, real(path, mode)); }
int mkdirat(int from, const char *path, mode_t mode) { REAL(mkdirat); PATHED(MKDIR, from, path, -1, real(from, path, mode)); }
int truncate(const char *path, off_t size) { REAL(truncate); PATHED(TRUNCATE, AT_FDCWD, path, -1, real(path, size)); }
int access(const char *path, int mode) { REAL(access); PATHED(STAT, AT_FDCWD, path, -1, real(path, mode)); }
int faccessat(int from, const char *path, int mode, int flags) { REAL(faccessat); PATHED(STAT, from, path, -1, real(from, path, mode, flags)); }
int stat(const char *path, struct stat *found) { REAL(stat); PATHED(STAT, AT_FDCWD, path, -1, real(path, found)); }
int lstat(const char *path, struct stat *found) { REAL(lstat); PATHED(STAT, AT_FDCWD, path, -1, real(path, found)); }
int fstatat(int from, const char *path, struct stat *found, int flags) { REAL(fstatat); PATHED(STAT, from, path, -1, real(from, path, found, flags)); }
int stat64(const char *path, struct stat64 *found) { REAL(stat64); PATHED(STAT, AT_FDCWD, path, -1, real(path, found)); }
int lstat64(const char *path, struct stat64 *found) { REAL(lstat64); PATHED(STAT, AT_FDCWD, path, -1, real(path, found)); }
int fstatat64(int from, const char *path, struct stat64 *found, int flags) { REAL(fstatat64); PATHED(STAT, from, path, -1, real(from, path, found, flags)); }
int statx(int from, const char *path, int flags, unsigned mask, struct statx *found) { REAL(statx); PATHED(STAT, from, path, -1, real(from, path, flags, mask, found)); }

DIR *opendir(const char *path) { REAL(opendir); PATHED(LIST, AT_FDCWD, path, NULL, real(path)); }
DIR *fdopendir(int file) {
    REAL(fdopendir);
    char full[PATH_MAX]; fault met;
    if (is_open(file, full) && fate(LIST, full, &met)) FAIL(NULL);
    return real(file);
}
