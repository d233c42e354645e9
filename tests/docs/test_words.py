"""One word for one thing: what people read uses the glossary's words and none of its synonyms."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from cede.cli.commands import cli
from cede.model.reason import SENTENCES

ROOT = Path(__file__).parents[2]

# What not to say, and the word for it. In Slurm work is a job, and there it is called so.
INSTEAD = {
    r"(?<!Slurm )(?<!outside )jobs?": "request or work",
    r"quota holders?": "subject",
    r"evictions?": "preemption",
    r"soft limits?": "reserved",
    r"hard limits?": "limit",
    r"resource claims?": "request",
    r"workspaces?": "subject or pool",
}
_BANNED = re.compile(rf"\b(?:{'|'.join(INSTEAD)})\b", re.IGNORECASE)
_CODE = re.compile(r"^```.*?^```|`[^`\n]+`|\"[^\"\n]*\"", re.MULTILINE | re.DOTALL)


def wrong_words(text: str) -> list[str]:
    """Banned words in running text; code and quotations are left out."""
    return _BANNED.findall(_CODE.sub("", text))


PAGES = [
    path
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if path.name not in ("glossary.md", "differences.md")
]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_pages_use_the_words(path: Path) -> None:
    assert wrong_words(path.read_text()) == []


def _helps(command: click.Command, path: str) -> Iterator[tuple[str, str]]:
    yield path, command.help or ""
    for each in command.params:
        if isinstance(each, click.Option):
            yield f"{path} {each.opts[0]}", each.help or ""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from _helps(child, f"{path} {name}")


def test_the_command_line_uses_the_words() -> None:
    assert {path: found for path, text in _helps(cli, "cede") if (found := wrong_words(text))} == {}


def test_reasons_use_the_words() -> None:
    texts = [text for both in SENTENCES.values() for text in both]
    assert [text for text in texts if wrong_words(text)] == []


def test_the_api_uses_the_words() -> None:
    from fastapi import FastAPI

    from cede.server.api import plan, policies, pools, requests, system, tokens

    app = FastAPI()
    for module in (pools, policies, requests, plan, tokens, system):
        app.include_router(module.router)
    texts = re.findall(r'"(?:description|summary|title)": "([^"]*)"', json.dumps(app.openapi()))
    assert len(texts) > 50
    assert [text for text in texts if wrong_words(text)] == []


def test_a_wrong_word_is_found() -> None:
    assert wrong_words("A job waits for its quota holder.") == ["job", "quota holder"]
    assert wrong_words('`job` and "job"\n```\njob\n```\n') == []


def test_every_word_of_the_glossary_is_used() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text()
    words = listed(glossary) - {"word"}
    assert len(words) > 40
    code = [path.read_text().lower() for path in (ROOT / "src").rglob("*.py")]
    used = " ".join([*(path.read_text().lower() for path in PAGES), *code])
    assert [word for word in sorted(words) if word.lower() not in used] == []


def test_pages_are_short() -> None:
    """But for the list of modules, in which people look things up."""
    pages = [path for path in PAGES if path.name != "modules.md"]
    assert {path.name for path in pages if len(path.read_text().splitlines()) > 200} == set()


def listed(glossary: str) -> set[str]:
    """The words that the tables of the glossary explain."""
    cells = re.findall(r"^\| ([^|]+) \|", glossary, re.MULTILINE)
    return {word.strip(" `") for cell in cells for word in cell.split(",")}


# Words that the code uses in a special sense: each is a class of the engine or the server.
CODE_WORDS = (
    *("PoolLedger", "NodeInventory", "Queue", "QueueKey", "Cursor", "EligibleNodes", "Preemptor"),
    *("StopPolicy", "StopProgress", "Journal", "OrderBoard"),
)


@pytest.mark.parametrize("word", CODE_WORDS)
def test_the_glossary_explains_the_words_of_the_code(word: str) -> None:
    assert word in listed((ROOT / "docs" / "glossary.md").read_text())
    assert any(
        re.search(rf"^class {word}\b", path.read_text(), re.MULTILINE)
        for path in (ROOT / "src" / "cede").rglob("*.py")
    )


def test_a_word_that_is_not_in_a_table_is_missed() -> None:
    assert listed("| word | meaning |\n|---|---|\n| `Queue`, lane | waiters |\nBooks") == {
        *("word", "Queue", "lane"),
    }
