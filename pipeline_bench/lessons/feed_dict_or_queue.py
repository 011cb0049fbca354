"""The tutorial of 2017 in small: a batch that is fetched and fed back, against one that waits in a queue."""

from __future__ import annotations

import tomllib

from pipeline_bench.backends.feed_dict import _FetchingInput
from pipeline_bench.lessons import Ask, Compare, Document, Lesson, Played, Say, Show, Tell, Try, figures, prediction
from pipeline_bench.lessons.figures import paragraphs
from pipeline_bench.text.units import milliseconds, ratio

# The tutorial's job as scenarios/tutorial.toml plants it, which says how its two times come from the published ones.
_EMULATED = """\
[source]               # what makes the batches
kind = "synthetic"     # 128 x 1024 random numbers
batch_ms = 2.2         # in 2.2 ms, as slow as in 2017

[model]
kind = "emulated_two_layer"
step_ms = 1.1          # busy 1.1 ms with each batch

[run]
steps = 300
repeats = 3

[[variants]]
name = "feed_dict"
backend = "feed_dict"

[[variants]]
name = "fifo_queue"
backend = "fifo_queue"
"""
_REAL = """\
[model]
kind = "two_layer"     # 1024 units, trained for real

[run]
steps = 150
repeats = 3

[[variants]]
name = "feed_dict"
backend = "feed_dict"

[[variants]]
name = "fifo_queue"
backend = "fifo_queue"
"""

_NONE, _HALF, _TRIPLE = (
    "no difference: both bring the same batches",
    "the queue is faster, about 1.5 times",
    "the queue is faster, 3 times or more",
)
_HALF_FROM, _TRIPLE_FROM = 1.25, 2.1
"""Where the ratio is nearer to 1.5 than to 1, and nearer to 3 than to 1.5; as ratios, not as distances."""
_NEAR = 1.15
"""Up to this much more or less than the arithmetic says counts as what it says."""


def _emulated() -> Document:
    return {"name": "feed_dict_or_queue", **tomllib.loads(_EMULATED), "published": figures.published_with("tutorial")}


def _tell_emulated(played: Played) -> str:
    session = played.session("emulated")
    outcome = figures.outcome(session, "fifo_queue")
    found = figures.result(session, "fifo_queue")
    times = found.speedup.value if found is not None and found.speedup.value is not None else 0.0
    happened = {
        "none": "no difference that can be told",
        "slower": "feed_dict is the faster one",
        "faster": f"the queue is faster, {ratio(times)}",
        "unknown": "not measured well enough to say",
    }
    said = {"none": _NONE, "slower": "", "faster": _HALF if _HALF_FROM <= times < _TRIPLE_FROM else ""}.get(outcome)
    said = _TRIPLE if outcome == "faster" and times >= _TRIPLE_FROM else said
    right = None if said is None else played.answer("gain") == said
    return paragraphs(
        prediction(played, "gain", happened[outcome], right),
        figures.measured(session, ("feed_dict", "fifo_queue")),
        figures.gain(session, "fifo_queue"),
        _sum_and_maximum(played),
        figures.published(session),
        figures.disturbed(session),
    )


def _sum_and_maximum(played: Played) -> str:
    """The two rules of arithmetic, with what was measured put in; empty where a part of it is missing."""
    session = played.session("emulated")
    fed, queued = figures.result(session, "feed_dict"), figures.result(session, "fifo_queue")
    if fed is None or queued is None or fed.step_ms.mean is None or queued.step_ms.mean is None:
        return ""
    wait_ms, device_ms = fed.input_wait_ms.value, fed.ceiling_ms.value
    if wait_ms is None or device_ms is None:
        return ""
    longer_ms = max(wait_ms, device_ms)
    rest_ms = fed.step_ms.mean - wait_ms - device_ms
    rest = f" What is left, {milliseconds(rest_ms)}, is Python and the copy back in." if rest_ms > 0 else ""
    took_ms = queued.step_ms.mean
    if figures.outcome(session, "fifo_queue") == "unknown":
        verdict = "from trials too far apart to be held against it"
    elif took_ms > _NEAR * longer_ms:
        verdict = "more than that: threads that wait for a core, or for their turn, add to it on this machine"
    elif took_ms < longer_ms / _NEAR:
        verdict = "even less: fetching a batch into Python takes longer than making it, and the queue fetches none"
    else:
        verdict = "just that, within what can be told"
    return (
        f"Without a queue a step is a **sum**: {milliseconds(wait_ms)} until the batch is there, then "
        f"{milliseconds(device_ms)} on the device.{rest}\n\n"
        "With a queue both happen at the same time, and a step is the **longer of the two**: "
        f"{milliseconds(longer_ms)}. It took {milliseconds(took_ms)}, {verdict}. So hiding "
        "can at most double the speed, and does so where both take equally long. Here the "
        f"{'input' if wait_ms > device_ms else 'device'} is the slower one: the other one waits for it."
    )


def _tell_real(played: Played) -> str:
    session = played.session("real")
    return paragraphs(
        figures.measured(session, ("feed_dict", "fifo_queue", "ceiling")),
        figures.gain(session, "fifo_queue"),
        _why_real(played),
        figures.disturbed(session),
    )


def _why_real(played: Played) -> str:
    session = played.session("real")
    outcome, cores = figures.outcome(session, "fifo_queue"), figures.cores(session)
    on_gpu = session.environment.accelerator_kind == "gpu"
    if outcome == "faster":
        why = (
            "The GPU computes while the cores make the next batch, as in 2017."
            if on_gpu
            else f"There is no GPU here: the same {cores} make the batches and train. The queue's thread still found "
            "time in which a core had nothing to do, and no batch was copied into Python and back."
        )
        return f"{why}{_host_part(played)}"
    if outcome == "unknown":
        return "" if on_gpu else _shared_cores(cores)
    slower = "The queue even lost: its threads cost more than they saved." if outcome == "slower" else ""
    why = (
        "The GPU is so fast with this model, or making a batch so cheap, that there is little to hide."
        if on_gpu
        else _shared_cores(cores)
    )
    return f"{slower} {why}{_host_part(played)}".strip()


def _shared_cores(cores: str) -> str:
    return (
        f"There is no GPU here: the same {cores} make the batches and train. A queue hides **waiting**; it cannot hide "
        "**work** where no core is free to do it meanwhile."
    )


def _host_part(played: Played) -> str:
    """What the sharing of the cores costs the queue's variant, where that was measured and is not small."""
    found = figures.result(played.session("real"), "fifo_queue")
    share = found.host_slowdown_share if found else None
    if found is None or share is None or share.ci95 is None or share.ci95[0] <= 0:
        return ""
    return (
        f" Its step took {milliseconds(found.host_slowdown_ms.value)} longer than the wait for its batch and the "
        "model on its own explain: that is what the two cost each other."
    )


LESSON = Lesson(
    name="feed_dict_or_queue",
    title="feed_dict against a queue",
    summary="why a queue makes training faster, by how much at most, and when it does not",
    order=30,
    parts=(
        Say(
            "Training is a loop of steps. Each step needs a **batch**: some 100 samples that the model learns from. "
            "Somebody has to make it: read a file, decode, draw random numbers.\n\n"
            "The first TensorFlow programs did one after the other. They ran the graph once to get a batch as NumPy "
            "arrays, and a second time to train on it, handing it back through `feed_dict`. This is the code that "
            "does so here:"
        ),
        Show(_FetchingInput.fetch, caption="The first run; what it returns is fed to the second, the training"),
        Say(
            "A tutorial of 2017 put a **queue** between the two. Threads of their own fill it with batches while the "
            "model trains on an earlier one. The model takes its batch from the queue; no batch ever enters Python.\n\n"
            "We take the two times from that tutorial: a batch took about 2.2 ms, and the GPU about 1.1 ms with it. "
            "The GPU is *emulated*: a small network is trained on the processor, and what is left of the GPU's time is "
            "waited. So this shows the same on any machine. Each of the two ways, a **variant**, trains for 300 steps, "
            "three times over. The **throughput** is how many samples are trained on in a second."
            f"\n\n```toml\n{_EMULATED}```"
        ),
        Ask("gain", "What does the queue make of it?", choices=(_NONE, _HALF, _TRIPLE)),
        Compare(
            "emulated",
            _emulated,
            "training with and without a queue, on an emulated device",
        ),
        Tell(_tell_emulated),
        Say(
            "In 2017 the queue took 11.5 s in place of 18 s, 1.57 times as fast, and the GPU was busy for 43 % of the "
            "time in place of 31 %. It is the same arithmetic:\n\n"
            "- without a queue, busy ÷ (input + busy) = 1.1 ÷ (2.5 + 1.1) = 31 %, the copies counted with the input\n"
            "- with one, busy ÷ the longer of the two = 1.1 ÷ 2.2 = 50 % at best; the queue is not free: 43 %\n\n"
            "The input takes longer than the training: even then the GPU waits for half of the time. A queue hides the "
            "shorter of two times; from there on only a faster input helps. The lesson `tf_data_and_prefetch` goes on "
            "with that."
        ),
        Say(
            "Now for real: the tutorial's own network, trained on this machine. No wait is planted. Making a batch of "
            "128 × 1024 random numbers is work for the cores.\n\n"
            "The *ceiling* is the same network on a batch that is in memory already: no input can be faster than "
            f"none.\n\n```toml\n{_REAL}```"
        ),
        Compare(
            "real", {"name": "feed_dict_or_queue, real", **tomllib.loads(_REAL)}, "training the tutorial's network"
        ),
        Tell(_tell_real),
    ),
    then=(
        Try("pipeline-bench compare tutorial", "the emulated job, with tf.data beside it and every figure"),
        Try("pipeline-bench compare two_layer --steps 5000", "the tutorial's job to the letter; some minutes on a CPU"),
        Try("pipeline-bench lesson elements_of_a_queue", "the queue that made training ten times slower"),
    ),
)
