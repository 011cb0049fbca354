"""Scenario files as nobody should write them: keys, values, tables and bytes of the shipped ones changed at random."""

from __future__ import annotations

import base64
import re
import tomllib
from random import Random

from tests.campaign.bench import Bench
from tests.campaign.kinds import Case
from tests.campaign.outcome import Outcome
from tests.campaign.processes import ROOT, Program
from tests.campaign.words import NUMBERS, TEXTS, damaged, values

COUNT = 400
WAITS = False
_SHIPPED = sorted((ROOT / "scenarios").glob("*.toml"))
_KEY = re.compile(r"^(\s*)([A-Za-z_]+)( *= *)(.+)$")
_REAL_EVERY = 25
_PLUGINS = ("image_folder", "tfrecord", "npz", "csv", "generator", "memory", "slow_storage", "emulated", "mnist_cnn")
_LINES = values("scenario_lines.jsonl")


def plan(random: Random, number: int) -> Case:
    """Draw a file, and what it is given to."""
    text = random.choice(_SHIPPED).read_text("utf-8")
    for _ in range(random.choice((1, 1, 2, 4))):
        text = _changed(text, random)
    content = text.encode("utf-8", errors="surrogatepass")
    if random.random() < 0.1:
        content = damaged(content, random)
    return {
        "content": base64.b64encode(content).decode(),
        "command": random.choice(("scenarios", "compare")),
        "real": number % _REAL_EVERY == 0,
    }


def attempt(case: Case, bench: Bench) -> list[Outcome]:
    """Have the file checked, or run as far as the start of its trials; what is printed of it must be its like."""
    file = bench.folder / "mine.toml"
    file.write_bytes(base64.b64decode(case["content"]))
    if case["real"]:
        return [Program(bench.folder, ["scenarios", file.name]).outcome(allowed=(0, 2))]
    if case["command"] == "compare":  # no process can be started there
        return [bench.warm.run(bench.folder, ["compare", file.name, "--no-live"], allowed=(1, 2))]
    printed = bench.warm.run(bench.folder, ["scenarios", file.name], allowed=(0, 2))
    if printed.code != 0:
        return [printed]
    (bench.folder / "again.toml").write_text(printed.stdout, "utf-8")
    again = bench.warm.run(bench.folder, ["scenarios", "again.toml"], allowed=(0,))
    if again.code == 0 and tomllib.loads(again.stdout) != tomllib.loads(printed.stdout):
        again.more.append("the scenario as it was printed is another scenario")
    return [printed, again]


def _changed(text: str, random: Random) -> str:
    """Change a value or a key, or take away, double, move or add a line."""
    lines = text.splitlines(keepends=True)
    at = random.randrange(len(lines)) if lines else 0
    match random.randrange(8):
        case 0 | 1 | 2 | 3:
            keys = [number for number, line in enumerate(lines) if _KEY.match(line)]
            if keys:
                at = random.choice(keys)
                lines[at] = _KEY.sub(lambda found: _line(found, random), lines[at])
        case 4:
            del lines[at : at + random.choice((1, 1, 3))]
        case 5:
            lines[at:at] = lines[at : at + 3]
        case 6:
            random.shuffle(lines)
        case _:
            lines.insert(at, random.choice(_LINES))
    return "".join(lines)


def _line(found: re.Match[str], random: Random) -> str:
    indent, key, equals, value = found.groups()
    if random.random() < 0.2:
        return f"{indent}{random.choice((key[:-1] or 'x', key + 's', 'kind', 'options'))}{equals}{value}"
    texts = (*TEXTS, *_PLUGINS)
    quoted = "".join(
        f"\\u{ord(char):04x}" if ord(char) < 0x20 or char in '"\\' else char for char in random.choice(texts)
    )
    values = (
        f'"{quoted}"',
        random.choice(NUMBERS),
        "true",
        "[]",
        "{}",
        "[[1]]",
        "1979-05-27",
        f"[{value}]",
        value[:-1],
    )
    return f"{indent}{key}{equals}{random.choice(values)}"
