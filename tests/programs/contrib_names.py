"""Lists the names in `tensorflow/contrib/cudnn_rnn` of TensorFlow releases.

    python tests/programs/contrib_names.py 1.0=FOLDER ... 1.15=FOLDER > FILE

Each FOLDER holds an unpacked wheel of TensorFlow. The program parses the files and runs nothing.
FILE is tests/golden/contrib_names.txt.

A line is a module, a name in it, and the releases that have it. Names are those of functions,
classes, the members of classes, constants, and what is imported from modules about cudnn_rnn. Names
with two leading underscores, and imports of the rest of TensorFlow, are left out.
"""

import ast
import glob
import os
import sys

PACKAGE = "tensorflow*/**/contrib/cudnn_rnn"


def main(arguments):
    releases = {}  # (module, name) -> list of minor release numbers
    for argument in arguments:
        release, folder = argument.split("=")
        (package,) = glob.glob(os.path.join(glob.escape(folder), PACKAGE), recursive=True)
        bodies = {}
        for path in glob.glob(os.path.join(glob.escape(package), "**", "*.py"), recursive=True):
            module = os.path.relpath(path, package)[: -len(".py")].replace(os.sep, ".")
            with open(path, encoding="utf-8") as file:
                bodies[module.replace("__init__", "").rstrip(".")] = ast.parse(file.read()).body
        for module in bodies:
            for name in {""} | set(names_of_module(module, bodies)):  # "": the module itself
                releases.setdefault((module, name), []).append(int(release.split(".")[1]))
    for (module, name), minors in sorted(releases.items()):
        print(":".join([module, name]), ranges(sorted(minors)))


def names_of_module(module, bodies):
    """Yields the names that statements at the top of a module bind; `bodies`: of all modules."""
    for statement in bodies[module]:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            source = getattr(statement, "module", None) or ""
            for alias in statement.names:
                if alias.name == "*":
                    yield from names_for_star(source.rpartition("contrib.cudnn_rnn.")[2], bodies)
                elif "cudnn_rnn" in source + alias.name:
                    yield alias.asname or alias.name
        elif isinstance(statement, ast.ClassDef):
            yield from visible([statement.name])
            yield from (statement.name + "." + name for name in names_of_class(statement.body))
        else:
            yield from names_of_class([statement])


def names_for_star(module, bodies):
    """Returns the names that `from module import *` binds."""
    for statement in bodies.get(module, []):
        if isinstance(statement, ast.Assign) and statement.targets[0].id == "__all__":
            return ast.literal_eval(statement.value)
    names = names_of_module(module, bodies) if module in bodies else []
    return [name for name in names if not name.startswith("_") and "." not in name]


def names_of_class(body):
    """Yields the names that definitions and assignments bind."""
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            yield from visible([statement.name])
        elif isinstance(statement, ast.Assign):
            yield from visible(t.id for t in statement.targets if isinstance(t, ast.Name))


def visible(names):
    return [name for name in names if not name.startswith("__")]


def ranges(minors):
    """Returns for example "1.3-1.5,1.8" for [3, 4, 5, 8]."""
    parts = []
    for minor in minors:
        if parts and parts[-1][1] == minor - 1:
            parts[-1][1] = minor
        else:
            parts.append([minor, minor])
    return ",".join("1.%d" % a if a == b else "1.%d-1.%d" % (a, b) for a, b in parts)


if __name__ == "__main__":
    main(sys.argv[1:])
