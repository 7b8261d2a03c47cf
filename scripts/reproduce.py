#!/usr/bin/env python3
"""reproduce.py - writes the tables of docs/reproduce.md from the rows in docs/papers.

    scripts/reproduce.py            rewrites what stands between the page's markers
    scripts/reproduce.py --check    fails if that would change the page

A marker <!-- PAPER.tsv --> begins what <!-- end --> ends.
"""
import itertools
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = os.path.join(ROOT, "docs", "reproduce.md")
STATES = {
    "quoted": "quoted from elsewhere, not built",
    "missing": "not built",
    "drawing": "drawing",
}


def shown(command):
    """The commands of a row, one a line of its cell."""
    return "<br>".join(f"`{c}`" for c in command.split("; "))


def order(place):
    """Tables first, then figures, then the text."""
    kinds = ["Table", "Figure", "Algorithm", "Section", "Appendix", "Protocols"]
    first = place.split(",")[0]
    number = re.search(r"\d+", first)
    return kinds.index(first.split(" ")[0]), int(number[0]) if number else 0, first


def tables(file, page):
    """The tables of a paper. Its data sets have one of their own in the page, written by hand."""
    with open(os.path.join(ROOT, "docs", "papers", file), encoding="utf-8") as f:
        rows = [line.rstrip("\n").split("\t") for line in f][1:]
    for row in rows:
        if row[0] == "Data" and f"`{row[3]}`" not in page:
            sys.exit(f"docs/reproduce.md: the data sets lack '{row[3]}'")
    rows = [row for row in rows if row[0] != "Data"]
    rows.sort(key=lambda row: order(row[0]))
    text = ""
    for place, group in itertools.groupby(rows, key=lambda row: row[0]):
        text += f"\n### {place}\n\n| row | command | printed | remark |\n|---|---|---|---|\n"
        for _, row, state, command, printed, remark in group:
            cells = [row, shown(command) if command else STATES[state], printed, remark]
            text += "| " + " | ".join(c.replace("|", "\\|").replace("*", "\\*") if i != 1 else c
                                      for i, c in enumerate(cells)) + " |\n"
    return text


def main():
    with open(PAGE, encoding="utf-8") as f:
        old = f.read()
    new = re.sub(r"(<!-- ([a-z-]+\.tsv) -->\n).*?(?=\n<!-- end -->)",
                 lambda m: m[1] + tables(m[2], old).rstrip("\n") + "\n", old, flags=re.S)
    if sys.argv[1:] == ["--check"]:
        if new != old:
            sys.exit("docs/reproduce.md: run scripts/reproduce.py, docs/papers has changed")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    elif new != old:
        with open(PAGE, "w", encoding="utf-8") as f:
            f.write(new)


if __name__ == "__main__":
    main()
