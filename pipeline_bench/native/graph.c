#include "graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stream.h"

static TF_Graph *graph;
static TF_Session *session;

static void release(void *bytes, size_t count) {
  (void)count;
  free(bytes);
}

static TF_Buffer *read_file(const char *path) {
  FILE *file = fopen(path, "rb");
  if (file == NULL || fseek(file, 0, SEEK_END) != 0) fail(0, 0, "a file that was written for it cannot be read");
  long bytes = ftell(file);
  rewind(file);
  void *content = malloc(bytes > 0 ? (size_t)bytes : 1);
  if (content == NULL || fread(content, 1, (size_t)bytes, file) != (size_t)bytes) {
    fail(0, 0, "a file that was written for it cannot be read whole");
  }
  fclose(file);
  TF_Buffer *buffer = TF_NewBuffer();
  *buffer = (TF_Buffer){content, (size_t)bytes, release};
  return buffer;
}

static void see_ok(const TF_Status *status, int training) {
  if (TF_GetCode(status) != TF_OK) fail(TF_GetCode(status), training, TF_Message(status));
}

void graph_open(const char *graph_path, const char *config_path) {
  TF_Status *status = TF_NewStatus();
  TF_Buffer *definition = read_file(graph_path), *config = read_file(config_path);
  TF_ImportGraphDefOptions *importing = TF_NewImportGraphDefOptions();
  TF_SessionOptions *options = TF_NewSessionOptions();
  graph = TF_NewGraph();
  TF_GraphImportGraphDef(graph, definition, importing, status);
  see_ok(status, 0);
  TF_SetConfig(options, config->data, config->length, status);
  see_ok(status, 0);
  session = TF_NewSession(graph, options, status);
  see_ok(status, 0);
  TF_DeleteSessionOptions(options);
  TF_DeleteImportGraphDefOptions(importing);
  TF_DeleteBuffer(definition);
  TF_DeleteBuffer(config);
  TF_DeleteStatus(status);
}

TF_Operation *graph_op(const char *name) {
  TF_Operation *op = TF_GraphOperationByName(graph, name);
  if (op == NULL) fail(0, 0, "its plan names an op that the graph does not have");
  return op;
}

TF_Output graph_output(const char *name) {
  const char *colon = strrchr(name, ':');
  if (colon == NULL) fail(0, 0, "its plan names an output without a number");
  char *op_name = strndup(name, (size_t)(colon - name));
  TF_Output output = {graph_op(op_name), atoi(colon + 1)};
  free(op_name);
  return output;
}

void graph_run(const TF_Operation *op, TF_Status *status) { graph_fetch(NULL, NULL, 0, op, status); }

void graph_run_all(const struct names *names, int training) {
  TF_Status *status = TF_NewStatus();
  for (int i = 0; i < names->count; i++) {
    graph_run(graph_op(names->each[i]), status);
    see_ok(status, training);
  }
  TF_DeleteStatus(status);
}

void graph_fetch(const TF_Output *outputs, TF_Tensor **values, int count, const TF_Operation *op, TF_Status *status) {
  TF_SessionRun(session, NULL, NULL, NULL, 0, outputs, values, count, &op, op != NULL, NULL, status);
}
