/* Trains a graph without Python: `program FOLDER DESCRIPTOR PARENT`.
 *
 * FOLDER holds the files `graph`, a GraphDef, `config`, a ConfigProto, and `plan`, see plan.h. DESCRIPTOR is a pipe for
 * what there is to tell, see stream.h, PARENT the process that started the program and that it ends with.
 */

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "graph.h"
#include "plan.h"
#include "stream.h"

static struct plan plan;
static atomic_int stopping;

static pthread_mutex_t producer_lock = PTHREAD_MUTEX_INITIALIZER;
static TF_Status *producer_error; /* of the first producer that failed */

/* CLOCK_MONOTONIC in ns, which is Python's time.monotonic_ns. */
static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* End because of an error in the training; a producer's own comes before the `queue is closed` that it causes. */
static _Noreturn void fail_training(const TF_Status *status) {
  pthread_mutex_lock(&producer_lock);
  const TF_Status *first = producer_error != NULL ? producer_error : status;
  fail(TF_GetCode(first), 1, TF_Message(first));
}

/* Close the queues; one that another thread has closed already is no error. */
static void close_input(void) {
  TF_Status *status = TF_NewStatus();
  for (int i = 0; i < plan.close.count; i++) graph_run(graph_op(plan.close.each[i]), status);
  TF_DeleteStatus(status);
}

static void *keep_producing(void *op) {
  TF_Status *status = TF_NewStatus();
  do {
    graph_run(op, status);
  } while (TF_GetCode(status) == TF_OK && !stopping);
  if (stopping) return NULL;
  pthread_mutex_lock(&producer_lock);
  if (producer_error == NULL) producer_error = status;
  pthread_mutex_unlock(&producer_lock);
  close_input(); /* else the step that waits for a batch would wait for ever */
  return NULL;
}

static void *keep_telling_sizes(void *unused) {
  (void)unused;
  int count = plan.sizes.count;
  TF_Status *status = TF_NewStatus();
  TF_Output *outputs = calloc((size_t)count, sizeof *outputs);
  TF_Tensor **values = calloc((size_t)count, sizeof(TF_Tensor *));
  int64_t *sizes = calloc((size_t)count, sizeof *sizes);
  for (int i = 0; i < count; i++) outputs[i] = graph_output(plan.sizes.each[i]);
  for (;; sleep_ms(EVERY_MS)) {
    graph_fetch(outputs, values, count, NULL, status);
    if (TF_GetCode(status) != TF_OK) continue;
    for (int i = 0; i < count; i++) {
      sizes[i] = *(const int32_t *)TF_TensorData(values[i]);
      TF_DeleteTensor(values[i]);
    }
    stream_add(SIZES, sizes, sizeof *sizes * (size_t)count, NULL, 0);
  }
  return NULL;
}

static void start_thread(void *(*run)(void *), void *argument) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, run, argument) != 0) fail(0, 0, "no thread can be started");
}

static void train(void) {
  TF_Status *status = TF_NewStatus();
  const TF_Operation *op = graph_op(plan.train.each[0]);
  TF_Output plain = graph_output(plan.plain.each[0]);
  TF_Output sampled = plan.samples ? graph_output(plan.sampled.each[0]) : plain;
  int64_t lengths_ns[MOST_FIRST_STEPS], every = 1, counted_ns = 0, due = plan.samples;
  for (int64_t step = 0;; step++) {
    TF_Tensor *values = NULL;
    int64_t start_ns = now_ns();
    graph_fetch(due ? &sampled : &plain, &values, 1, op, status);
    int64_t end_ns = now_ns();
    if (TF_GetCode(status) != TF_OK) fail_training(status);
    int64_t head[3] = {start_ns, end_ns, due};
    stream_add(STEP, head, sizeof head, TF_TensorData(values), TF_TensorByteSize(values));
    TF_DeleteTensor(values);
    if (step == 0) counted_ns = end_ns; /* the first step loads kernels and compiles */
    if (step < plan.first_steps) lengths_ns[step] = end_ns - start_ns;
    if (step + 1 >= plan.steps || end_ns - counted_ns >= plan.length_ns) break;
    due = plan_is_due(&plan, step + 1, lengths_ns, &every);
  }
  TF_DeleteStatus(status);
}

static const char *in_folder(const char *folder, const char *name) {
  size_t bytes = strlen(folder) + strlen(name) + 2;
  char *path = malloc(bytes);
  snprintf(path, bytes, "%s/%s", folder, name);
  return path;
}

int main(int count, char **arguments) {
  if (count != 4) return 2;
  /* It may be gone already, and the signal then never comes. */
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != atoi(arguments[3])) return 2;
  signal(SIGPIPE, SIG_IGN);
  stream_open(atoi(arguments[2]));
  plan_read(in_folder(arguments[1], "plan"), &plan);
  graph_open(in_folder(arguments[1], "graph"), in_folder(arguments[1], "config"));
  graph_run_all(&plan.init, 0);
  stream_add(READY, NULL, 0, NULL, 0);
  stream_flush();
  graph_run_all(&plan.start, 1);
  for (int i = 0; i < plan.produce.count; i++) start_thread(keep_producing, graph_op(plan.produce.each[i]));
  if (plan.sizes.count > 0) start_thread(keep_telling_sizes, NULL);
  train();
  stopping = 1;
  close_input();
  graph_run_all(&plan.save, 0);
  stream_add(DONE, NULL, 0, NULL, 0);
  stream_flush();
  /* Producers may be in the middle of a slow batch, which nothing can interrupt: they end with the process. */
  _exit(0);
}
