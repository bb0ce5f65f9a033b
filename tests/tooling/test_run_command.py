"""`python -m cudnn_rnn run` runs unmodified programs, each in its own process."""

import os
import py_compile
import subprocess
import sys
import textwrap
import zipapp
import zipfile

import pytest

from helpers.versions import IS_TENSORFLOW_1

PROGRAM = """
    import sys
    from tensorflow.contrib.cudnn_rnn import CudnnGRU
    from tensorflow.contrib.cudnn_rnn.python.ops import cudnn_rnn_ops
    print("mode", CudnnGRU(1, 2, 2).input_mode)
    print("argv", sys.argv)
"""

# Checks and prints what a program can see of its environment.
SURROUNDINGS = """
    import __main__, pickle, sys
    class Local:
        pass
    assert isinstance(pickle.loads(pickle.dumps(Local())), Local)
    assert __main__.Local is Local and __name__ == "__main__"
    print("name", __name__, "file", __file__, "argv", sys.argv, "path", sys.path[0])
    print(sorted(name for name in vars(__main__) if name.startswith("__") and name not in
          ("__cached__", "__warningregistry__")))
"""


def write(folder, name, text):
    path = os.path.join(str(folder), name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(textwrap.dedent(text))
    return path


def run(*arguments, folder=None, python_options=()):
    """Runs Python in `folder`; returns (status, output, errors)."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    process = subprocess.run(
        [sys.executable, "-W", "ignore"] + list(python_options) + list(arguments),
        cwd=str(folder) if folder else os.path.dirname(os.path.abspath(__file__)),
        env=dict(environment, TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES=""),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )
    return process.returncode, process.stdout, process.stderr


def run_program(*arguments, **named):
    return run("-m", "cudnn_rnn", "run", *arguments, **named)


def test_a_program_of_tensorflow_1_2(tmp_path):
    path = write(tmp_path, "program.py", PROGRAM)
    status, output, errors = run_program(
        "--tf-contrib-version", "1.2", path, "--epochs", "3", "-m", "--tf1", folder=tmp_path
    )
    assert status == 0, errors
    assert "mode auto_select" in output
    assert "argv %r" % [path, "--epochs", "3", "-m", "--tf1"] in output


@pytest.mark.parametrize("arguments", [["--"], ["--", "--b"], ["a", "--", "b"], ["--help", "-m"]])
def test_arguments_are_passed_to_the_program(tmp_path, arguments):
    write(tmp_path, "program.py", "import sys; print(sys.argv)")
    status, output, errors = run_program("program.py", *arguments, folder=tmp_path)
    assert status == 0, errors
    assert output.splitlines()[-1] == repr(["program.py"] + arguments)


FLAGS = """
    from __future__ import print_function
    import argparse
    import tensorflow.compat.v1 as tf
    tf.app.flags.DEFINE_integer("epochs", 1, "how often")
    def main(unused):
        parser = argparse.ArgumentParser()
        parser.add_argument("--epochs", type=int)
        import sys
        print("flags", tf.app.flags.FLAGS.epochs, parser.parse_args(sys.argv[1:]).epochs)
        sys.exit(3)
    if __name__ == "__main__":
        tf.app.run()
"""


def test_flags_of_tensorflow_and_of_python(tmp_path):
    path = write(tmp_path, "program.py", FLAGS)
    status, output, errors = run_program(path, "--epochs=5")
    assert status == 3, errors
    assert "flags 5 5" in output


FAILING = {
    "error": "def f():\n    1 / 0\n\nf()\n",
    "in_a_neighbour": "import neighbour\nneighbour.fail()\n",
    "syntax": "x = )\n",
    "chained": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise OSError from e\n",
    "interrupted": "raise KeyboardInterrupt\n",
}


@pytest.mark.parametrize(
    "kind, as_module", [(kind, False) for kind in sorted(FAILING)] + [("error", True)]
)
def test_tracebacks_are_those_of_plain_python(tmp_path, kind, as_module):
    write(tmp_path, "neighbour.py", "def fail():\n    raise OSError('from here')\n")
    write(tmp_path, "program.py", FAILING[kind])
    program = ["-m", "program"] if as_module else ["program.py"]
    expected_status, _, expected = run(*program, folder=tmp_path)
    status, _, errors = run_program(*program, folder=tmp_path)
    assert status == expected_status
    assert last_traceback(errors) == last_traceback(expected)
    assert "cudnn_rnn" not in last_traceback(errors)


def last_traceback(errors):
    """Returns the printed exception without traceback headers and without runpy's frames."""
    lines = errors.splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith(("Traceback", "  File"))]
    kept, skipping = [], False
    for line in lines[min(starts) :]:
        if line.startswith("  "):
            is_place = line.startswith("  File")
            skipping = "runpy" in line if is_place else skipping
            if skipping:
                continue
        if not line.startswith("Traceback"):  # without frames, Python prints no header
            kept.append(line)
    return "\n".join(kept)


def test_excepthook_of_the_program_is_called(tmp_path):
    text = "import sys\nsys.excepthook = lambda *a: print('hooked', a[0].__name__)\n1 / 0\n"
    path = write(tmp_path, "program.py", text)
    status, output, _ = run_program(path)
    assert status == 1
    assert "hooked ZeroDivisionError" in output


def test_paths_and_main_are_those_of_plain_python(tmp_path):
    write(tmp_path, "folder/program.py", SURROUNDINGS)
    path = os.path.join("folder", "program.py")
    expected = run(path, "a", "--b", folder=tmp_path)
    assert expected[0] == 0, expected[2]
    found = run_program("--tf-contrib-version=1.3", path, "a", "--b", folder=tmp_path)
    assert found[:2] == expected[:2], found[2]


def test_a_module(tmp_path):
    write(tmp_path, "package/__init__.py", "")
    write(tmp_path, "package/helper.py", "VALUE = 7\n")
    write(
        tmp_path,
        "package/program.py",
        """
        import os, sys
        from .helper import VALUE
        from tensorflow.contrib.cudnn_rnn import CudnnLSTM
        print(VALUE, __name__, __package__, sys.argv[1:], os.path.basename(sys.argv[0]))
        print(os.path.realpath(sys.path[0]))
        """,
    )
    status, output, errors = run_program(
        "--tf-contrib-version", "1.3", "-m", "package.program", "-x", "1", folder=tmp_path
    )
    assert status == 0, errors
    assert output.splitlines()[-2:] == [
        "7 __main__ package ['-x', '1'] program.py",
        os.path.realpath(str(tmp_path)),
    ]


@pytest.mark.parametrize("path", ["application", "application.zip", "application.pyz"])
def test_a_folder_or_an_archive(tmp_path, path):
    write(tmp_path, "application/helper.py", "VALUE = 7\n")
    main = "import helper, sys\nprint(helper.VALUE, __name__, sys.argv)\n"
    write(tmp_path, "application/__main__.py", main)
    if path.endswith(".zip"):
        with zipfile.ZipFile(str(tmp_path / path), "w") as archive:
            for name in ("helper.py", "__main__.py"):
                archive.write(str(tmp_path / "application" / name), name)
    elif path.endswith(".pyz"):  # starts with a line for the shell
        folder = str(tmp_path / "application")
        zipapp.create_archive(folder, str(tmp_path / path), interpreter="/usr/bin/env python3")
    status, output, errors = run_program("--tf-contrib-version", "1.3", path, "x", folder=tmp_path)
    assert status == 0, errors
    assert "7 __main__ %r" % [path, "x"] in output


def test_a_compiled_file_can_import_its_neighbors(tmp_path):
    write(tmp_path, "application/helper.py", "VALUE = 7\n")
    source = write(tmp_path, "main.py", "import helper, sys\nprint(helper.VALUE, sys.argv)\n")
    py_compile.compile(source, cfile=str(tmp_path / "application" / "main.pyc"), doraise=True)
    path = os.path.join("application", "main.pyc")
    status, output, errors = run_program("--tf-contrib-version", "1.3", path, "x", folder=tmp_path)
    assert status == 0, errors
    assert "7 %r" % [path, "x"] in output


@pytest.mark.parametrize(
    "text, expected",
    [
        ("raise SystemExit(5)", 5),
        ("import sys; sys.exit('a reason')", 1),
        ("1 / 0", 1),
    ],
)
def test_exit_status_is_that_of_the_program(tmp_path, text, expected):
    path = write(tmp_path, "program.py", text)
    status, _, errors = run_program("--tf-contrib-version", "1.3", path)
    assert status == expected
    if "1 / 0" in text:
        assert "ZeroDivisionError" in errors and path in errors
    if "reason" in text:
        assert "a reason" in errors


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((), "the following arguments are required: SCRIPT or MODULE"),
        (("--tf-contrib-version", "2.1", "x.py"), 'must be a release of TensorFlow from "1.0"'),
        (("--tf-contrib-version", "1.3", "no_such_file.py"), "no_such_file.py does not exist"),
        (("--verbose", "x.py"), "unrecognized arguments|required"),
    ],
)
def test_wrong_arguments(arguments, message):
    import re

    status, _, errors = run_program(*arguments)
    assert status == 2
    assert re.search(message, errors), errors


def test_help():
    status, output, _ = run_program("--help")
    assert status == 0
    for part in ("--tf-contrib-version", "--tf1", "-m", "tensorflow.compat.v1"):
        assert part in output


TENSORFLOW_1_PROGRAM = """
    import tensorflow as tf
    from tensorflow.contrib.cudnn_rnn.python.ops import cudnn_rnn_ops
    from tensorflow.python.framework import ops

    rnn = tf.contrib.cudnn_rnn.CudnnGRU(1, 2, 3)
    x = tf.placeholder(tf.float32, [4, 5, 3])
    params = tf.get_variable("params", initializer=tf.random_uniform([rnn.params_size()]))
    outputs, _ = rnn(x, tf.zeros([1, 5, 2]), params, True)
    train = tf.train.AdamOptimizer().minimize(tf.reduce_sum(outputs))
    assert ops.get_default_graph() is tf.get_default_graph()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train, {x: [[[1.0] * 3] * 5] * 4})
    flags = tf.app.flags
    print("trained", tf.nn.softmax is not None, tf.layers is not None)
"""


@pytest.mark.parametrize("options", [(), ("--tf1",)])
def test_a_program_that_imports_tensorflow(tmp_path, options):
    path = write(tmp_path, "program.py", TENSORFLOW_1_PROGRAM)
    status, output, errors = run_program(*(options + ("--tf-contrib-version", "1.3", path)))
    if options or IS_TENSORFLOW_1:
        assert status == 0, errors
        assert "trained" in output
    else:
        assert status == 1
        assert "module 'tensorflow' has no attribute 'placeholder'" in errors
        assert "python -m cudnn_rnn run --tf1" in errors.splitlines()[-1]  # after the traceback


@pytest.mark.skipif(IS_TENSORFLOW_1, reason="requires TensorFlow 2")
def test_keras_works_beside_tensorflow_1(tmp_path):
    path = write(
        tmp_path,
        "program.py",
        """
        import tensorflow as tf
        import keras
        assert not tf.executing_eagerly() and tf.Session
        assert keras.ops.shape(keras.ops.zeros([2, 3]))[0] == 2
        print("both")
        """,
    )
    status, output, errors = run_program("--tf1", "--tf-contrib-version", "1.3", path)
    assert status == 0, errors
    assert "both" in output
