/* The messages to the trial's Python process, in blocks a few times a second, so that no step waits for the pipe. */

#ifndef PIPELINE_BENCH_STREAM_H
#define PIPELINE_BENCH_STREAM_H

#include <stddef.h>
#include <stdint.h>

#define EVERY_MS 250

/* What a message is; `_message` in __init__.py has the same numbers.
 *
 * A message is two int32, its kind and how many bytes follow, and then these bytes, in the machine's own order:
 * READY and DONE none; STEP int64 start_ns, end_ns and whether it was sampled, then float64 values; SIZES an int64
 * for each queue; ERROR int32 code of TensorFlow's, int32 whether it ended the training, then the text.
 */
enum kind { READY = 1, STEP = 2, SIZES = 3, ERROR = 4, DONE = 5 };

/* Start the thread that writes to the pipe. */
void stream_open(int descriptor);

/* Append a message of two parts, the second of which may be empty; never waits for the pipe. */
void stream_add(enum kind kind, const void *head, size_t head_bytes, const void *tail, size_t tail_bytes);

/* Write what there is, now. Ends the process where nobody reads any more. */
void stream_flush(void);

/* Tell what went wrong and end the process. Of an error in a step `training` is 1. */
_Noreturn void fail(int code, int training, const char *text);

void sleep_ms(long milliseconds);

#endif
