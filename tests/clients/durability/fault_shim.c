/* Faults between a server and the system: loaded before libc (LD_PRELOAD), it replaces chosen calls on chosen files.
 *
 *   server ── pwrite, fdatasync, ... ──> shim ── rule matches? ── no ──> libc
 *                                         ^          └─ yes: an error, half a write, or a failed sync that loses
 *   test ── rules in a shared file ───────┘                 the writes since the last one
 *
 * Rules are in the file that FAULT_CONTROL names, mapped by both sides; faults.py writes them, and its struct must be
 * this one. FAULT_FOLDER is the folder whose files are affected; calls on other files pass unchanged.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { RULES = 8 };
enum { OP_WRITE = 1, OP_SYNC = 2, OP_LENGTH = 4, OP_READ = 8, OP_OPEN = 16, OP_RENAME = 32 };
enum { KIND_LOG = 1, KIND_SPARE = 2, KIND_TREE = 4, KIND_FOLDER = 8, KIND_TEMPORARY = 16, KIND_OTHER = 32 };
/* What replaces the call: `error` is returned; before that half of the write is done (TORN), or the writes since
 * the file's last sync are undone (LOST). HALF returns half of the length and no error. */
enum { ERROR = 0, HALF = 1, TORN = 2, LOST = 3 };

struct rule {
    atomic_uint armed;
    uint32_t ops, kinds, action, error;
    uint32_t min_bytes;   /* of a read or write */
    atomic_uint skip;     /* matching calls that pass before the first that does not */
    atomic_uint times;    /* calls that do not pass, then the rule is spent; 0: all */
    atomic_uint seen;     /* matching calls */
    atomic_uint hits;     /* calls that did not pass */
};

static struct rule *rules;
static const char *folder;
static size_t folder_length;
static int tracks; /* Whether writes are noted, so that a failed sync can lose them. */

/* The previous contents of ranges written since the file's last sync, the newest first. */
struct undo {
    struct undo *next;
    dev_t device;
    ino_t inode;
    off_t offset;
    size_t length;
    unsigned char bytes[];
};
static struct undo *undone;
static pthread_mutex_t undo_lock = PTHREAD_MUTEX_INITIALIZER;

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void begin(void) {
    const char *control = getenv("FAULT_CONTROL");
    folder = getenv("FAULT_FOLDER");
    if (!control || !folder) return;
    folder_length = strlen(folder);
    tracks = getenv("FAULT_TRACKS") != NULL;
    int fd = open(control, O_RDWR | O_CLOEXEC);
    if (fd < 0) return;
    void *at = mmap(NULL, RULES * sizeof(struct rule), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at != MAP_FAILED) rules = at;
}

static uint32_t kind_of_path(const char *path) {
    if (strncmp(path, folder, folder_length) != 0 || (path[folder_length] != '/' && path[folder_length] != 0)) return 0;
    const char *name = strrchr(path, '/');
    name = name ? name + 1 : path;
    if (strstr(path, "/_tmp/")) return KIND_TEMPORARY;
    if (strncmp(name, "log.spare.", 10) == 0) return KIND_SPARE;
    if (strncmp(name, "log.", 4) == 0 && name[4] >= '0' && name[4] <= '9') return KIND_LOG;
    if (strcmp(name, "tree") == 0 || strcmp(name, "tree.new") == 0) return KIND_TREE;
    struct stat found;
    if (stat(path, &found) == 0 && S_ISDIR(found.st_mode)) return KIND_FOLDER;
    return KIND_OTHER;
}

static uint32_t kind_of(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0 || path[0] != '/') return 0;
    path[length] = 0;
    return kind_of_path(path);
}

static int is_armed(uint32_t op) {
    for (int i = 0; rules && i < RULES; i++)
        if (atomic_load(&rules[i].armed) && (rules[i].ops & op)) return 1;
    return 0;
}

/* The rule that applies to this call, if any. */
static struct rule *falls(uint32_t op, uint32_t kind, size_t bytes) {
    if (!kind) return NULL;
    for (int i = 0; i < RULES; i++) {
        struct rule *rule = &rules[i];
        if (!atomic_load(&rule->armed) || !(rule->ops & op) || !(rule->kinds & kind) || bytes < rule->min_bytes) continue;
        atomic_fetch_add(&rule->seen, 1);
        unsigned skip = atomic_load(&rule->skip);
        while (skip && !atomic_compare_exchange_weak(&rule->skip, &skip, skip - 1)) {}
        if (skip) continue;
        unsigned times = atomic_load(&rule->times);
        if (times) {
            while (times && !atomic_compare_exchange_weak(&rule->times, &times, times - 1)) {}
            if (!times) continue; /* another thread had the last one */
            if (times == 1) atomic_store(&rule->armed, 0);
        }
        atomic_fetch_add(&rule->hits, 1);
        return rule;
    }
    return NULL;
}

static void note(int fd, off_t offset, size_t length) {
    REAL(pread64);
    struct stat found;
    if (fstat(fd, &found) != 0 || !S_ISREG(found.st_mode)) return;
    struct undo *undo = calloc(1, sizeof *undo + length);
    if (!undo) abort();
    /* Beyond the end of the file a reader would see zeros. */
    if (real(fd, undo->bytes, length, offset) < 0) abort();
    undo->device = found.st_dev;
    undo->inode = found.st_ino;
    undo->offset = offset;
    undo->length = length;
    pthread_mutex_lock(&undo_lock);
    undo->next = undone;
    undone = undo;
    pthread_mutex_unlock(&undo_lock);
}

/* Discards a file's recorded contents; with `lose`, writes them back first. */
static void settle(int fd, int lose) {
    REAL(pwrite64);
    struct stat found;
    if (fstat(fd, &found) != 0) return;
    pthread_mutex_lock(&undo_lock);
    for (struct undo **at = &undone; *at;) {
        struct undo *undo = *at;
        if (undo->device != found.st_dev || undo->inode != found.st_ino) {
            at = &undo->next;
            continue;
        }
        if (lose && real(fd, undo->bytes, undo->length, undo->offset) < 0) abort();
        *at = undo->next;
        free(undo);
    }
    pthread_mutex_unlock(&undo_lock);
}

#define FAULTY_WRITE(name, params, args, half_args, length, noted_at) \
    ssize_t name params { \
        REAL(name); \
        if (!rules || (!is_armed(OP_WRITE) && !tracks)) return real args; \
        uint32_t kind = kind_of(fd); \
        struct rule *rule = is_armed(OP_WRITE) ? falls(OP_WRITE, kind, length) : NULL; \
        if (tracks && kind && noted_at >= 0 && (!rule || rule->action != ERROR)) note(fd, noted_at, length); \
        if (!rule) return real args; \
        if (rule->action == HALF) return length < 2 ? real args : real half_args; \
        if (rule->action == TORN && length >= 2 && real half_args < 0) abort(); \
        errno = rule->error; \
        return -1; \
    }

FAULTY_WRITE(pwrite64, (int fd, const void *from, size_t size, off64_t at), (fd, from, size, at), (fd, from, size / 2, at), size, at)
FAULTY_WRITE(pwrite, (int fd, const void *from, size_t size, off_t at), (fd, from, size, at), (fd, from, size / 2, at), size, at)
FAULTY_WRITE(write, (int fd, const void *from, size_t size), (fd, from, size), (fd, from, size / 2), size, (off_t)-1)

static size_t total(const struct iovec *parts, int count) {
    size_t sum = 0;
    for (int i = 0; i < count; i++) sum += parts[i].iov_len;
    return sum;
}

/* Half of a vector is half of its first part. */
#define FAULTY_VECTOR(name, params, args, write_half) \
    ssize_t name params { \
        REAL(name); \
        if (!rules || !is_armed(OP_WRITE)) return real args; \
        struct rule *rule = falls(OP_WRITE, kind_of(fd), total(parts, count)); \
        if (!rule) return real args; \
        struct iovec half = count > 0 ? parts[0] : (struct iovec){0}; \
        half.iov_len = (half.iov_len + 1) / 2; \
        if (rule->action == HALF) return write_half; \
        if (rule->action == TORN && write_half < 0) abort(); \
        errno = rule->error; \
        return -1; \
    }

FAULTY_VECTOR(writev, (int fd, const struct iovec *parts, int count), (fd, parts, count), real(fd, &half, 1))
FAULTY_VECTOR(pwritev, (int fd, const struct iovec *parts, int count, off_t at), (fd, parts, count, at), real(fd, &half, 1, at))
FAULTY_VECTOR(pwritev64, (int fd, const struct iovec *parts, int count, off64_t at), (fd, parts, count, at), real(fd, &half, 1, at))

#define FAULTY_READ(name, params, args, half_args, length) \
    ssize_t name params { \
        REAL(name); \
        if (!rules || !is_armed(OP_READ)) return real args; \
        struct rule *rule = falls(OP_READ, kind_of(fd), length); \
        if (!rule) return real args; \
        if (rule->action == HALF) return length < 2 ? real args : real half_args; \
        errno = rule->error; \
        return -1; \
    }

FAULTY_READ(pread64, (int fd, void *to, size_t size, off64_t at), (fd, to, size, at), (fd, to, size / 2, at), size)
FAULTY_READ(pread, (int fd, void *to, size_t size, off_t at), (fd, to, size, at), (fd, to, size / 2, at), size)
FAULTY_READ(read, (int fd, void *to, size_t size), (fd, to, size), (fd, to, size / 2), size)

#define FAULTY_SYNC(name) \
    int name(int fd) { \
        REAL(name); \
        if (!rules || (!is_armed(OP_SYNC) && !tracks)) return real(fd); \
        uint32_t kind = kind_of(fd); \
        struct rule *rule = is_armed(OP_SYNC) ? falls(OP_SYNC, kind, 0) : NULL; \
        if (rule) { \
            if (rule->action == LOST) settle(fd, 1); \
            errno = rule->error; \
            return -1; \
        } \
        int done = real(fd); \
        if (tracks && kind && done == 0) settle(fd, 0); \
        return done; \
    }

FAULTY_SYNC(fdatasync)
FAULTY_SYNC(fsync)

#define FAULTY_PLAIN(type, name, params, args, op, kind) \
    type name params { \
        REAL(name); \
        if (!rules || !is_armed(op)) return real args; \
        struct rule *rule = falls(op, kind, 0); \
        if (!rule) return real args; \
        errno = rule->error; \
        return -1; \
    }

FAULTY_PLAIN(int, ftruncate, (int fd, off_t length), (fd, length), OP_LENGTH, kind_of(fd))
FAULTY_PLAIN(int, ftruncate64, (int fd, off64_t length), (fd, length), OP_LENGTH, kind_of(fd))
FAULTY_PLAIN(int, fallocate, (int fd, int mode, off_t at, off_t length), (fd, mode, at, length), OP_LENGTH, kind_of(fd))
FAULTY_PLAIN(int, fallocate64, (int fd, int mode, off64_t at, off64_t length), (fd, mode, at, length), OP_LENGTH, kind_of(fd))
FAULTY_PLAIN(int, rename, (const char *from, const char *to), (from, to), OP_RENAME, kind_of_path(to))

/* Only the creation of a file can be refused here. */
#define FAULTY_OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(name); \
        __builtin_va_list more; \
        __builtin_va_start(more, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? __builtin_va_arg(more, mode_t) : 0; \
        __builtin_va_end(more); \
        if (rules && (flags & O_CREAT) && is_armed(OP_OPEN)) { \
            struct rule *rule = falls(OP_OPEN, kind_of_path(path), 0); \
            if (rule) { \
                errno = rule->error; \
                return -1; \
            } \
        } \
        return real(path, flags, mode); \
    }

FAULTY_OPEN(open)
FAULTY_OPEN(open64)
