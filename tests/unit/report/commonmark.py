"""Markdown as a reader sees it, by a parser of CommonMark with GitHub's tables (markdown-it-py, which rich brings)."""

from __future__ import annotations

from collections.abc import Iterator

from markdown_it import MarkdownIt
from markdown_it.token import Token

STRUCTURE = {"text", "softbreak", "hardbreak", "strong_open", "strong_close", "em_open", "em_close", "html_inline"}


def inline_tokens(text: str) -> Iterator[Token]:
    """Every inline token, the parser's typographic replacements left out."""
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        yield from token.children or ()


def shown(text: str) -> str:
    """The text that a reader sees, markup taken away."""
    return "".join(token.content for token in inline_tokens(text) if token.type == "text")


def unwanted(text: str) -> list[Token]:
    """The tokens that a report never makes: links, pictures, code, HTML other than ``<sub>``, blocks of code."""
    blocks = MarkdownIt("commonmark").enable("table").parse(text)
    found = [token for token in blocks if token.type in ("code_block", "fence", "html_block", "blockquote_open", "hr")]
    found += [token for token in inline_tokens(text) if token.type not in STRUCTURE]
    found += [t for t in inline_tokens(text) if t.type == "html_inline" and t.content not in ("<sub>", "</sub>")]
    return found
