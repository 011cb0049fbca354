/* A session on a graph that was written to a file, and its ops by name. */

#ifndef PIPELINE_BENCH_GRAPH_H
#define PIPELINE_BENCH_GRAPH_H

#include "plan.h"
#include "tensorflow/c/c_api.h"

/* Open the session, or `fail`; the other functions are for any thread from then on. */
void graph_open(const char *graph_path, const char *config_path);

TF_Operation *graph_op(const char *name);

/* An output by its name, `op:0`. */
TF_Output graph_output(const char *name);

/* Run an op on its own. */
void graph_run(const TF_Operation *op, TF_Status *status);

/* Run each of the ops once, one after the other, or `fail`. */
void graph_run_all(const struct names *names, int training);

/* Fetch outputs, and run an op with them, if any. The values are the caller's to delete. */
void graph_fetch(const TF_Output *outputs, TF_Tensor **values, int count, const TF_Operation *op, TF_Status *status);

#endif
