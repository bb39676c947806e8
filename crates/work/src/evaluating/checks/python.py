"""Finds what keeps Python files from being imported, without running them: syntax errors, modules of the workspace that do not
exist, and names that they do not define. The arguments are the changed files; without any, every file is checked. Prints
the findings in the form of `ruff check --output-format=json`."""

import ast
import json
import os
import sys

SKIPPED = {"venv", "node_modules", "__pycache__", "site-packages"}
# A module with any of these may define names, or have modules below it, that cannot be seen.
DYNAMIC = (b"globals(", b"__getattr__", b"sys.modules", b"exec(", b"vars(", b"setattr(", b"meta_path", b"__path__")
# In these, an import may fail or be left out.
UNCERTAIN = (ast.Try, ast.If, ast.With, getattr(ast, "TryStar", ast.Try), getattr(ast, "Match", ast.If))
changed = {os.path.normpath(path) for path in sys.argv[1:]}
trees, texts, findings = {}, {}, []


def report(path, line, message):
    findings.append({"filename": path, "location": {"row": line or 1}, "code": None, "message": message})


def parse_all():
    for folder, folders, names in os.walk("."):
        folders[:] = [name for name in folders if name not in SKIPPED and not name.startswith(".")]
        for path in (os.path.normpath(os.path.join(folder, name)) for name in names if name.endswith(".py")):
            try:
                with open(path, "rb") as file:
                    texts[path] = file.read()
                trees[path] = ast.parse(texts[path], path)
            except (SyntaxError, ValueError) as error:
                if not changed or path in changed:
                    report(path, getattr(error, "lineno", 1), getattr(error, "msg", None) or str(error))
            except (OSError, RecursionError, MemoryError):
                pass


def module(base, parts):
    """The file of a module below a folder: None if there is none, and "" if it has a form that is not read."""
    path = os.path.normpath(os.path.join(base, *parts))
    for file in (os.path.join(path, "__init__.py"), path + ".py"):
        if os.path.isfile(file):
            return os.path.normpath(file)
    folder = os.path.dirname(path) or "."
    siblings = os.listdir(folder) if os.path.isdir(folder) else []
    is_binary = any(name.startswith(os.path.basename(path) + ".") and not name.endswith(".py") for name in siblings)
    return "" if is_binary or os.path.isdir(path) else None


def defined(tree):
    """The names that a module defines, or None if not all of them can be seen."""
    names, open_blocks = set(), list(tree.body)
    while open_blocks:
        node = open_blocks.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
            names.update(name for inner in ast.walk(node) if isinstance(inner, ast.Global) for name in inner.names)
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
    nodes = [tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        if not isinstance(node, UNCERTAIN):
            nodes.extend(ast.iter_child_nodes(node))


def check(path, node, name, base, parts, names):
    """Checks the import of a module, and of names from it."""
    file = module(base, parts)
    if any(is_dynamic(module(base, parts[:length])) for length in range(len(parts) + 1)):
        return
    if file is None:
        if not changed or path in changed or any(is_of(one, base, parts) for one in changed):
            report(path, node.lineno, f"No module named '{name}'")
        return
    known = trees.get(file)
    if known is None or not (not changed or path in changed or file in changed):
        return
    seen = defined(known)
    for wanted in names if seen is not None else ():
        is_submodule = file.endswith("__init__.py") and module(base, [*parts, wanted]) is not None
        if wanted not in seen and wanted != "*" and not is_submodule and not wanted.startswith("__"):
            report(path, node.lineno, f"cannot import name '{wanted}' from '{name}' ({file})")


def is_dynamic(file):
    return any(word in texts.get(file, b"") for word in DYNAMIC)


def is_of(changed_file, base, parts):
    place = os.path.normpath(os.path.join(base, *parts))
    return changed_file in (place + ".py", os.path.join(place, "__init__.py"))


def check_absolute(path, node, name, names):
    parts = name.split(".")
    if parts[0] in getattr(sys, "stdlib_module_names", sys.builtin_module_names):
        return
    for base in (os.path.dirname(path) or ".", ".", "src"):
        if module(base, parts[:1]):
            return check(path, node, name, base, parts, names)
    own = [base for base in (".", "src") if any(is_of(one, base, parts[:1]) for one in changed)]
    if own:
        check(path, node, name, own[0], parts, names)


def check_imports(path, tree):
    for node in certain_imports(tree):
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


parse_all()
for path, tree in sorted(trees.items()):
    check_imports(path, tree)
print(json.dumps(findings))
