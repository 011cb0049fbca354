/* What the program is to do: the file `plan`, a key and a value a line, written by loops/native.py. */

#ifndef PIPELINE_BENCH_PLAN_H
#define PIPELINE_BENCH_PLAN_H

#include <stdint.h>

#define MOST_FIRST_STEPS 64

/* Names of ops or of their outputs, in the order of the file. */
struct names {
  char **each;
  int count;
};

struct plan {
  struct names init, start, produce, close, train, save; /* ops */
  struct names plain, sampled, sizes;                    /* outputs, as `op:0` */
  int64_t steps, length_ns;                              /* the trial's length; INT64_MAX where it is not limited so */
  /* Which steps are sampled; see `SamplingRule` in loops/__init__.py. Without a rule none is. */
  int samples;
  double cost_us, cost_share;
  int first_steps, first_unsampled, steady_factor;
};

/* Read the file, or `fail`. */
void plan_read(const char *path, struct plan *plan);

/* Whether a step is sampled, by the lengths in ns of the first `first_steps`; `every` is kept between the calls. */
int plan_is_due(const struct plan *plan, int64_t step, const int64_t *lengths_ns, int64_t *every);

#endif
