#include "stream.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Holds a second of steps of 0.1 ms; twice as much is taken when it is full, as nothing may wait. */
#define FIRST_BYTES (1 << 20)

struct buffer {
  char *bytes;
  size_t used, size;
};

static struct buffer filling, written;
static pthread_mutex_t filling_lock = PTHREAD_MUTEX_INITIALIZER, writing_lock = PTHREAD_MUTEX_INITIALIZER;
static int pipe_descriptor;

void sleep_ms(long milliseconds) {
  struct timespec left = {milliseconds / 1000, milliseconds % 1000 * 1000000};
  while (nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

static void *keep_writing(void *unused) {
  (void)unused;
  for (;;) {
    sleep_ms(EVERY_MS);
    stream_flush();
  }
  return NULL;
}

static void reserve(struct buffer *buffer, size_t more) {
  size_t size = buffer->size != 0 ? buffer->size : FIRST_BYTES;
  while (size < buffer->used + more) size *= 2;
  if (size == buffer->size) return;
  buffer->bytes = realloc(buffer->bytes, size);
  if (buffer->bytes == NULL) _exit(ENOMEM);
  memset(buffer->bytes + buffer->used, 0, size - buffer->used); /* the pages are to be there before they are needed */
  buffer->size = size;
}

static void append(const void *bytes, size_t count) {
  if (count == 0) return;
  memcpy(filling.bytes + filling.used, bytes, count);
  filling.used += count;
}

void stream_open(int descriptor) {
  pthread_t thread;
  pipe_descriptor = descriptor;
  reserve(&filling, 0);
  reserve(&written, 0);
  if (pthread_create(&thread, NULL, keep_writing, NULL) != 0) fail(0, 0, "no thread can be started");
}

void stream_add(enum kind kind, const void *head, size_t head_bytes, const void *tail, size_t tail_bytes) {
  int32_t start[2] = {(int32_t)kind, (int32_t)(head_bytes + tail_bytes)};
  pthread_mutex_lock(&filling_lock);
  reserve(&filling, sizeof start + head_bytes + tail_bytes);
  append(start, sizeof start);
  append(head, head_bytes);
  append(tail, tail_bytes);
  pthread_mutex_unlock(&filling_lock);
}

void stream_flush(void) {
  pthread_mutex_lock(&writing_lock);
  pthread_mutex_lock(&filling_lock);
  struct buffer full = filling;
  filling = written;
  filling.used = 0;
  written = full;
  pthread_mutex_unlock(&filling_lock);
  for (size_t done = 0; done < written.used;) {
    ssize_t count = write(pipe_descriptor, written.bytes + done, written.used - done);
    if (count >= 0) {
      done += (size_t)count;
    } else if (errno != EINTR) {
      _exit(EPIPE);
    }
  }
  pthread_mutex_unlock(&writing_lock);
}

void fail(int code, int training, const char *text) {
  int32_t head[2] = {code, training};
  stream_add(ERROR, head, sizeof head, text, strlen(text));
  stream_flush();
  _exit(1);
}
