"""A function in two halves: run one after the other they give what it gives, or it is refused with a reason."""

from __future__ import annotations

from inspect import getsource
from textwrap import dedent
from typing import Any

import pytest

from pipeline_bench.tfdata import function_halves, map_functions
from pipeline_bench.tfdata.function_halves import CannotSplitError

AROUND = "SCALE = 3\ndef outside(x): return x + SCALE\n"


def ways(source: str, name: str = "f", called: str = "f", is_method: bool = False) -> list[function_halves.Split]:
    text = AROUND + dedent(source).strip("\n") + "\n"
    lines = [line.strip() for line in text.splitlines()]
    line = next(number for number, each in enumerate(lines, 1) if each.startswith((f"def {name}(", f"{name} =")))
    return function_halves.splits(text, name, line, map_functions.read(called), is_method)


def ran(text: str, name: str, *args: Any) -> Any:
    names: dict[str, Any] = {}
    exec(AROUND + dedent(text), names)
    return names[name](*args)


DIVIDED = {
    "one variable crosses": """
        def f(x, y):
            a = x * 2
            b = a + y
            return b * b
        """,
    "a docstring, comments and a tuple": """
        def f(x, y):
            '''What it
            does.'''
            # first
            a = x * 2  # twice
            # then
            b = (
                a,
                y,
            )
            return b, x
        """,
    "comments left of the statements": (
        "def f(x, y):\n    a = x * 2\n#   a = 0\n    b = (a +\n  y)\n# b = 0\n    c = b\n#\n    return c * b\n"
    ),
    "comprehensions, and a name that is set anew": """
        def f(x, y):
            parts = [p * 2 for p in (x, y)]
            a = sum(parts)
            parts = [p + a for p in (1, 2)]
            return sum(parts) + y
        """,
    "set anew in a branch alone": """
        def f(x, y):
            a = x * 2
            b = a + 1
            if y > 2:
                a = y
            return a + b
        """,
    "a parameter is set anew": """
        def f(x, y):
            x = x + 1
            x += y
            return x
        """,
    "an early return behind the division": """
        def f(x, y):
            a = x * 2
            if a > 1:
                return a
            return y
        """,
    "a function and a lambda within": """
        def f(x, y):
            def twice(x):
                return 2 * x
            a = twice(x)
            g = lambda y: y + a
            return g(y) + outside(a)
        """,
    "shadowed names in comprehensions": """
        def f(x, y):
            a = sum([x for x in range(5)]) + x
            b = {y: x for y in range(2)}
            return a, x, y, b
        """,
    "a dict that is changed": """
        def f(x, y):
            d = {"a": x, "b": y}
            d["c"] = d["a"] * 2
            d["a"] = 0
            return d
        """,
    "loops and conditions": """
        def f(x, y):
            total = 0
            for each in range(x):
                total = total + each
            if total > y:
                total = -total
            return total
        """,
    "a module is imported within": """
        def f(x, y):
            import math
            a = math.floor(x / 2)
            return math.ceil(a + y)
        """,
    "two names at once, and a walrus": """
        def f(x, y):
            (a, *b), c = [x, y, 4], y
            d = [e := a + c, c]
            return a, b, c, d, e
        """,
}


@pytest.mark.parametrize("source", DIVIDED.values(), ids=DIVIDED)
def test_two_halves_give_what_the_whole_gives(source: str) -> None:
    found = ways(source)
    assert [each.statements for each in found] == list(range(found[0].statements, source.count("import "), -1))
    for x, y in ((5, 3), (0, 7)):
        whole = ran(source, "f", x, y)
        for split in found:
            crossing = ran(split.fixed("f"), "f", x, y)
            args = crossing if len(split.crossing) > 1 else (crossing,)
            assert ran(split.random("f"), "f", *args) == whole, split


REFUSED = {
    "a decorator": ("@outside\ndef f(x):\n    a = x\n    return a", "a decorator"),
    "a lambda": ("f = lambda x: x", "no definition of its own"),
    "a method": ("class A:\n    def f(self, x):\n        a = x\n        return a", "a method"),
    "one statement": ("def f(x):\n    return x", "no line between"),
    "one line": ("def f(x): a = x; return a", "no line between"),
    "an early return": ("def f(x):\n    if x:\n        return x\n    a = x\n    return a", "no line between"),
    "defaults": ("def f(x, n=2):\n    a = x\n    return a", "plain names"),
    "any arguments": ("def f(*x):\n    a = x\n    return a", "plain names"),
    "a global": ("def f(x):\n    global SCALE\n    SCALE = x\n    return x", "variables of other functions"),
    "a generator": ("def f(x):\n    a = x\n    yield a", "a generator"),
    "locals": ("def f(x):\n    a = x\n    return locals()", "it uses locals"),
    "a text of lines": ("def f(x):\n    a = '''1\n2'''\n    return a", "several lines"),
    "a private name": ("def f(x):\n    a = x.__scale\n    return a", "uses __scale, a private name"),
    "nothing crosses": ("def f(x):\n    x\n    return 3", "no line between"),
}


@pytest.mark.parametrize(("source", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_may_not_do_the_same_in_two_halves_is_refused(source: str, reason: str) -> None:
    with pytest.raises(CannotSplitError, match=reason):
        ways(source)


def test_what_a_lambda_gives_for_all_elements_goes_to_the_halves_that_use_it() -> None:
    source = """
        def f(x, y, scale, back=False, size=(2, 3)):
            a = x * scale
            b = a + y
            if back:
                b = -b * size[0]
            return b
        """
    called = "lambda x, y: f(x, y, SCALE, back=True)"
    found = ways(source, called=called)
    assert [each.statements for each in found] == [3, 2, 1]
    for split in found:
        names: dict[str, Any] = {}
        exec(AROUND + dedent(source) + split.fixed("f_fixed") + "\n" + split.random("f_random"), names)
        whole, first, second = (
            eval(each, names) for each in (called, split.mapped(0, "f_fixed"), split.mapped(1, "f_random"))
        )
        crossing = first(5, 4)
        assert second(*(crossing if len(split.crossing) > 1 else (crossing,))) == whole(5, 4), split
    two = found[1]
    assert two.mapped(0, "f_fixed") == "lambda x, y: f_fixed(x, y, scale=SCALE)"
    assert two.mapped(1, "f_random") == "lambda b: f_random(b, back=True, size=(2, 3))"


def test_a_lambda_that_only_passes_its_parameters_on_leaves_the_halves_their_names() -> None:
    (split,) = ways("def f(x, y):\n    a = x * 2\n    return a + y", called="lambda a, b: f(a, b)")
    assert (split.mapped(0, "f_fixed"), split.mapped(1, "f_random")) == ("f_fixed", "f_random")


@pytest.mark.parametrize(
    ("source", "called", "reason"),
    [
        ("def f(x, n=SCALE):\n    a = x\n    return a * n", "lambda x: f(x)", "plain names"),
        ("def f(x, n):\n    n = n + x\n    return n", "lambda x: f(x, 2)", "sets its parameter n anew"),
        ("def f(x, n):\n    a = [n for n in x]\n    return a", "lambda x: f(x, 2)", "sets its parameter n anew"),
        ("def f(x, n):\n    a = x\n    return a * n", "lambda y: f(y, x)", "its lambda uses x, which is also"),
        ("def f(x, n):\n    a = x\n    return a * n", "lambda y: f(y, a)", "its lambda uses a, which is also"),
        ("def f(x, n):\n    a = x\n    return a * n", "lambda x: f(x, own.__n)", "uses __n, a private name"),
    ],
)
def test_what_a_lambda_gives_has_to_mean_the_same_in_both_halves(source: str, called: str, reason: str) -> None:
    with pytest.raises(CannotSplitError, match=reason):
        ways(source, called=called)


@pytest.mark.parametrize(
    "text",
    [
        "lambda x: f(x + 1)",
        "lambda x: f(x, g())",
        "lambda x: f(x, x)",
        "lambda x: f(x, n=x)",
        "lambda x, y: f(x)",
        "lambda x: f(x.path)",
        "lambda x: x.f(x)",
        "lambda x: a.b.f(x)",
        "lambda x: a.b[c](x)",
        "lambda x: (f(x), x)",
        "lambda x: (f(x),)",
        "lambda x: (x, f())",
        "lambda x, y: (y, f(x))",
        "lambda x, y: (f(x), y + 1)",
        "lambda x, y: (f(x), g(y))",
        "lambda x, y: (own.f(x), y)",
        "lambda x: f(x, *more)",
        "lambda x: f(x, **more)",
        "lambda *x: f(*x)",
        "lambda x, n=2: f(x, n)",
        "lambda f: f(f)",
        "lambda: f()",
        "lambda x: f(x,  # the path\n 2)",
        "f",
    ],
)
def test_a_lambda_that_does_more_than_call_a_function_is_no_such_call(text: str) -> None:
    assert map_functions.read(text) is None


def test_a_text_with_the_sign_of_a_comment_is_none() -> None:
    """The trial divided it, and the patch, which reads the lambda's text, said that it does more than one call."""
    assert map_functions.read("lambda x: f(x, '#')") == map_functions.CalledFunction("f", ("x",), ("x", "'#'"), {})


def test_what_a_lambda_hands_on_stands_beside_what_crosses_from_half_to_half() -> None:
    source = "def f(x, n, flips=True):\n    a = x * n\n    b = a + x\n    return a * b, flips"
    longest, shorter = ways(source, called="lambda name, p, y: (name, f(p, SIZE), y)")
    assert longest.mapped(0, "f_fixed") == "lambda name, x, y: (name, *f_fixed(x, n=SIZE), y)"
    assert longest.mapped(1, "f_random") == "lambda name, a, b, y: (name, f_random(a, b, flips=True), y)"
    assert shorter.crossing == ("x", "a")
    (split,) = ways("def f(x):\n    a = x\n    return a", called="lambda p, y: (f(p), y)")
    assert split.mapped(0, "f_fixed") == "lambda x, y: (f_fixed(x), y)"
    assert split.mapped(1, "f_random") == "lambda a, y: (f_random(a), y)"
    with pytest.raises(CannotSplitError, match="its lambda uses a, which is also the name of a variable in it"):
        ways("def f(x):\n    a = x\n    return a", called="lambda p, a: (f(p), a)")


@pytest.mark.parametrize("called", ["lambda p, y: f(label=y, path=p)", "lambda p, y: f(y, path=p)"])
def test_elements_that_a_lambda_gives_by_name_or_in_another_order_keep_the_order_of_the_map(called: str) -> None:
    """What a map gives is spread over the parameters of the halves by position."""
    source = "def f(label, path, times=2):\n    a = path * times\n    return a + label"
    (split,) = ways(source, called=called)
    assert split.fixed("f_fixed").startswith("def f_fixed(path, label, times):\n")
    assert split.mapped(0, "f_fixed") == "lambda path, label: f_fixed(path, label, times=2)"
    assert split.random("f_random") == "def f_random(label, a):\n    return a + label\n"


def test_a_method_that_a_lambda_calls_gets_its_object_and_what_is_the_same_for_all_elements() -> None:
    source = "class A:\n    def f(self, x, y, n, flips=False):\n        a = x * n\n        return a + y, flips"
    (split,) = ways(source, called="lambda p, y: self.f(p, y=y, n=SCALE)", is_method=True)
    assert split.fixed("f_fixed") == "def f_fixed(self, x, y, n):\n    a = x * n\n    return y, a\n"
    assert split.mapped(0, "self.f_fixed") == "lambda x, y: self.f_fixed(x, y, n=SCALE)"
    assert split.mapped(1, "self.f_random") == "lambda y, a: self.f_random(y, a, flips=False)"
    with pytest.raises(CannotSplitError, match="its lambda uses a, which is also"):
        ways(source, called="lambda p, y: a.f(p, y=y, n=SCALE)", is_method=True)


def test_both_halves_of_a_method_get_its_object() -> None:
    source = "class A:\n    scale = 2\n    def f(self, x, y):\n        a = x * self.scale\n        return a + y"
    (split,) = ways(source, is_method=True)
    assert split.fixed("f_fixed") == "def f_fixed(self, x, y):\n    a = x * self.scale\n    return y, a\n"
    assert split.random("f_random") == "def f_random(self, y, a):\n    return a + y\n"
    assert (split.mapped(0, "f_fixed"), split.mapped(1, "f_random")) == ("f_fixed", "f_random")


@pytest.mark.parametrize(
    "statement", ["self.last = x", "self.seen[0] = x", "self.count.all += 1", "del self.last", "self = x"]
)
def test_a_method_that_changes_its_object_is_not_divided(statement: str) -> None:
    source = f"class A:\n    def f(self, x):\n        {statement}\n        a = x\n        return a"
    with pytest.raises(CannotSplitError, match="changes its object"):
        ways(source, is_method=True)


class Loader:
    """Its methods are what a map may be given."""

    def load(self, path: str) -> str:
        return path

    @staticmethod
    def read(path: str) -> str:
        return path

    @classmethod
    def made(cls, path: str) -> str:
        return path


class Base:
    """What another class is derived from."""

    def load(self, path: str) -> str:
        return path


class Derived(Base):
    """One that has its method from that."""


def test_only_a_method_of_an_objects_own_class_from_which_no_other_is_derived_is_divided() -> None:
    loader = Loader()
    found = map_functions.defined(loader.load)
    assert found is not None
    assert (found.plain, found.owner) == (Loader.load, (loader,))
    half: Any = Loader.load
    assert found.of_elements(half, {})("a path") == "a path"
    static = map_functions.defined(loader.read)
    assert static is not None
    assert not static.owner
    for other in (loader.made, Base().load, Derived().load, loader, len):
        assert map_functions.defined(other) is None


def test_only_a_plain_function_of_the_same_file_counts_as_what_a_lambda_calls() -> None:
    found = map_functions.defined(lambda source: ways(source, "g"))
    assert found is not None
    called = map_functions.CalledFunction("ways", ("source",), ("source", "'g'"), {})
    assert (found.plain, found.called) == (ways, called)
    assert map_functions.defined(lambda text: dedent(text, *())) is None
    assert map_functions.defined(lambda name: map_functions.read(name)) is None  # noqa: PLW0108 - it is looked at
    signed, commented = (
        (lambda source: ways(source, "#")),
        (
            lambda source: ways(
                source,
                "g",  # it is looked at
            )
        ),
    )
    assert map_functions.defined(signed) is not None
    assert map_functions.defined(commented) is None
    loader = Loader()
    by_object = map_functions.defined(lambda one: loader.load(path=one))
    assert by_object is not None
    assert (by_object.plain, by_object.owner) == (Loader.load, (loader,))
    other = Loader()
    vars(other)["load"] = loader.load
    assert map_functions.defined(lambda one: other.load(one)) is None  # noqa: PLW0108 - likewise
    derived = Derived()
    assert map_functions.defined(lambda one: derived.load(one)) is None  # noqa: PLW0108 - it is looked at
    assert map_functions.defined(lambda one: loader.read(one)) is None  # noqa: PLW0108 - likewise
    one_of_two, _ = (lambda source: ways(source, "g")), (lambda source: ways(source, "h"))
    assert map_functions.defined(one_of_two) is None
    elsewhere = lambda text: getsource(text)  # noqa: E731, PLW0108 - likewise
    assert map_functions.defined(elsewhere) is None


WRAPPED = """
    def load(path, label, training=False):
        image = path * 2
        label = label + 1
        if training:
            image = -image
        return image, label
"""


def ways_within(source: str, called: str = "f") -> list[function_halves.Split]:
    text = AROUND + dedent(WRAPPED) + dedent(source).strip("\n") + "\n"
    line = next(number for number, each in enumerate(text.splitlines(), 1) if each.startswith("def f("))
    return function_halves.splits_within(text, "f", line, map_functions.read(called))


WRAPPERS = {
    "all that it does": "def f(x, y):\n    return load(x, y, True)",
    "by name": "def f(x, y):\n    return load(label=y, training=True, path=x)",
    "a variable": "def f(x, y):\n    image = load(x, y, training=SCALE)\n    return image, y",
    "several variables": "def f(x, y):\n    image, label = load(x, y)\n    # both\n    return label, image",
    "within a tuple": "def f(x, y):\n    '''Load.'''\n    return x, load(x, y, True), y * 2",
    "behind other statements": """
        def f(x, y):
            z = outside(y)
            import math
            a = load(x, y)
            return math.ceil(z), a
        """,
    "on several lines": "def f(x, y):\n    a = (3, load(\n        x,\n        y,\n    ))  # two\n    return a",
    "its names are taken": "def f(image, label):\n    found = load(image, label, True)\n    return found, image, label",
}


@pytest.mark.parametrize("source", WRAPPERS.values(), ids=WRAPPERS)
def test_a_function_that_calls_another_one_is_divided_within_that(source: str) -> None:
    found = ways_within(source)
    assert [each.statements for each in found] == [3, 2, 1]
    text, source = AROUND + dedent(WRAPPED), dedent(source)
    for split in found:
        assert split.within is not None
        of_called = split.within.split
        names: dict[str, Any] = {}
        halves = (of_called.fixed("load_1"), of_called.random("load_2"), split.fixed("f_1", "load_1"))
        exec("\n".join((text, source, *halves, split.random("f_2", "load_2"))), names)
        for x, y in ((5, 3), (0, 7)):
            crossing = names["f_1"](x, y)
            args = crossing if len(split.crossing) > 1 else (crossing,)
            assert names["f_2"](*args) == names["f"](x, y), split


def test_a_function_is_divided_within_another_one_as_one_would_write_it() -> None:
    one = ways_within("def f(x, y):\n    # decode\n    image, y = load(x, y, True)\n    return image, y")[-1]
    assert one.fixed("f_fixed", "load_fixed") == (
        "def f_fixed(x, y):\n    label, image = load_fixed(x, y)\n    return label, image\n"
    )
    assert one.random("f_random", "load_random").endswith(
        "    image, y = load_random(label, image, training=True)\n    return image, y\n"
    )


@pytest.mark.parametrize(
    "source",
    [
        "def f(x, y):\n    x = x + 1\n    return load(x, y)",  # what is computed before
        "def f(x, y):\n    a = load(x, y)\n    return a, load(x, y, True)",
        "def f(x, y):\n    return load(x + 1, y)",
        "def f(x, y):\n    return load(x, x)",
        "def f(x, y):\n    return load(x, outside(y))",
        "def f(x, y):\n    return load(x, y)[0]",
        "def f(x, y):\n    return load(x, y) if y else x",
        "def f(x, y):\n    return load(x,  # the path\n        y)",
        "def f(x, y):\n    return load(*(x, y))",
        "def f(x, y):\n    return load(x, y, z=1)",
        "def f(x, y):\n    return outside(x), load(x, y)",
        "def f(x, y): return load(x, y)",
        "def f(x, y):\n    if y:\n        return x\n    return load(x, y)",
    ],
)
def test_a_call_that_is_no_plain_one_of_one_function_divides_nothing(source: str) -> None:
    assert ways_within(source) == []


def test_what_a_lambda_gives_a_wrapper_reaches_the_halves_of_what_that_calls() -> None:
    source = "def f(x, y, training):\n    return load(x, y, training)"
    one = ways_within(source, "lambda a, b: f(a, b, training=True)")[-1]
    assert one.mapped(0, "f_fixed") == "f_fixed"
    assert one.mapped(1, "f_random") == "lambda label, image: f_random(label, image, training=True)"
    assert "    return load_random(label, image, training=training)\n" in one.random("f_random", "load_random")


def test_statements_on_one_line_stay_together() -> None:
    assert [each.statements for each in ways("def f(x):\n    a = x; b = a\n    return a, b")] == [2]


def test_what_a_comprehension_has_for_itself_or_is_set_anew_does_not_cross() -> None:
    """`p` had no value in the first half, whose `return` then failed; a cache kept `parts` for nothing."""
    two = next(each for each in ways(DIVIDED["comprehensions, and a name that is set anew"]) if each.statements == 2)
    assert two.crossing == ("y", "a")


def test_a_variable_that_the_second_half_sets_with_others_at_once_does_not_cross() -> None:
    one = ways("def f(x, y):\n    z = x + y\n    x, y = z, 2 * z\n    return x, y")[-1]
    assert one.crossing == ("z",)


def test_only_what_the_second_half_needs_crosses() -> None:
    source = "def f(x, y):\n    data = x * 2\n    image = data + 1\n    return image, y"
    assert [each.crossing for each in ways(source)] == [("y", "image"), ("y", "data")]
