/* A disk that keeps a record of every change below a directory, in order, with its data, to replay it
   up to any point; and that fails on demand. Preloaded into a process.

   DISK_DIRECTORY  the directory
   DISK_RECORD     the file of the record, if there is to be one. Each event is a header and its
                   payload; files are identified by their inode
   DISK_FAULT      a file that says, while it exists, what fails: "sync" (EIO from fsync and fdatasync;
                   "sync N": only from the one after the first N), "full" (ENOSPC from writes and
                   creation), "read-only" (EROFS from them, and from renames and removals),
                   "abort N" (as "sync N", and with the first sync that fails "read-only") or
                   "lying" (syncs do nothing)

     header   kind (uint8: w write, t truncate, s sync, f failed sync, c create or open, m mkdir, r rename,
              l link, u unlink, d rmdir), 7 bytes of padding, inode, offset or size, the lengths of the two
              parts of the payload, and the nanoseconds of the monotonic clock (uint64 each)
     payload  w: the data; c, m, u, d: the path; r, l: the old and the new path */

#define _GNU_SOURCE
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
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define ORIGINAL(name, type)                           \
  static __typeof__(type) original; \
  if (!original) original = (type)dlsym(RTLD_NEXT, name)

struct header {
  uint8_t kind, padding[7];
  uint64_t inode, place, first, second, nanoseconds;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int record_file(void) {
  static int file = -1;
  const char *path = getenv("DISK_RECORD");
  if (file < 0 && path) {
    ORIGINAL("open64", int (*)(const char *, int, ...));
    file = original(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  }
  return file;
}

static void record(char kind, uint64_t inode, uint64_t place, const void *first, size_t first_size,
                   const void *second, size_t second_size) {
  struct timespec now;
  if (record_file() < 0) return;
  clock_gettime(CLOCK_MONOTONIC, &now);
  uint64_t nanoseconds = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
  struct header header = {(uint8_t)kind, {0}, inode, place, first_size, second_size, nanoseconds};
  struct iovec parts[3] = {{&header, sizeof header},
                           {(void *)first, first_size},
                           {(void *)second, second_size}};
  int kept = errno;
  if (writev(record_file(), parts, 3) < 0) abort();
  errno = kept;
}

static int below(const char *path) {
  const char *directory = getenv("DISK_DIRECTORY");
  return directory && strncmp(path, directory, strlen(directory)) == 0;
}

static int path_of(int file, char *path) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  ssize_t length = readlink(link, path, PATH_MAX - 1);
  path[length < 0 ? 0 : length] = 0;
  return length > 0 && below(path);
}

/* The inode of an open file below the directory, or 0. */
static uint64_t inode_of(int file) {
  char path[PATH_MAX];
  struct stat status;
  if (!path_of(file, path) || fstat(file, &status)) return 0;
  return S_ISREG(status.st_mode) || S_ISDIR(status.st_mode) ? status.st_ino : 0;
}

/* The fault of the disk: the first letter of what the file says, or 0; *number is the number behind
   it, or -1. */
static char fault(int *number) {
  const char *path = getenv("DISK_FAULT");
  char text[16] = "";
  *number = -1;
  if (!path) return 0;
  ORIGINAL("open64", int (*)(const char *, int, ...));
  int file = original(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  if (read(file, text, sizeof text - 1) < 0) text[0] = 0;
  close(file);
  char *space = strchr(text, ' ');
  if (space) *number = atoi(space);
  return text[0];
}

static int aborted;

/* Whether a change is refused. adds: it needs space. */
static int refused(int adds) {
  int number, kept = errno;
  char kind = fault(&number);
  if (kind != 'a') aborted = 0;
  int full = adds && kind == 'f', frozen = kind == 'r' || aborted;
  errno = full ? ENOSPC : frozen ? EROFS : kept;
  return full || frozen;
}

static int synced(int file, int (*original)(int)) {
  static int passed;
  int number;
  uint64_t inode = inode_of(file);
  if (!inode) return original(file);
  pthread_mutex_lock(&lock);
  char kind = fault(&number);
  int counts = kind == 's' || kind == 'a';
  if (!counts) passed = 0;
  int fails = counts && (number < 0 || passed++ == number);
  aborted = kind == 'a' && (aborted || fails);
  fails |= aborted;
  int result = fails ? -1 : kind == 'l' ? 0 : original(file);
  if (kind != 'l') record(result == 0 ? 's' : 'f', inode, 0, NULL, 0, NULL, 0);
  if (fails) errno = EIO;
  pthread_mutex_unlock(&lock);
  return result;
}

int fsync(int file) {
  ORIGINAL("fsync", int (*)(int));
  return synced(file, original);
}

int fdatasync(int file) {
  ORIGINAL("fdatasync", int (*)(int));
  return synced(file, original);
}

ssize_t write(int file, const void *data, size_t size) {
  ORIGINAL("write", ssize_t(*)(int, const void *, size_t));
  uint64_t inode = file > 2 ? inode_of(file) : 0;
  if (!inode) return original(file, data, size);
  if (refused(1)) return -1;
  pthread_mutex_lock(&lock);
  off_t place = lseek(file, 0, SEEK_CUR);
  ssize_t result = original(file, data, size);
  if (result > 0) record('w', inode, (uint64_t)place, data, (size_t)result, NULL, 0);
  pthread_mutex_unlock(&lock);
  return result;
}

ssize_t pwrite64(int file, const void *data, size_t size, off_t place) {
  ORIGINAL("pwrite64", ssize_t(*)(int, const void *, size_t, off_t));
  uint64_t inode = inode_of(file);
  if (!inode) return original(file, data, size, place);
  if (refused(1)) return -1;
  pthread_mutex_lock(&lock);
  ssize_t result = original(file, data, size, place);
  if (result > 0) record('w', inode, (uint64_t)place, data, (size_t)result, NULL, 0);
  pthread_mutex_unlock(&lock);
  return result;
}

ssize_t pwrite(int file, const void *data, size_t size, off_t place) {
  return pwrite64(file, data, size, place);
}

int ftruncate64(int file, off_t size) {
  ORIGINAL("ftruncate64", int (*)(int, off_t));
  uint64_t inode = inode_of(file);
  pthread_mutex_lock(&lock);
  int result = original(file, size);
  if (result == 0 && inode) record('t', inode, (uint64_t)size, NULL, 0, NULL, 0);
  pthread_mutex_unlock(&lock);
  return result;
}

int ftruncate(int file, off_t size) { return ftruncate64(file, size); }

static int opened(const char *path, int flags, mode_t mode) {
  ORIGINAL("open64", int (*)(const char *, int, ...));
  if (!(flags & O_CREAT) || !below(path)) return original(path, flags, mode);
  if (access(path, F_OK) && refused(1)) return -1;
  pthread_mutex_lock(&lock);
  int file = original(path, flags, mode);
  struct stat status;
  if (file >= 0 && fstat(file, &status) == 0) {
    record('c', status.st_ino, 0, path, strlen(path), NULL, 0);
    if (flags & O_TRUNC) record('t', status.st_ino, 0, NULL, 0, NULL, 0);
  }
  pthread_mutex_unlock(&lock);
  return file;
}

int open64(const char *path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  return opened(path, flags, mode);
}

int open(const char *path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  return opened(path, flags, mode);
}

int mkdir(const char *path, mode_t mode) {
  ORIGINAL("mkdir", int (*)(const char *, mode_t));
  if (below(path) && refused(1)) return -1;
  pthread_mutex_lock(&lock);
  int result = original(path, mode);
  struct stat status;
  if (result == 0 && below(path) && stat(path, &status) == 0)
    record('m', status.st_ino, 0, path, strlen(path), NULL, 0);
  pthread_mutex_unlock(&lock);
  return result;
}

int rename(const char *old, const char *new) {
  ORIGINAL("rename", int (*)(const char *, const char *));
  if (below(old) && refused(0)) return -1;
  pthread_mutex_lock(&lock);
  int result = original(old, new);
  if (result == 0 && below(old)) record('r', 0, 0, old, strlen(old), new, strlen(new));
  pthread_mutex_unlock(&lock);
  return result;
}

int link(const char *old, const char *new) {
  ORIGINAL("link", int (*)(const char *, const char *));
  if (below(new) && refused(1)) return -1;
  pthread_mutex_lock(&lock);
  int result = original(old, new);
  if (result == 0 && below(new)) record('l', 0, 0, old, strlen(old), new, strlen(new));
  pthread_mutex_unlock(&lock);
  return result;
}

static int removed(char kind, const char *path, int result) {
  if (result == 0 && below(path)) record(kind, 0, 0, path, strlen(path), NULL, 0);
  return result;
}

int unlink(const char *path) {
  ORIGINAL("unlink", int (*)(const char *));
  if (below(path) && refused(0)) return -1;
  pthread_mutex_lock(&lock);
  int result = removed('u', path, original(path));
  pthread_mutex_unlock(&lock);
  return result;
}

int rmdir(const char *path) {
  ORIGINAL("rmdir", int (*)(const char *));
  if (below(path) && refused(0)) return -1;
  pthread_mutex_lock(&lock);
  int result = removed('d', path, original(path));
  pthread_mutex_unlock(&lock);
  return result;
}

int unlinkat(int directory, const char *name, int flags) {
  ORIGINAL("unlinkat", int (*)(int, const char *, int));
  char path[2 * PATH_MAX] = "";
  if (name[0] != '/' && directory != AT_FDCWD) {
    path_of(directory, path);
    strcat(path, "/");
  }
  strncat(path, name, PATH_MAX);
  if (below(path) && refused(0)) return -1;
  pthread_mutex_lock(&lock);
  int result = removed(flags & AT_REMOVEDIR ? 'd' : 'u', path, original(directory, name, flags));
  pthread_mutex_unlock(&lock);
  return result;
}
