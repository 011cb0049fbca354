"""A user's own tf.data pipeline: recorded while their code runs, made again with edits, and measured.

The child runs the user's function with tf.data's methods recorded (`record`), so that the pipeline is known as the
tree of calls that made it, each with its location in the user's source. A pipeline is changed by running the calls
again with edits (`rebuild`): the user's files are never touched, and nothing of a TensorFlow graph is edited. What the
parent gets to know of a pipeline is plain data, see `pipeline_bench.model.pipeline`.
"""
