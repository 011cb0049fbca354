"""Every threshold that decides a verdict, a claim or a disturbance, each once and with its source.

What only guides a search, or decides whether a remark is worth a line, stands where it is used.

docs/method.md gives the same numbers to the reader; tests/unit/test_thresholds.py holds the one against the other.
"""

from __future__ import annotations

# --- verdicts --------------------------------------------------------------------------------------------------------

BOUND_SHARE = 0.10
"""Input wait or host slowdown limits a variant from this share of the step on: a tenth is worth mending. MLPerf Storage
and DLIO pass a system at an accelerator utilization of 0.90, the same line seen from the other side."""
SEVERE_SHARE = 0.20
"""A limit is severe where its whole interval is from this share of the step on."""
COMPUTE_BOUND_AU = 0.90
"""Without such a limit, a variant is compute-bound from this accelerator utilization on."""
OVERLAPPED_SHARE = 0.90
"""A copy to the GPU overlaps where at least so much of it costs the step nothing; in part where more than the rest."""
CEILING_TOLERANCE = 0.02
"""A variant may beat its ceiling by this share of the step before its figures are impossible. By more, they are not
shown, and where the noise does not explain it, they decide no verdict."""
PROBABLE_STEPS, PROBABLE_WAIT = 10, 0.5
"""From so many steps on, a watched training that waits for half of them or more probably waits for its input: of steps
of seconds there are few, and one burst among ten makes no half."""
WATCHED_ERROR = 0.007
"""One standard deviation of the error of a watched job's input wait, as a share of the step: known waits are measured
within 0.4 to 0.8 points in the median (docs/checks.md). What its steps scatter is no error: it is what that job did."""
NEEDED_STEPS = 30
"""Measured steps that a verdict needs, over all trials: below, a percentile and a mean over steps say little."""
CERTAIN = 0.975
"""A verdict is given plainly from this probability on: its 95 % interval lies on one side of the line."""
PROBABLE = 0.85
"""From this probability on a verdict is given as probable; below, what is plausible is named, and no verdict."""
PLAUSIBLE = 0.05
"""A kind of verdict is named as plausible from this probability on."""
BUSY_SHARE = 0.05
"""What other programs took of the CPU is named as a reason for doubt from here on."""
OTHER_STATE_SHARE = BOUND_SHARE
"""So much of a source's files may be in the other cache state than was asked: a tenth of the files in memory takes at
most a tenth of the storage's time away."""

BUFFER_SHARE = 1 / 6
"""A buffer that holds more than this share of a trial's steps is mentioned: it was filled before those that count, so
that their wait does not show what filling it costs."""

# --- differences between variants ------------------------------------------------------------------------------------

CERTAIN_CLAIM = 0.998
"""A difference is certain where an interval of this confidence leaves out 1. Rounds are added until
they all are, and judged again after more and more of them (`precision.is_look`). Of two equal variants, whose ratio
scatters between rounds by 3 % to 30 %, at most 2 in 100 are then said to differ (test_precision.py)."""
PROBABLE_CLAIM = 0.99
"""A difference is probable from this confidence on."""
CLAIM_CONFIDENCE = 0.98
"""The confidence of a claim that is made once, of two sessions or of a pair of variants: of equal ones it may be
claimed 1 time in 50, not 20."""
TIE = 1.10
"""Two variants tie where the whole 95 % interval of their ratio lies within this factor."""
WORTH = 1.1
"""A gain that a reader would want to know of even where it is not proven."""
SAME_JOB_SCATTER = 0.01
"""Two copies of a variant differ by this much for good, one standard deviation of the logarithm: where their memory
lies, which cores they got (docs/method.md, "Precision")."""

# --- scatter between rounds ------------------------------------------------------------------------------------------

SHARE_SCATTER = 0.02
"""The usual standard deviation of a share of the step between rounds, as seen of known answers (docs/method.md)."""
RATIO_SCATTER = 0.05
"""The same of the logarithm of a ratio of step times."""

# --- other work on the machine ---------------------------------------------------------------------------------------

TAKEN_LEVELS = (0.05, 0.15, 0.4, 1.0)
"""How much of the CPU others may have taken while a step that counts was under way; the last one lets all count."""
FEWEST_STEPS = 10
"""A trial with fewer steps that count, and fewer than it has, counts in no figure at that level."""
SATURATED_PERCENT = 90.0
"""Other processes cost a trial time only while the CPU has hardly any left: two busy cores are never measured as wholly
busy, and a pipeline alone on them keeps them at 80 to 90 %."""

# --- disturbances ----------------------------------------------------------------------------------------------------
# Most are half of `BOUND_SHARE`: what is smaller decides no verdict.

BURST_COST_SHARE = 0.01
"""Bursts count from this share of a trial's time on: a smaller one moves no figure that is read in whole per cent."""
BURST_EXCESS = 0.05
"""A block of steps is slow from this much above what is usual on, however even the rest is …"""
BURST_DEVIATIONS = 6.0
"""… and from this many robust standard deviations on. Of normal noise one block in 10**9 would be; of the few blocks of
a short trial, whose deviation is not known well, it takes this much to be no accident."""
BLOCK_NS = 50e6
"""A block is at least this long, so that it holds several steps and what disturbs outlasts it."""
DRIFT_CHANGE = 0.05
"""A trial drifts where its last quarter is this much slower or faster than its first …"""
DRIFT_DEVIATIONS = 3.5
"""… by Mann-Kendall's statistic in standard deviations (Mann, "Nonparametric tests against trend", 1945), far above
1.96: neighbouring blocks are alike on a real machine, which the test takes for so much more evidence."""
SLOW_START_SHARE = 0.10
"""A start is slow where the warm-up is this share of the trial …"""
SLOW_START_FACTOR = 5.0
"""… and this many times as long as in the other repeats: no chance of its detection …"""
SLOW_START_EXCESS = 0.05
SLOW_START_DEVIATIONS = 6.0
"""… if it was really slower than what came after: by as much as a drift has to be, and by this many standard errors,
more than usual because the detection has picked the slowest start that it could find."""
CONTENTION_SHARE = 0.05
"""Other processes count from this share of the CPU on: an idle system's own take 0 to 2 %, now and then 3."""
STEAL_SHARE = 0.02
"""Stolen time is the trial's loss in full, whatever else the machine does, so that less of it counts. The kernel counts
it in ticks, a stray one in a second being some 0.5 % of two cores."""
QUOTA_SHARE = 0.02
"""The same of time that a control group's quota withheld."""
GPU_THROTTLED_SHARE = 0.05
GPU_CLOCK_DIFFERENCE = 0.05
SMS_IDLE_PERCENT = 50.0
"""A GPU that is fed and has less than half of its SMs busy does not lack data: its kernels are small."""
GPU_BUSY_PERCENT = 50.0
"""A starved GPU lowers its clock by itself, which is no disturbance: only samples of a GPU that is at work count."""

# --- a diagnosis -----------------------------------------------------------------------------------------------------

GAINED = 1.03
"""A fix that gains less is not followed up: trials of the same pipeline differ by as much (docs/method.md)."""
WORTH_A_TRY = 0.03
"""A fix that cannot gain more than this share of the time is not tried: it could hardly be distinguished from none."""
SIMPLER = 1.03
"""A combination must be this much faster than the best single fix in it: less is not worth more code."""
LONG_STARTS = 0.5
"""Of the time that a diagnosis charges: what the starts of its trials take besides is then worth a word."""
PROMISING = 1.1
"""A gain of few trials is worth naming from here on: less may well be the machine."""
WORTH_REWRITING = 1.3
"""Less is not worth a change of somebody's functions: the fault that the benchmark counts costs as much."""
EXPLAINED = 0.5
"""Of the time: where the stages measured alone account for less, what limits it need not be among their costs."""
HINTED = 0.3
"""Of the time: where all stages were measured and account for less, none is named; from here to `EXPLAINED`, one as
probable."""
LEAST_CAUSE = 0.1
"""Of a training step: a smaller cost is no cause, for trials of the same step differ by more."""
NOT_THE_LIMIT = 0.97
"""From this share of the step on that the model takes by itself, no input makes it 3 % faster: the model limits."""
FILLING = 0.25
"""A buffer that holds this part of a whole pass may be what an epoch waits for as it begins."""
DEARER_ALONE = 1.25
"""A stage that alone takes so many times the whole pipeline's time is mentioned: trials in a row differ by less."""

# --- the selftest ----------------------------------------------------------------------------------------------------

SELFTEST_SHARE = 0.03
"""A planted share of the step passes when it is measured this close, beside what other work may do to it: a third of
`BOUND_SHARE`, so that a wait of twice the line or of half of it is on its side."""
SELFTEST_RATIO = 0.03
"""The same of a step time, or of a ratio of two, relative."""
SELFTEST_COST_SHARE = 0.01
"""Measuring may make a step this much longer …"""
SELFTEST_COST_US = 20.0
"""… or by so many microseconds, whichever is more (docs/checks.md, "What measuring costs")."""
SELFTEST_DISTURBED = TAKEN_LEVELS[1]
"""What other work took of the CPU from which on a figure that did not pass shows nothing."""
SELFTEST_BESIDE_CORES = 0.1
"""The program beside a trial may take this much of one core."""
SELFTEST_POINTS = 5.0
"""A GPU's utilization, and what GPM says, pass when within so many percentage points of the device's own time."""

# --- several hosts ---------------------------------------------------------------------------------------------------

HOSTS_SCALE = 0.90
"""Several hosts scale where together they reach this share of what they reach alone: a tenth is worth mending, as with
`BOUND_SHARE`."""
HOST_SLOWER = 1.20
"""A host is slow by itself where its ceiling takes so many times the others': more than a tenth, and beyond
what machines of one kind differ by. The whole interval over rounds is above 1 plus `BOUND_SHARE`."""
STRAGGLER_WAIT = SEVERE_SHARE
"""One host waits where its share is so far above the median of the others', which is nobody's noise.
The whole interval of the difference over rounds is above `BOUND_SHARE`."""
FASTER_HOSTS = 0.25
"""The others are slow only if at least so many of the hosts are faster: fewer are what differs."""
HOSTS_CPU_BUSY = 0.80
"""Ranks of one machine may have waited for its cores from this share of its CPU on: a pipeline that takes all of two
cores is measured at 80 to 90 %, as `SATURATED_PERCENT` has it."""
MOST_GAIN = 20.0
"""A bound of a gain that is larger is said to be more than this: of a step that does nothing but wait, it is no figure.
"""

# --- where a watched training's time went --------------------------------------------------------------------------

SLOWER_EPOCHS = 1.25
"""Later epochs that each take so many times the first one, each of them without its first step, are reported."""
LONG_FIRST_BATCH_S = 10.0
"""A first batch that was waited for longer than this is reported: a shuffle buffer that is filled, most often."""
EPOCH_START_SHARE = 0.10
"""The share of the later epochs that waits for their first batches, from which it is reported."""
ITERATOR_END_SHARE = 0.02
"""The share of the later epochs that waits for the ends of iterators, from which it is reported."""
SHORT_STEP_MS = 10.0
"""Of a shorter step of Keras its own work for each is a part that counts (docs/run.md, "Short steps")."""
STEPS_A_CALL = 16
"""Of such steps: with these few, what Keras does for a batch is still done often."""
GROWTH_EPOCHS = 3
"""From so many epochs on, in each of which the memory grew, it is called growing."""
GROWTH_SHARE = 0.02
"""Growth of the memory an epoch, as a share of the machine's, from which it is reported."""
