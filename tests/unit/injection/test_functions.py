"""Which calls of a `tf.function` train."""

from __future__ import annotations

import sysconfig
import threading
from collections.abc import Callable

from pipeline_bench.injection.functions import Call, Functions


class Function:
    """Traces its body once, as a `tf.function` does for arguments of one kind."""

    def __init__(self, body: Callable[[], object]) -> None:
        self._body, self._traced = body, 0

    def experimental_get_tracing_count(self) -> int:
        return self._traced

    def trace(self) -> Function:
        if not self._traced:
            self._traced = 1
            self._body()
        return Function(lambda: None)


class Traced:
    """A concrete function."""


def takes_gradient(functions: Functions) -> Callable[[], object]:
    return lambda: list(functions.see_training())


def test_a_function_trains_where_a_gradient_is_taken_as_it_is_traced_and_so_does_the_one_around_it() -> None:
    functions = Functions(threading.local())
    step, validate = Function(takes_gradient(functions)), Function(lambda: None)
    outer = Function(lambda: functions.concrete(Call(step), step.trace))
    never = Function(lambda: None)
    for each in (outer, validate):
        with functions.inside(Call(each)):
            each.trace()
    assert [functions.train(Call(each)) for each in (outer, step, validate, never)] == [True, True, False, None]
    assert functions.outermost is None


def test_a_function_with_a_loop_that_trains_is_no_step_itself() -> None:
    thread = threading.local()
    functions, step = Functions(thread), Function(lambda: None)

    def body() -> None:
        thread.depth = 1  # as in the body of a watched loop
        with functions.inside(Call(step)):
            takes_gradient(functions)()
        thread.depth = 0

    epoch = Function(body)
    with functions.inside(Call(epoch)):
        epoch.trace()
    assert (functions.train(Call(epoch)), functions.train(Call(step))) == (False, True)


def test_a_concrete_function_trains_as_what_it_was_traced_of() -> None:
    functions = Functions(threading.local())
    step, validate = Function(takes_gradient(functions)), Function(lambda: None)
    assert functions.train(Call(functions.concrete(Call(step), step.trace))) is True
    assert functions.train(Call(functions.concrete(Call(step), step.trace))) is True, "also of a trace before"
    assert functions.train(Call(functions.concrete(Call(validate), validate.trace))) is False


def test_what_a_replicas_thread_traces_is_traced_of_the_function_that_it_was_begun_in() -> None:
    functions = Functions(threading.local())

    def replica() -> None:
        begin = functions.handed_on()
        thread = threading.Thread(target=lambda: (begin(), takes_gradient(functions)()))
        thread.start()
        thread.join()

    step = Function(replica)
    with functions.inside(Call(step)):
        step.trace()
    assert functions.train(Call(step))


def test_a_function_that_calls_what_was_traced_elsewhere_may_train() -> None:
    functions, loaded = Functions(threading.local()), Traced()

    def calls_it() -> None:
        with functions.inside(Call(loaded)):
            pass

    outer, other = Function(calls_it), Function(calls_it)
    for each in (outer, other):
        with functions.inside(Call(each)):
            each.trace()
    with functions.inside(Call(other)):
        takes_gradient(functions)()
    assert [functions.train(Call(each)) for each in (loaded, outer, other)] == [None, None, True]


def test_a_function_that_was_loaded_may_train_though_what_calls_it_is_traced_here() -> None:
    loaded = type("RestoredFunction", (Function,), {})(lambda: None)
    functions = Functions(threading.local())
    with functions.inside(Call(loaded)):
        loaded.trace()
    assert functions.train(Call(loaded)) is None


def test_one_function_trains_by_the_flags_that_it_was_traced_with() -> None:
    functions = Functions(threading.local())
    both, x = Function(lambda: None), object()
    validates, trains, by_name = (
        Call.of(both, (x, False), {}),
        Call.of(both, (x, True), {}),
        Call.of(both, (x,), {"training": True}),
    )
    with functions.inside(validates):  # as before the first epoch
        both.trace()
    assert [functions.train(each) for each in (validates, trains, by_name)] == [False, None, None]
    with functions.inside(trains):
        takes_gradient(functions)()
    assert [functions.train(each) for each in (validates, trains, by_name)] == [False, True, None]
    with functions.inside(by_name):  # has been traced
        pass
    assert functions.train(by_name) is True, "as it does in another way of writing, so that nothing is missed"
    assert functions.train(Call.of(both, (object(), True), {})) is True


def test_calls_that_trace_a_function_again_are_counted_by_its_line_and_not_the_first_with_each_flag() -> None:
    functions = Functions(threading.local())

    def step() -> None:
        """Stands for what the program wrote."""

    made = Function(step)
    made.python_function = step  # type: ignore[attr-defined]
    for training in (True, False):
        for shape in range(4):
            with functions.inside(Call.of(made, (shape, training), {})):
                made._traced += shape != 1
    (found,) = functions.traced_anew()
    line = f"test_functions.py:{step.__code__.co_firstlineno}"
    assert {**found, "seconds": 0} == {"function": "step", "line": line, "calls": 4, "seconds": 0}


def test_what_an_outer_function_traces_within_it_is_not_counted_again() -> None:
    functions, inner = Functions(threading.local()), Function(lambda: None)

    def body() -> None:
        with functions.inside(Call(inner)):
            inner._traced += 1

    outer = Function(body)
    for _ in range(3):
        with functions.inside(Call(outer)):
            outer._traced += 1
            body()
    assert [each["calls"] for each in functions.traced_anew()] == [2]


def test_calls_with_an_iterator_that_is_watched_are_traced_for_each_of_these() -> None:
    class ProbedIterator:
        def __init__(self, number: int) -> None:
            self._number = number

    functions, epoch = Functions(threading.local()), Function(lambda: None)
    for number in range(6):
        with functions.inside(Call.of(epoch, (ProbedIterator(number),), {})):
            epoch._traced += 1
    assert functions.traced_anew() == []


def test_a_function_of_keras_that_it_traces_again_is_not_told_of() -> None:
    scope: dict[str, Callable[[], None]] = {}
    exec(compile("def call(): pass", f"{sysconfig.get_path('purelib')}/keras/src/layers/flatten.py", "exec"), scope)
    functions, call = Functions(threading.local()), Function(scope["call"])
    call.python_function = scope["call"]  # type: ignore[attr-defined]
    for _ in range(3):
        with functions.inside(Call(call)):
            call._traced += 1
    assert functions.traced_anew() == []
