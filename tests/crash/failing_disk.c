/* A disk that refuses on demand, below the C library's calls.

   Preloaded into a server. While the file named by FAILING_DISK exists, its content says what fails
   for files and directories below FAILING_DISK_DIRECTORY: "sync" (EIO from fsync and fdatasync;
   "sync N": only from the one after the first N),
   "full" (ENOSPC from writes that make a file longer or fill it, and from creation) or "read-only"
   (EROFS from every change). */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static int call_open(const char *path, int flags, mode_t mode) {
  static int (*original)(const char *, int, ...);
  if (!original) original = dlsym(RTLD_NEXT, "open64");
  return original(path, flags, mode);
}

static char failing(void) {
  const char *path = getenv("FAILING_DISK");
  char kind = 0;
  if (!path) return 0;
  int file = call_open(path, O_RDONLY | O_CLOEXEC, 0);
  if (file < 0) return 0;
  if (read(file, &kind, 1) != 1) kind = 0;
  close(file);
  return kind;
}

static int is_ours(const char *path) {
  const char *directory = getenv("FAILING_DISK_DIRECTORY");
  return directory && strncmp(path, directory, strlen(directory)) == 0;
}

static int file_is_ours(int file) {
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  return is_ours(path);
}

static int refused_sync(int file) {
  static int passed;
  char text[16] = "";
  int switched = failing() == 's';
  if (switched && !file_is_ours(file)) return 0;
  if (switched) {
    int opened = call_open(getenv("FAILING_DISK"), O_RDONLY | O_CLOEXEC, 0);
    if (opened >= 0) {
      if (read(opened, text, sizeof text - 1) < 0) text[0] = 0;
      close(opened);
    }
  } else {
    passed = 0;
  }
  if (!switched || (strlen(text) > 5 && passed++ != atoi(text + 5))) return 0;
  errno = EIO;
  return 1;
}

static int refused_write(int file) {
  char kind = failing();
  if (!(kind == 'f' || kind == 'r') || !file_is_ours(file)) return 0;
  errno = kind == 'f' ? ENOSPC : EROFS;
  return 1;
}

int fsync(int file) {
  static int (*original)(int);
  if (!original) original = dlsym(RTLD_NEXT, "fsync");
  if (refused_sync(file)) return -1;
  return original(file);
}

int fdatasync(int file) {
  static int (*original)(int);
  if (!original) original = dlsym(RTLD_NEXT, "fdatasync");
  if (refused_sync(file)) return -1;
  return original(file);
}

ssize_t write(int file, const void *data, size_t size) {
  static ssize_t (*original)(int, const void *, size_t);
  if (!original) original = dlsym(RTLD_NEXT, "write");
  return refused_write(file) ? -1 : original(file, data, size);
}

ssize_t pwrite64(int file, const void *data, size_t size, off_t place) {
  static ssize_t (*original)(int, const void *, size_t, off_t);
  if (!original) original = dlsym(RTLD_NEXT, "pwrite64");
  return refused_write(file) ? -1 : original(file, data, size, place);
}

ssize_t pwrite(int file, const void *data, size_t size, off_t place) {
  return pwrite64(file, data, size, place);
}

int mkdir(const char *path, mode_t mode) {
  static int (*original)(const char *, mode_t);
  if (!original) original = dlsym(RTLD_NEXT, "mkdir");
  char kind = failing();
  if ((kind == 'f' || kind == 'r') && is_ours(path)) {
    errno = kind == 'f' ? ENOSPC : EROFS;
    return -1;
  }
  return original(path, mode);
}
