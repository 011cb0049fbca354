"""A function of the user's in a pipeline: what a child found out about it."""

from __future__ import annotations

from typing import Literal

from pipeline_bench.model import Data
from pipeline_bench.model.calls import MemoizableCall
from pipeline_bench.text import Line, Text

OnBatches = Literal["as-is", "parse-example", "vectorized-map", "not"]
"""How a map's function gets whole batches: as it is, by `tf.io.parse_example`, `tf.vectorized_map`, or not at all."""


class FixedPart(Data):
    """The first statements of a random function, where both they and the others were proven to do the same."""

    fixed_statements: int | None = None
    """How many come before it draws; None where none were proven."""
    fixed_within: Line = ""
    """The function that it calls and of which these statements are, as of a wrapper; empty where they are its own."""
    fixed_up_to: Line = ""
    """The last line of these statements, ``line 7 of train.py``."""
    fixed_bytes: float | None = None
    """What these statements hand over for an element, on average of the few that both parts were compared on."""
    fixed_reads: bool = False
    """Whether these statements read a variable or a table."""


class UserFunction(FixedPart):
    """A function that the user gave to a stage."""

    name: Line
    """Its qualified name without the enclosing function: ``decode``, ``<lambda>``, ``partial of decode``."""
    file: Text | None = None
    line: int | None = None
    module: Line | None = None
    """The module that defines it, as Python names it: ``data.loading``; None in older files."""
    python: bool = False
    """Whether it leaves the graph for Python (`tf.py_function`, `tf.numpy_function`); of a generator always."""
    stateful: bool = False
    """Whether it holds stateful ops, random ones for example: tf.data then does not parallelise it by itself."""
    changes_state: bool = False
    """Whether an op of its graph may change a state: of stateful ops, all that do more than read one or draw."""
    changes_seeds: bool = False
    """Whether all that it changes are states of Keras' `SeedGenerator`."""
    random: bool = False
    """Whether its ops draw random numbers, others at each call. Stateless ones do not, unless a state seeds them."""
    draws_by_seed: bool = False
    """Whether they draw by stateless ops alone: the same for the same seed, and so in each epoch."""
    draws_alike: bool = False
    """Whether equal seeds, or states of generators, have it draw alike for several parts of an element: called one by
    one, each part gets the same number, as a picture and its mask."""
    draws_in_python: bool | None = None
    """Whether its Python gives something else in another call for one element, or in another pass; None: not known.
    What draws seldom from a random generator of its own is taken to give the same."""
    parses_examples: bool = False
    """Whether it parses serialized examples (`tf.io.parse_single_example`)."""
    reads_files: bool = False
    """Whether its graph reads files (`tf.io.read_file`); of Python that is not known."""
    crops_decoded: bool = False
    """Whether it decodes whole pictures that may be JPEG files, of which it or a map behind it then cuts a part out."""
    resizes_decoded: bool = False
    """Whether it decodes whole pictures that may be JPEG files, which it or a map behind it resizes, at full size."""
    decoding_share: float | None = None
    """Of its time, as far as it was followed: what decodes such pictures."""
    endless: bool = False
    """Whether it is a generator whose text shows that it never ends."""
    loops_over_rows: bool = False
    """Whether its graph goes over the rows of a tensor in a loop, as `tf.map_fn` does, and decodes no pictures."""
    row_copies: int = 0
    """For how many rows of a batch its graph has ops of their own, as where a loop of Python's over them is unrolled; 0
    for few, and where it decodes pictures."""
    doubles: bool = False
    """Whether it is Python that gives arrays of 64-bit floats, which then become smaller ones."""
    on_batches: OnBatches | None = None
    """How it can be given whole batches; None where that was not tried. Behind a batch `not` if its rows mix."""
    fixed_smaller: FixedPart | None = None
    """Fewer of its first statements, which hand over half as many bytes or less: of a picture bytes and not floats."""
    fixed_share: float | None = None
    """Of a random function in the graph: what of its time the ops take that depend on nothing random."""
    undivided: Line = ""
    """Why a random function cannot be divided so, as the end of a sentence."""
    costliest: Line = ""
    """Where the most of its time is spent, as far as its lines were followed: ``line 33``, ``line 7 of reading.py``."""
    costliest_share: float | None = None
    costliest_runs: float | None = None
    """How often that line runs in a call, on average, of Python; None where it was not followed."""
    costliest_run_ns: float | None = None
    """How long a run of it takes, on average."""
    eager_ops: float | None = None
    """How many ops of TensorFlow's its Python runs in a call, each by itself; None: none, or not known."""
    eager_share: float | None = None
    """Of its time, as far as it was followed: what the lines that run them take by themselves."""
    memoizable: MemoizableCall | None = None
    """The costliest call whose results can be kept, in Python whose elements cannot: each pass has others, or many."""
    also_memoizable: tuple[MemoizableCall, ...] = ()
    """Further ones; of all of them none runs within another."""

    @property
    def memoizable_calls(self) -> tuple[MemoizableCall, ...]:
        """All calls whose results can be kept."""
        return () if self.memoizable is None else (self.memoizable, *self.also_memoizable)

    @property
    def keeps_state(self) -> bool:
        """Whether it may go on from pass to pass where it was, whatever the seed: Python, a variable, a table."""
        return self.python or (self.stateful and not self.random)
