#!/usr/bin/env python3
"""Compares the generated parts of a page with a program's output: compare_page.py PROGRAM PAGE [--write].

A part stands between `<!-- journey: NAME -->` and `<!-- end -->`. --write puts the program's parts into the page.
"""
import re
import subprocess
import sys

PART = re.compile(r"<!-- journey: (.+?) -->\n(.*?)<!-- end -->\n", re.DOTALL)


def parts_of(text):
    return {name: body for name, body in PART.findall(text)}


def first_difference(name, page, program):
    page_lines, program_lines = page.splitlines(), program.splitlines()
    for number, (ours, theirs) in enumerate(zip(page_lines, program_lines), start=1):
        if ours != theirs:
            return f"part '{name}', line {number}\n  page:    {ours}\n  program: {theirs}"
    return f"part '{name}': {len(page_lines)} lines in the page, {len(program_lines)} from the program"


def main():
    program, page_path = sys.argv[1:3]
    output = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    wanted = parts_of(output)
    with open(page_path, encoding="utf-8") as file:
        page = file.read()
    if "--write" in sys.argv[3:]:
        page = PART.sub(lambda m: f"<!-- journey: {m[1]} -->\n{wanted[m[1]]}<!-- end -->\n", page)
        with open(page_path, "w", encoding="utf-8") as file:
            file.write(page)
    found = parts_of(page)
    if not wanted or set(found) != set(wanted):
        sys.exit(f"the page has the parts {sorted(found)}, the program prints {sorted(wanted)}")
    for name, body in wanted.items():
        if found[name] != body:
            sys.exit(first_difference(name, found[name], body) + f"\nrun: {sys.argv[0]} {program} {page_path} --write")


if __name__ == "__main__":
    main()
