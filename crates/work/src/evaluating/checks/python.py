"""Finds what keeps Python files from being imported, without running them: syntax errors, modules of the workspace that do
not exist, and names that they do not define. The arguments are the changed files. Reads these, the files that may import them,
and the modules that either imports. Prints the findings in the form of `ruff check --output-format=json`."""

import ast
import functools
import gc
import json
import os
import re
import sys

# Syntax trees have no cycles, but millions of objects, and the collector would visit them again and again.
gc.disable()

SKIPPED = {"venv", "node_modules", "__pycache__", "site-packages"}
# A module with any of these may define names, or have modules below it, that cannot be seen.
DYNAMIC = (b"globals(", b"__getattr__", b"sys.modules", b"exec(", b"vars(", b"setattr(", b"meta_path", b"__path__")
# In these, an import may fail or be left out.
UNCERTAIN = (ast.Try, ast.If, ast.With, getattr(ast, "TryStar", ast.Try), getattr(ast, "Match", ast.If))
changed = {os.path.normpath(path) for path in sys.argv[1:]}
findings = []


def report(path, line, message):
    findings.append({"filename": path, "location": {"row": line or 1}, "code": None, "message": message})


def python_files():
    for folder, folders, names in os.walk("."):
        folders[:] = [name for name in folders if name not in SKIPPED and not name.startswith(".")]
        yield from (os.path.normpath(os.path.join(folder, name)) for name in names if name.endswith(".py"))


def is_concerned(path):
    """Whether a file is changed or contains the name of a changed module: any other cannot import one."""
    if path in changed or path.startswith(changed_packages):
        return True
    text = read(path)
    return text is not None and not changed_names.isdisjoint(re.findall(rb"[\w\x80-\xff]+", text))


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


@functools.lru_cache(maxsize=None)
def parsed(path):
    """The certain imports of a file and the names that it defines (see there), or None if it cannot be read."""
    text = read(path)
    if text is None:
        return None
    try:
        tree = ast.parse(text, path)
        return list(certain_imports(tree)), defined(tree, b"global" in text)
    except (SyntaxError, ValueError) as error:
        if path in changed:
            report(path, getattr(error, "lineno", 1), getattr(error, "msg", None) or str(error))
    except (RecursionError, MemoryError):
        pass
    return None


def module(base, parts):
    """The file of a module below a folder: None if there is none, and "" if it has a form that is not read."""
    return module_at(os.path.normpath(os.path.join(base, *parts)))


@functools.lru_cache(maxsize=None)
def module_at(path):
    for file in (os.path.join(path, "__init__.py"), path + ".py"):
        if os.path.isfile(file):
            return os.path.normpath(file)
    binary = os.path.basename(path) + "."
    is_binary = any(name.startswith(binary) and not name.endswith(".py") for name in names_in(os.path.dirname(path) or "."))
    return "" if is_binary or os.path.isdir(path) else None


@functools.lru_cache(maxsize=None)
def names_in(folder):
    return os.listdir(folder) if os.path.isdir(folder) else []


def defined(tree, has_globals):
    """The names that a module defines, or None if not all of them can be seen."""
    names, open_blocks = set(), list(tree.body)
    while open_blocks:
        node = open_blocks.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
            inner = ast.walk(node) if has_globals else ()
            names.update(name for node in inner if isinstance(node, ast.Global) for name in node.names)
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            if any(alias.name == "*" for alias in node.names):
                return None
            names.update(alias.asname or alias.name.split(".")[0] for alias in node.names)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        # Names that patterns, handlers of errors and type aliases bind.
        names.update(name for name in (getattr(node, "name", None), getattr(node, "rest", None)) if isinstance(name, str))
        open_blocks.extend(ast.iter_child_nodes(node))
    return names


def certain_imports(tree):
    """The imports that are carried out unless an error of them is handled, or a condition decides."""
    blocks = [tree.body]
    for block in blocks:
        for node in block:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                yield node
            elif not isinstance(node, UNCERTAIN):
                blocks.extend(getattr(node, field, []) for field in ("body", "orelse"))


def check(path, node, name, base, parts, names):
    """Checks the import of a module, and of names from it."""
    file = module(base, parts)
    if any(is_dynamic(module(base, parts[:length])) for length in range(len(parts) + 1)):
        return
    if file is None:
        if path in changed or is_changed(base, parts):
            report(path, node.lineno, f"No module named '{name}'")
        return
    if not (path in changed or file in changed):
        return
    _, seen = parsed(file) or (None, None)
    for wanted in names if seen is not None else ():
        is_submodule = file.endswith("__init__.py") and module(base, [*parts, wanted]) is not None
        if wanted not in seen and wanted != "*" and not is_submodule and not wanted.startswith("__"):
            report(path, node.lineno, f"cannot import name '{wanted}' from '{name}' ({file})")


@functools.lru_cache(maxsize=None)
def is_dynamic(file):
    text = read(file) if file else None
    return text is not None and any(word in text for word in DYNAMIC)


def is_changed(base, parts):
    """Whether the module was changed, or removed."""
    place = os.path.normpath(os.path.join(base, *parts))
    return not changed.isdisjoint((place + ".py", os.path.join(place, "__init__.py")))


def check_absolute(path, node, name, names):
    parts = name.split(".")
    if parts[0] in getattr(sys, "stdlib_module_names", sys.builtin_module_names):
        return
    for base in (os.path.dirname(path) or ".", ".", "src"):
        if module(base, parts[:1]):
            return check(path, node, name, base, parts, names)
    own = [base for base in (".", "src") if is_changed(base, parts[:1])]
    if own:
        check(path, node, name, own[0], parts, names)


def check_imports(path, imports):
    for node in imports:
        if isinstance(node, ast.Import):
            for alias in node.names:
                check_absolute(path, node, alias.name, [])
            continue
        names = [alias.name for alias in node.names]
        if not node.level:
            check_absolute(path, node, node.module, names)
            continue
        base = os.path.dirname(path)
        for _ in range(node.level - 1):
            base = os.path.join(base, "..")
        if node.module:
            check(path, node, "." * node.level + node.module, base or ".", node.module.split("."), names)
        elif os.path.isfile(os.path.join(base, "__init__.py")):
            check(path, node, "." * node.level, base or ".", [], names)


def module_name(path):
    folder, file = os.path.split(path)
    return (os.path.basename(folder) if file == "__init__.py" else file[: -len(".py")]).encode()


changed_names = {module_name(path) for path in changed}
# Files of a package may import from it without its name.
changed_packages = tuple(
    os.path.dirname(path) + os.sep for path in changed if os.path.basename(path) == "__init__.py" and os.path.dirname(path)
)
for path in sorted(filter(is_concerned, python_files())):
    imports, _ = parsed(path) or ([], None)
    check_imports(path, imports)
print(json.dumps(findings))
