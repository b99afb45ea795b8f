/* The front of the single file: unpacks the archive behind it, once, and becomes the program.
 *
 * Behind this executable are a tar archive, compressed by zstd, and a trailer of TRAILER_BYTES that says where it
 * begins and what its hash is. A copy of it is a folder named after the hash, in the first of these places that will do:
 *
 *     $SCALER_CACHE_HOME    $XDG_CACHE_HOME/scaler    $HOME/.cache/scaler    $TMPDIR/scaler-UID    /tmp/scaler-UID
 *
 * Rules:
 * - With a copy in place, a start is a few system calls: read the trailer, look at the copy, execve.
 * - A copy appears as a whole, by a rename. What is half-written has another name; what is damaged is unpacked again.
 * - Nothing runs from a folder that others may write to, or that is another user's but root's: a copy of root's serves
 *   all users.
 * - Only the cache's folder of this hash, and what was left half-written of it, is ever deleted.
 * - The program gets the arguments and the environment of the caller, except for PYPY_GC_NURSERY, which is added where it
 *   is unset, and the encoding: see use_utf8.
 * - Nothing of the host's C library is needed: the copy has its own, and the loader for it, which is what is executed.
 */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <locale.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>
#include <zstd.h>

#ifndef NURSERY
#error "compile with -DNURSERY='\"16M\"': see build.py"
#endif

#define DEFAULT_PROGRAM "scaler_scheduler"
#define TRAILER_BYTES 512
#define TAR_BLOCK_BYTES 512
#define LOCK_WAIT_SECONDS 60
#define LOCK_POLL_NANOSECONDS (20 * 1000 * 1000)
#define OTHERS_MAY_WRITE (S_IWGRP | S_IWOTH)
#define COPY_MODE 0755 /* it has no secrets, and where root has made it, others use it */

static const char *program = DEFAULT_PROGRAM; /* also the name that messages begin with */

static struct {
    int file;                   /* this executable, open for reading */
    unsigned long long offset;  /* where the archive begins */
    unsigned long long size;    /* its length, compressed */
    unsigned long long unpacked; /* bytes that a copy takes */
    char hash[65];
    char largest[200];          /* a file of the archive whose size is looked at on each start */
    unsigned long long largest_size;
} archive;

static char complaints[4096]; /* why no place would do, a line each */

static void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s: ", program);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

/* A new string, which is never freed: this process is another program soon. */
static char *text(const char *format, ...) {
    char *result;
    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(&result, format, arguments) < 0)
        fail("out of memory");
    va_end(arguments);
    return result;
}

static void complain(const char *place, const char *reason) {
    size_t used = strlen(complaints);
    snprintf(complaints + used, sizeof complaints - used, "\n  %s: %s", place, reason);
}

/* --- The archive ------------------------------------------------------------------------------------------------- */

static void find_archive(void) {
    char trailer[TRAILER_BYTES + 1] = "";
    struct stat status;
    const char *self = "/proc/self/exe";
    archive.file = open(self, O_RDONLY | O_CLOEXEC);
    if (archive.file < 0) {
        self = (const char *)getauxval(AT_EXECFN);
        archive.file = open(self, O_RDONLY | O_CLOEXEC);
    }
    if (archive.file < 0 || fstat(archive.file, &status) < 0)
        fail("cannot read the file of this program, %s: %s", self, strerror(errno));
    if (pread(archive.file, trailer, TRAILER_BYTES, status.st_size - TRAILER_BYTES) != TRAILER_BYTES ||
        sscanf(trailer,
               "scaler archive 1\noffset %llu\nsize %llu\nunpacked %llu\nhash %64[0-9a-f]\nlargest %llu %199s\n",
               &archive.offset, &archive.size, &archive.unpacked, archive.hash, &archive.largest_size,
               archive.largest) != 6 ||
        archive.offset + archive.size + TRAILER_BYTES != (unsigned long long)status.st_size)
        fail("the file of this program is incomplete; download or copy it again");
}

static ZSTD_DStream *decoder;
static ZSTD_inBuffer compressed; /* that the decoder has not taken */
static bool frame_is_whole; /* what was decoded last ended a frame, and its checksum was right */
static unsigned long long archive_read; /* compressed bytes read so far */

/* Read more of the archive if there is nothing to decode; false at its end. */
static bool refill(void) {
    static char buffer[1 << 17];
    if (compressed.pos < compressed.size)
        return true;
    size_t wanted = sizeof buffer;
    if (wanted > archive.size - archive_read)
        wanted = archive.size - archive_read;
    ssize_t got = wanted ? pread(archive.file, buffer, wanted, archive.offset + archive_read) : 0;
    if (got <= 0)
        return false;
    archive_read += got;
    compressed = (ZSTD_inBuffer){buffer, got, 0};
    return true;
}

/* Fill `target` with the next bytes of the tar archive; false when there are none or they are damaged. */
static bool take(void *target, size_t length) {
    ZSTD_outBuffer wanted = {target, length, 0};
    while (wanted.pos < wanted.size) {
        /* The decoder may hold decoded bytes when all compressed ones are read. */
        bool has_more = refill();
        size_t before = wanted.pos;
        size_t result = ZSTD_decompressStream(decoder, &wanted, &compressed);
        if (ZSTD_isError(result) || (!has_more && wanted.pos == before))
            return false;
        frame_is_whole = result == 0;
    }
    return true;
}

/* Whether the decoder finds nothing wrong with the end of the archive, where its last checksum is. */
static bool ends_well(void) {
    char rest[TAR_BLOCK_BYTES];
    while (take(rest, sizeof rest))
        ;
    return frame_is_whole && archive_read == archive.size && compressed.pos == compressed.size;
}

/* --- Unpacking --------------------------------------------------------------------------------------------------- */

static bool write_file(int folder, const char *name, mode_t mode, unsigned long long size) {
    static char buffer[1 << 18];
    int file = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (file < 0)
        return false;
    while (size > 0) {
        size_t length = size < sizeof buffer ? size : sizeof buffer;
        /* Files begin at a multiple of the block. */
        if (!take(buffer, (length + TAR_BLOCK_BYTES - 1) / TAR_BLOCK_BYTES * TAR_BLOCK_BYTES)) {
            errno = EILSEQ;
            break;
        }
        size_t written = 0;
        while (written < length) {
            ssize_t result = write(file, buffer + written, length - written);
            if (result < 0 && errno != EINTR)
                break;
            written += result > 0 ? result : 0;
        }
        if (written < length)
            break;
        size -= length;
        /* The disk works while the rest is decoded; make_copy waits for it. */
        sync_file_range(file, 0, 0, SYNC_FILE_RANGE_WRITE);
    }
    int reason = errno;
    if (close(file) < 0)
        return false;
    errno = reason;
    return size == 0;
}

/* Unpack everything into the folder; errno says why not, EILSEQ that the archive is damaged. */
static bool unpack_into(int folder) {
    static char header[TAR_BLOCK_BYTES]; /* of "ustar": name, mode and size in octal, kind, target of a link */
    archive_read = 0;
    compressed = (ZSTD_inBuffer){NULL, 0, 0};
    frame_is_whole = false;
    if (!(decoder = ZSTD_createDStream())) {
        errno = ENOMEM;
        return false;
    }
    for (;;) {
        char name[257], target[101];
        if (!take(header, sizeof header) || (header[0] != '\0' && memcmp(header + 257, "ustar", 5) != 0)) {
            errno = EILSEQ;
            return false;
        }
        if (header[0] == '\0') { /* the end */
            bool well = ends_well();
            ZSTD_freeDStream(decoder);
            errno = EILSEQ;
            return well;
        }
        snprintf(name, sizeof name, "%.155s%s%.100s", header + 345, header[345] ? "/" : "", header);
        snprintf(target, sizeof target, "%.100s", header + 157);
        mode_t mode = strtoul(header + 100, NULL, 8);
        bool done = header[156] == '5'   ? mkdirat(folder, name, mode) == 0
                    : header[156] == '2' ? symlinkat(target, folder, name) == 0
                                         : write_file(folder, name, mode, strtoull(header + 124, NULL, 8));
        if (!done) {
            int reason = errno;
            ZSTD_freeDStream(decoder);
            errno = reason;
            return false;
        }
    }
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *position) {
    (void)status, (void)kind, (void)position;
    return remove(path);
}

static void remove_tree(const char *path) { nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS); }

/* Remove what starts that were killed while unpacking have left. Only for who holds the lock: others may be at work. */
static void remove_leftovers(const char *place) {
    char *prefix = text("%s.", archive.hash);
    DIR *entries = opendir(place);
    for (struct dirent *entry; entries && (entry = readdir(entries));)
        if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0)
            remove_tree(text("%s/%s", place, entry->d_name));
    if (entries)
        closedir(entries);
}

/* Wait for the lock on a folder, so that of many starts one unpacks. Where locks do not work, the rename decides. */
static bool lock(int folder) {
    const struct timespec pause = {0, LOCK_POLL_NANOSECONDS};
    for (long long waited = 0; waited < LOCK_WAIT_SECONDS * 1000000000LL; waited += LOCK_POLL_NANOSECONDS) {
        if (flock(folder, LOCK_EX | LOCK_NB) == 0)
            return true;
        if (errno != EWOULDBLOCK && errno != EINTR)
            return false;
        nanosleep(&pause, NULL);
    }
    return false;
}

static bool is_filled(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && status.st_size > 0;
}

static bool is_whole(const char *copy) {
    struct stat status;
    return is_filled(text("%s/complete", copy)) && is_filled(text("%s/bin/pypy3", copy)) &&
           stat(text("%s/%s", copy, archive.largest), &status) == 0 &&
           (unsigned long long)status.st_size == archive.largest_size;
}

/* Make the copy in a place that is fit for it; errno says why not. The place's lock is held, or cannot be had. */
static bool make_copy(const char *copy) {
    char *half = text("%s.XXXXXX", copy);
    if (!mkdtemp(half))
        return false;
    fprintf(stderr, "%s: unpacking, this once, to %s: %llu MB\n", program, copy, archive.unpacked / 1000000);
    int folder = open(half, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* All is on disk before the copy gets its name, or a power cut could leave it there with holes. */
    bool done = folder >= 0 && unpack_into(folder) && fchmod(folder, COPY_MODE) == 0 && syncfs(folder) == 0;
    int reason = errno;
    if (done && access(copy, F_OK) == 0 && !is_whole(copy)) {
        char *damaged = text("%s.damaged.XXXXXX", copy);
        if (mkdtemp(damaged) && rename(copy, damaged) == 0)
            remove_tree(damaged);
    }
    if (done && rename(half, copy) < 0) {
        done = is_whole(copy); /* another start was faster */
        reason = errno;
        remove_tree(half);
    } else if (!done)
        remove_tree(half);
    if (folder >= 0)
        close(folder);
    if (!done && reason == EILSEQ)
        fail("the file of this program is damaged; download or copy it again");
    errno = reason;
    return done;
}

/* --- Places ------------------------------------------------------------------------------------------------------ */

static bool make_folders(char *path) {
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        bool done = mkdir(path, 0700) == 0 || errno == EEXIST || access(path, F_OK) == 0;
        *slash = '/';
        if (!done)
            return false;
    }
    return mkdir(path, 0700) == 0 || errno == EEXIST;
}

/* Whether a folder is there and the user's own. Root in the home of another, as by sudo, has no part in it. */
static bool has_home(const char *home) {
    struct stat status;
    if (stat(home, &status) < 0)
        complain(home, strerror(errno));
    else if (status.st_uid == geteuid())
        return true;
    else
        complain(home, "is another user's");
    return false;
}

/* Whether the loader and PyPy can work with the path of a folder. */
static bool is_nameable(const char *place) {
    if (strpbrk(place, "$:;"))
        complain(place, "its path has one of the characters $ : ; which mean something else to the loader");
    else if (setlocale(LC_CTYPE, "C.UTF-8") && mbstowcs(NULL, place, 0) == (size_t)-1)
        complain(place, "its path is not in UTF-8");
    else
        return true;
    return false;
}

/* Whether a folder is this user's, or root's, alone to write to, if it is there. `as_is`: a link will not do. */
static bool is_ours(const char *place, bool as_is) {
    struct stat status;
    if ((as_is ? lstat : stat)(place, &status) < 0)
        return true;
    if (S_ISDIR(status.st_mode) && (status.st_uid == geteuid() || status.st_uid == 0) &&
        !(status.st_mode & OTHERS_MAY_WRITE))
        return true;
    complain(place, S_ISDIR(status.st_mode) ? "is another user's, or others may write to it" : "is not a folder");
    return false;
}

/* PyPy decodes names of files as the locale says, and fails at others than ASCII where there is none, or only its name
 * and not its data, as in a small container. So it gets one, and the copy has the data. */
static void use_utf8(const char *copy) {
    const char *all = getenv("LC_ALL");
    setenv(all && *all ? "LC_ALL" : "LC_CTYPE", "C.UTF-8", 1);
    setenv("LOCPATH", text("%s/locale", copy), 1);
}

static void become_program(const char *copy, char **arguments) {
    const char *name = program;
    if (access(text("%s/programs/%s", copy, name), F_OK) < 0)
        name = DEFAULT_PROGRAM;
    char *binaries = text("%s/bin", copy);
    char *interpreter = text("%s/pypy3", binaries);
    /* A link to the loader, so that the system shows the program's name. */
    char *loader = text("%s/%s", binaries, name);
    char *first[] = {
        loader,
        /* The loader's: libraries are the copy's, whatever the host and LD_LIBRARY_PATH have. */
        "--inhibit-cache", "--library-path", binaries, "--argv0", interpreter, interpreter,
        /* PyPy's: neither the user's PYTHON... variables nor packages of the system; the copy stays as it is. */
        "-IBS", text("%s/programs/%s", copy, name),
    };
    const size_t first_count = sizeof first / sizeof *first;
    size_t count = 0;
    while (arguments[count])
        count++;
    char **all = calloc(first_count + count + 1, sizeof *all);
    if (!all)
        fail("out of memory");
    memcpy(all, first, sizeof first);
    for (size_t index = 1; index < count; index++)
        all[first_count + index - 1] = arguments[index];
    setenv("PYPY_GC_NURSERY", NURSERY, 0);
    use_utf8(copy);
    execv(loader, all);
    int reason = errno;
    if (reason == ENOENT || reason == ENOEXEC)
        unlink(text("%s/complete", copy)); /* the copy has lost it */
    errno = reason;
}

/* Run the program from the copy in this place, which is made if need be. Returns only if that cannot be. */
static void try_place(char *place, bool as_is, char **arguments) {
    char *copy = text("%s/%s", place, archive.hash);
    if (!is_nameable(place) || !is_ours(place, as_is))
        return;
    if (is_whole(copy))
        become_program(copy, arguments);
    mode_t usual = umask(022);
    struct statvfs system;
    int folder = -1;
    if (!make_folders(place) || (folder = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0 ||
        fstatvfs(folder, &system) < 0)
        complain(place, strerror(errno));
    else if (!is_ours(place, as_is))
        ;
    else if (system.f_flag & ST_NOEXEC)
        complain(place, "its file system is mounted noexec");
    else {
        bool locked = lock(folder);
        bool done = is_whole(copy);
        if (!done && locked)
            remove_leftovers(place);
        if (!done && system.f_bavail * (unsigned long long)system.f_frsize < archive.unpacked)
            errno = ENOSPC;
        else if (!done)
            done = make_copy(copy);
        if (!done)
            complain(place, strerror(errno));
        umask(usual);
        if (done) {
            become_program(copy, arguments);
            complain(place, strerror(errno));
        }
    }
    if (folder >= 0)
        close(folder);
    umask(usual);
}

/* The value of an environment variable that is an absolute path, else NULL. */
static const char *path_from(const char *variable) {
    const char *value = getenv(variable);
    return value && value[0] == '/' ? value : NULL;
}

int main(int count, char **arguments) {
    const char *folder;
    if (count > 0 && arguments[0]) {
        const char *slash = strrchr(arguments[0], '/');
        const char *name = slash ? slash + 1 : arguments[0];
        if (strncmp(name, "scaler_", 7) == 0)
            program = name;
    }
    find_archive();
    if ((folder = path_from("SCALER_CACHE_HOME")))
        try_place(text("%s", folder), false, arguments);
    if ((folder = path_from("XDG_CACHE_HOME")) && (access(folder, F_OK) < 0 || has_home(folder)))
        try_place(text("%s/scaler", folder), false, arguments);
    if ((folder = path_from("HOME")) && has_home(folder))
        try_place(text("%s/.cache/scaler", folder), false, arguments);
    if ((folder = path_from("TMPDIR")))
        try_place(text("%s/scaler-%u", folder, geteuid()), true, arguments);
    try_place(text("/tmp/scaler-%u", geteuid()), true, arguments);
    fail("there is no place to unpack to:%s\nSet SCALER_CACHE_HOME to a folder of yours with %llu MB of room, on a file"
         " system that programs may be run from.",
         complaints, archive.unpacked / 1000000 + 1);
}
