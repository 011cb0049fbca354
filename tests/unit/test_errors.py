"""The exceptions and the advice in them."""

import pytest

from pipeline_bench.errors import PipelineBenchError, ProtocolError, ScenarioError, SessionError, UsageError
from pipeline_bench.text import did_you_mean, sentence


@pytest.mark.parametrize(
    ("kind", "code"),
    [(PipelineBenchError, 1), (ProtocolError, 1), (UsageError, 2), (ScenarioError, 2), (SessionError, 2)],
)
def test_each_has_a_message_a_hint_and_an_exit_code(kind: type[PipelineBenchError], code: int) -> None:
    error = kind("It is full.", "Empty it.")
    assert (str(error), error.message, error.hint, error.exit_code) == ("It is full.", "It is full.", "Empty it.", code)
    assert kind("It is full.").hint == ""


def test_the_nearest_name_comes_first() -> None:
    assert did_you_mean("tf_dat", ["feed_dict", "tf_data"]) == "did you mean 'tf_data'? (allowed: feed_dict, tf_data)"


def test_without_a_near_name_all_are_told() -> None:
    assert did_you_mean("zzz", ["b", "a"]) == "allowed: a, b"


def test_nothing_allowed_is_told() -> None:
    assert did_you_mean("x", []) == "none is allowed here"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("it failed.", "It failed."), ("train.py failed", "train.py failed"), ("no.", "No."), ("", "")],
)
def test_a_sentence_begins_with_a_capital_letter_or_a_files_name(text: str, expected: str) -> None:
    assert sentence(text) == expected
