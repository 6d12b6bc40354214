#!/usr/bin/env python3
"""Holds README.md and docs/*.md to the tree they describe: check_docs.py ROOT. Prints nothing when all is right."""
import pathlib
import re
import sys

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
# A file or a folder of the tree, from its root: "src/cpu/engine.cpp", "tests/cpu/".
PATH = re.compile(r"^[\w.*-]+(/[\w.*-]+)*/?$")
SUFFIXES = (".hpp", ".cpp", ".cuh", ".cu", ".md", ".py", ".txt", ".cmake", ".json")
# A function: "gemm1()", "Layer::forward()".
FUNCTION = re.compile(r"^(?:\w+::)*(~?\w+)\(\)$")
# A test as its source defines it, and as docs/faults.md names it.
TEST = re.compile(r"^TEST(?:_P|_F)?\((\w+),\s*(\w+)\)", re.MULTILINE)
TEST_NAME = re.compile(r"`([A-Z]\w*\.\w+)`")
CASES = 22
ROOMS = ("src/", "include/", "cli/", "tests/", "docs/", "cmake/", "tools/", "bench/")
# What the pages say about files that are the user's.
USERS_FILES = {"config.json", "model.safetensors.index.json"}


def anchors(text):
    titles = re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def sources(root):
    text = []
    for folder in ("src", "include", "cli", "tests"):
        for path in sorted((root / folder).rglob("*.?pp")):
            text.append(path.read_text(encoding="utf-8"))
    return "\n".join(text)


def check_links(root, page, text):
    for target in LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name) if name else page
        if not path.exists():
            yield f"the link {target} leads nowhere"
        elif anchor and anchor not in anchors(path.read_text(encoding="utf-8")):
            yield f"the link {target}: there is no such heading"


def check_names(root, text, code):
    for name in CODE.findall(text):
        function = FUNCTION.match(name)
        if function and not re.search(r"(?<!\w)" + re.escape(function[1]) + r"\(", code):
            yield f"`{name}` is no function of the sources"
        is_path = PATH.match(name) and ("/" in name or name.endswith(SUFFIXES)) and name not in USERS_FILES
        if is_path and (name.startswith(ROOMS) or name.endswith(SUFFIXES)) and not list(root.glob(name.rstrip("/"))):
            yield f"`{name}` is not in the tree"


def check_example(root, readme):
    example = (root / "docs/examples/first_layer.cpp").read_text(encoding="utf-8")
    if f"```cpp\n{example}```" not in readme:
        yield "the C++ example is not docs/examples/first_layer.cpp as it stands"


def check_regions(root):
    """Every region of the arena is explained where signals are."""
    declared = (root / "src/layout/arena.hpp").read_text(encoding="utf-8")
    page = (root / "docs/memory-order.md").read_text(encoding="utf-8")
    body = re.search(r"enum class RegionId : int \{(.*?)\};", declared, re.DOTALL)[1]
    for region in re.findall(r"\w+", body):
        if f"`{region}`" not in page:
            yield f"the region `{region}` is not in the page"


def tests_there_are(root):
    """"Suite.Test" of every test of the tree."""
    names = set()
    for path in sorted((root / "tests").rglob("*.cpp")):
        names.update(map(".".join, TEST.findall(path.read_text(encoding="utf-8"))))
    for path in sorted((root / "tests").rglob("*_test.py")):
        for part in re.split(r"^class ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
            suite = re.match(r"\w+", part)[0]
            names.update(f"{suite}.{test}" for test in re.findall(r"^    def (test_\w+)", part, re.MULTILINE))
    return names


def check_cases(root):
    """Every case from the field has a test, and every test that the page names is there."""
    page = (root / "docs/faults.md").read_text(encoding="utf-8")
    there = tests_there_are(root)
    for name in TEST_NAME.findall(page):
        if name not in there:
            yield f"there is no test {name}"
    rows = {int(row[1]): row[2] for row in re.finditer(r"^\| (\d+) \|(.*)\|$", page, re.MULTILINE)}
    if sorted(rows) != list(range(1, CASES + 1)):
        yield f"the cases are {sorted(rows)}, not 1 to {CASES}"
    for number, row in rows.items():
        if not TEST_NAME.search(row):
            yield f"case {number} names no test"


def main():
    root = pathlib.Path(sys.argv[1])
    code = sources(root)
    faults = []
    pages = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        prose = FENCE.sub("", text)
        faults += [f"{page.relative_to(root)}: {fault}"
                   for fault in [*check_links(root, page, prose), *check_names(root, prose, code)]]
    readme = (root / "README.md").read_text(encoding="utf-8")
    faults += [f"README.md: {fault}" for fault in check_example(root, readme)]
    faults += [f"docs/faults.md: {fault}" for fault in check_cases(root)]
    faults += [f"docs/memory-order.md: {fault}" for fault in check_regions(root)]
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
