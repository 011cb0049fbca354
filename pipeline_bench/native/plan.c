#include "plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stream.h"

#define NAME_BYTES 4096

static void add(struct names *names, const char *value) {
  names->each = realloc(names->each, sizeof *names->each * (size_t)(names->count + 1));
  names->each[names->count++] = strdup(value);
}

static struct names *names_of(struct plan *plan, const char *key) {
  struct {
    const char *key;
    struct names *names;
  } known[] = {{"init", &plan->init},   {"start", &plan->start}, {"produce", &plan->produce},
               {"close", &plan->close}, {"train", &plan->train}, {"save", &plan->save},
               {"plain", &plan->plain}, {"sampled", &plan->sampled}, {"size", &plan->sizes}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (strcmp(known[i].key, key) == 0) return known[i].names;
  }
  return NULL;
}

static int set_number(struct plan *plan, const char *key, const char *value) {
  if (strcmp(key, "steps") == 0) plan->steps = strtoll(value, NULL, 10);
  else if (strcmp(key, "length_ns") == 0) plan->length_ns = strtoll(value, NULL, 10);
  else if (strcmp(key, "cost_us") == 0) plan->cost_us = strtod(value, NULL);
  else if (strcmp(key, "cost_share") == 0) plan->cost_share = strtod(value, NULL);
  else if (strcmp(key, "first_steps") == 0) plan->first_steps = atoi(value);
  else if (strcmp(key, "first_unsampled") == 0) plan->first_unsampled = atoi(value);
  else if (strcmp(key, "steady_factor") == 0) plan->steady_factor = atoi(value);
  else return 0;
  return 1;
}

void plan_read(const char *path, struct plan *plan) {
  char key[64], value[NAME_BYTES];
  FILE *file = fopen(path, "r");
  if (file == NULL) fail(0, 0, "its plan cannot be read");
  *plan = (struct plan){.steps = INT64_MAX, .length_ns = INT64_MAX};
  while (fscanf(file, "%63s %4095s", key, value) == 2) {
    struct names *names = names_of(plan, key);
    if (names != NULL) add(names, value);
    else if (!set_number(plan, key, value)) fail(0, 0, "its plan has a key that it does not know");
  }
  fclose(file);
  plan->samples = plan->first_steps > 0 && plan->sampled.count > 0;
  if (plan->plain.count != 1 || plan->train.count != 1 || plan->first_steps > MOST_FIRST_STEPS) {
    fail(0, 0, "its plan is not whole");
  }
}

/* A copy of `StepSampling` and `every` in worker/sample_audit.py, in the same arithmetic: a test compares them. */
static int64_t every_of(const struct plan *plan, const int64_t *lengths_ns, int end, int faster) {
  int64_t shortest_ns = lengths_ns[1];
  for (int i = 2; i < end; i++) {
    if (lengths_ns[i] < shortest_ns) shortest_ns = lengths_ns[i];
  }
  double step_us = fmax((double)shortest_ns / faster / 1e3, 1e-3);
  double every = ceil(plan->cost_us / (plan->cost_share * step_us) - 1e-9);
  return every < 1 ? 1 : (int64_t)every;
}

int plan_is_due(const struct plan *plan, int64_t step, const int64_t *lengths_ns, int64_t *every) {
  if (!plan->samples) return 0;
  if (step == plan->first_unsampled) return every_of(plan, lengths_ns, plan->first_unsampled, plan->steady_factor) == 1;
  if (step == plan->first_steps) *every = every_of(plan, lengths_ns, plan->first_steps, 1);
  return step % *every == 0;
}
