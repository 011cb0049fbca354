"""Foreign text made safe: nothing steers a terminal, everything can be written, and no more is lost than must be."""

from __future__ import annotations

import re
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from pipeline_bench.text import Text, bounded, code_line, joined, message_of, one_line, safe, safe_message
from tests.unit.hostile import TEXT, unsafe


class Model(BaseModel):
    text: Text
    by_name: dict[Text, Text] = {}
    value: int | float | bool | Text | None = None


@given(TEXT)
def test_safe_text_steers_nothing_and_can_be_written(text: str) -> None:
    shown = safe(text)
    shown.encode("utf-8")
    assert not unsafe(shown)
    assert not {char for char in shown if unicodedata.category(char) in {"Cf", "Cs"}}


@given(TEXT)
def test_what_is_safe_stays_as_it_is(text: str) -> None:
    assert safe(safe(text)) == safe(text)
    assert safe_message(safe_message(text, 8), 8) == safe_message(text, 8)


def test_text_is_made_safe_after_user_code_has_cleared_the_modules() -> None:
    script = "\n".join(
        [
            "import sys",
            "from pipeline_bench.text import safe_message",
            "sys.path.clear(); sys.modules.clear()",
            r"print(safe_message('a\x1b[31mb\udce9'))",
        ]
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("ab\\xe9\n", "")


@pytest.mark.parametrize("text", ["", "a line", "two\nlines\n\tand a tab", "é 名前 × – \xa0 🙂", "[31m", "\ufffd"])
def test_ordinary_text_is_not_touched(text: str) -> None:
    assert safe(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mb\x1b[0mc", "abc"),
        ("a\x1b]0;title\x07b\x1b]0;title\x1b\\c", "abc"),
        ("a\x9b31mb\x9d0;title\x9cc", "abc"),
        ("a\x1bb\x07c\x7fd\x80e\x9b", "a\ufffdb\ufffdc\ufffdd\ufffde\ufffd"),
        ("dos\r\nand mac\rand \x85next\u2028line", "dos\nand mac\nand \nnext\nline"),
        ("a\u202eb\u2066c", "a\ufffdb\ufffdc"),
        ("caf\udce9.py", "caf\\xe9.py"),
        ("a\ud800b", "a\ufffdb"),
    ],
)
def test_what_steers_is_removed_or_shown(text: str, shown: str) -> None:
    assert safe(text) == shown


def test_a_long_text_keeps_its_beginning_and_its_end() -> None:
    text = "beginning" + "x" * 100 + "end"
    assert bounded(text, 30) == "beginningxxx […] xxxxxxxxxxend"
    assert len(bounded(text, 30)) <= 30
    assert bounded("short", 30) == "short"


def test_a_message_of_many_megabytes_is_cut() -> None:
    assert len(message_of(ValueError("\x1b]0;" * (1 << 24)))) <= 10_000


def test_an_exception_that_cannot_say_what_it_is_says_nothing() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise ValueError("planted")

    assert message_of(MuteError()) == ""


@given(TEXT)
def test_a_field_of_a_model_takes_any_text(text: str) -> None:
    made = Model(text=text, by_name={text: text}, value=text)
    assert made.text
    assert not unsafe(made.text + "".join(made.by_name) + str(made.value))
    assert Model.model_validate_json(made.model_dump_json(), strict=True) == made


@pytest.mark.parametrize("value", [None, 0, 1, True, 2.5, "5"])
def test_a_field_that_may_be_a_text_stays_what_it_is(value: object) -> None:
    assert type(Model.model_validate({"text": "", "value": value}).value) is type(value)


def test_a_name_of_escape_sequences_only_is_no_empty_name() -> None:
    assert Model(text="\x1b[0m").text == "\ufffd"


@given(st.text())
def test_one_line_is_one_line(text: str) -> None:
    assert not re.search(r"[\n\t]|  ", one_line(text))


def test_foreign_text_is_one_safe_line() -> None:
    assert one_line("a\x1b[31mb\u202ec\n\td\x1b]0;title\x07e\x00") == "ab�c de�"
    assert one_line("abcdef", 4) == "abc…"


def test_a_line_of_code_keeps_its_blanks_and_nothing_that_steers() -> None:
    assert code_line("\tds = ds.map(f)   # é 名\r\n") == "    ds = ds.map(f)   # é 名"
    assert code_line("a\x1b[31mb\u202ec\x07") == "ab\ufffdc\ufffd"
    assert code_line("x" * 10, 5) == "xxxx…"
    assert code_line("") == ""


@pytest.mark.parametrize(
    ("names", "word", "shown"),
    [
        ([], "or", ""),
        (["a"], "or", "a"),
        (["a", "b", "c"], "or", "a, b or c"),
        (["a", "b", "c"], "", "a, b, c"),
        (["a, 1", "b"], "and", "a, 1 and b"),
        (["a, 1", "a, 2", "b"], "and", "a, 1; a, 2; and b"),
        (["a, 1", "b"], "", "a, 1; b"),
    ],
)
def test_names_are_joined_as_in_a_sentence(names: list[str], word: str, shown: str) -> None:
    assert joined(names, word) == shown
