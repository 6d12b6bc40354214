"""The type stubs name what is there, with the same parameters."""
import ast
import importlib
import inspect
import pathlib

import pytest

import megamoe

PACKAGE = pathlib.Path(megamoe.__file__).parent


def parameters(node):
    arguments = node.args
    return [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
            if argument.arg not in ("self", "cls")]


def functions(tree):
    """(dotted name, parameters) of every function and method of a stub."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, parameters(node)
        elif isinstance(node, ast.ClassDef):
            for member in node.body:
                is_property = isinstance(member, ast.FunctionDef) and any(
                    isinstance(d, ast.Name) and d.id == "property" for d in member.decorator_list)
                if isinstance(member, ast.FunctionDef) and not is_property:
                    yield f"{node.name}.{member.name}", parameters(member)


def names(tree):
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.asname for alias in node.names if alias.asname)
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets)


@pytest.mark.parametrize("module, file", [("megamoe", "__init__.pyi"), ("megamoe.deep_gemm", "deep_gemm/__init__.pyi")])
def test_stubs_have_the_parameters_of_the_functions(module, file):
    tree = ast.parse((PACKAGE / file).read_text(encoding="utf-8"))
    module = importlib.import_module(module)
    for name, wanted in functions(tree):
        found = module
        for part in name.split("."):
            found = getattr(found, part)
        got = [parameter for parameter in inspect.signature(found).parameters if parameter not in ("self", "cls")]
        assert got == wanted, name
    assert set(module.__all__) <= set(names(tree)), "a public name has no stub"


def test_the_core_has_a_stub_of_every_name():
    from megamoe import _core

    tree = ast.parse((PACKAGE / "_core.pyi").read_text(encoding="utf-8"))
    there = {name for name in dir(_core) if not name.startswith("_")}
    stubbed = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    stubbed |= {node.target.id for node in tree.body if isinstance(node, ast.AnnAssign)}
    assert there - stubbed - {"annotations"} == set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            members = {m.name for m in node.body if isinstance(m, ast.FunctionDef)}
            assert {m for m in vars(getattr(_core, node.name)) if not m.startswith("_")} <= members, node.name
