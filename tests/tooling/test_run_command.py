"""`python -m cudnn_rnn run` runs unmodified programs, each in its own process."""

import os
import py_compile
import textwrap
import zipapp
import zipfile

import pytest

from helpers.keras_layers import needs_keras_3
from helpers.processes import output_of, run_python
from helpers.versions import IS_TENSORFLOW_1, needs_tensorflow_2

pytestmark = pytest.mark.ci

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


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Makes a new folder the working directory; returns its path."""
    monkeypatch.chdir(tmp_path)
    return os.getcwd()


def write(path, text):
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "w") as file:
        file.write(textwrap.dedent(text))


# Python runs without the checkout on its path.
ENVIRONMENT = {"PYTHONPATH": None, "CUDA_VISIBLE_DEVICES": ""}
RUN = "-m", "cudnn_rnn", "run"


def run(*arguments):
    """Runs Python; returns (status, output, errors)."""
    process = run_python("-W", "ignore", *arguments, **ENVIRONMENT)
    return process.returncode, process.stdout, process.stderr


def run_program(*arguments):
    """Runs a program that must succeed with the command; returns its output."""
    return output_of("-W", "ignore", *RUN, *arguments, **ENVIRONMENT)


@pytest.mark.sampled(4)
def test_a_program_of_tensorflow_1_2(folder):
    path = os.path.join(folder, "program.py")
    write(path, PROGRAM)
    arguments = [path, "--epochs", "3", "-m", "--tf1"]
    output = run_program("--tf-contrib-version", "1.2", *arguments)
    assert "mode auto_select" in output
    assert "argv %r" % arguments in output


@pytest.mark.once
@pytest.mark.sampled(4)
@pytest.mark.parametrize("arguments", [["--"], ["--", "--b"], ["a", "--", "b"], ["--help", "-m"]])
def test_arguments_are_passed_to_the_program(arguments):
    write("program.py", "import sys; print(sys.argv)")
    output = run_program("program.py", *arguments)
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


@pytest.mark.sampled(4)
def test_flags_of_tensorflow_and_of_python():
    write("program.py", FLAGS)
    status, output, errors = run(*RUN, "program.py", "--epochs=5")
    assert status == 3, errors
    assert "flags 5 5" in output


FAILING = {
    "error": "def f():\n    1 / 0\n\nf()\n",
    "in_a_neighbour": "import neighbour\nneighbour.fail()\n",
    "syntax": "x = )\n",
    "chained": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise OSError from e\n",
    "interrupted": "raise KeyboardInterrupt\n",
}


@pytest.mark.once
@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "kind, program",
    [(kind, ["program.py"]) for kind in sorted(FAILING)] + [("error", ["-m", "program"])],
)
def test_tracebacks_are_those_of_plain_python(kind, program):
    write("neighbour.py", "def fail():\n    raise OSError('from here')\n")
    write("program.py", FAILING[kind])
    expected_status, _, expected = run(*program)
    status, _, errors = run(*RUN, *program)
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


HOOKED = "import sys\nsys.excepthook = lambda *a: print('hooked', a[0].__name__)\n1 / 0\n"


@pytest.mark.once
@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "text, expected, in_output, in_errors",
    [
        ("raise SystemExit(5)", 5, [], []),
        ("import sys; sys.exit('a reason')", 1, [], ["a reason"]),
        ("1 / 0", 1, [], ["ZeroDivisionError", "program.py"]),
        (HOOKED, 1, ["hooked ZeroDivisionError"], []),
    ],
)
def test_exit_status_and_excepthook_are_those_of_the_program(text, expected, in_output, in_errors):
    write("program.py", text)
    status, output, errors = run(*RUN, "--tf-contrib-version", "1.3", "program.py")
    assert status == expected
    for part, printed in [(p, output) for p in in_output] + [(p, errors) for p in in_errors]:
        assert part in printed


@pytest.mark.sampled(2)
@pytest.mark.once
def test_paths_and_main_are_those_of_plain_python():
    program = os.path.join("folder", "program.py"), "a", "--b"
    write(program[0], SURROUNDINGS)
    expected = output_of("-W", "ignore", *program, **ENVIRONMENT)
    assert run_program("--tf-contrib-version=1.3", *program) == expected


MODULE = """
    import os, sys
    from .helper import VALUE
    from tensorflow.contrib.cudnn_rnn import CudnnLSTM
    print(VALUE, __name__, __package__, sys.argv[1:], os.path.basename(sys.argv[0]))
    print(os.path.realpath(sys.path[0]))
"""


@pytest.mark.sampled(4)
@pytest.mark.once
def test_a_module(folder):
    write("package/__init__.py", "")
    write("package/helper.py", "VALUE = 7\n")
    write("package/program.py", MODULE)
    module = "-m", "package.program", "-x", "1"
    output = run_program("--tf-contrib-version", "1.3", *module)
    expected = ["7 __main__ package ['-x', '1'] program.py", os.path.realpath(folder)]
    assert output.splitlines()[-2:] == expected


@pytest.mark.once
@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "path", ["application", "application.zip", "application.pyz", "application/main.pyc"]
)
def test_a_folder_an_archive_or_a_compiled_file(path):
    write("application/helper.py", "VALUE = 7\n")
    source = "application/__main__.py"
    write(source, "import helper, sys\nprint(helper.VALUE, __name__, sys.argv)\n")
    if path.endswith(".zip"):
        with zipfile.ZipFile(path, "w") as archive:
            for name in ("helper.py", "__main__.py"):
                archive.write("application/" + name, name)
    elif path.endswith(".pyz"):  # starts with a line for the shell
        zipapp.create_archive("application", path, interpreter="/usr/bin/env python3")
    elif path.endswith(".pyc"):
        py_compile.compile(source, cfile=path, doraise=True)
    output = run_program("--tf-contrib-version", "1.3", path, "x")
    assert "7 __main__ %r" % [path, "x"] in output


TENSORFLOW_1_PROGRAM = """
    import tensorflow as tf
    from tensorflow.contrib.cudnn_rnn.python.ops import cudnn_rnn_ops
    from tensorflow.contrib.rnn import MultiRNNCell
    from tensorflow.python.framework import ops

    rnn = tf.contrib.cudnn_rnn.CudnnGRU(1, 2, 3)
    x = tf.placeholder(tf.float32, [None, None, 3])
    params = tf.get_variable("params", initializer=tf.random_uniform([rnn.params_size()]))
    outputs, _ = rnn(x, tf.zeros([1, 5, 2]), params, True)
    cells = [cudnn_rnn_ops.CudnnCompatibleLSTMCell(4), cudnn_rnn_ops.CudnnCompatibleGRUCell(2)]
    assert tf.contrib.rnn.MultiRNNCell is MultiRNNCell
    of_cells, _ = tf.nn.dynamic_rnn(
        MultiRNNCell(cells), x, sequence_length=[4, 2, 4, 1, 4], dtype=tf.float32, time_major=True)
    loss = tf.reduce_sum(outputs + of_cells)
    train = tf.train.AdamOptimizer(0.01).minimize(loss)
    assert ops.get_default_graph() is tf.get_default_graph()
    # 1 + 2 + 6 variables with two Adam slots each, and Adam's two powers of beta.
    assert len(tf.global_variables()) == 29
    feed = {x: [[[1.0] * 3] * 5] * 4}
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        before = session.run(loss, feed)
        session.run(train, feed)
        assert session.run(loss, feed) < before
    flags = tf.app.flags
    print("trained", tf.nn.softmax is not None, tf.layers is not None)
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("options", [(), ("--tf1",)])
def test_a_program_that_imports_tensorflow(options):
    write("program.py", TENSORFLOW_1_PROGRAM)
    arguments = options + ("--tf-contrib-version", "1.3", "program.py")
    if options or IS_TENSORFLOW_1:
        assert "trained" in run_program(*arguments)
    else:
        status, _, errors = run(*RUN, *arguments)
        assert status == 1
        assert "module 'tensorflow' has no attribute 'placeholder'" in errors
        assert "python -m cudnn_rnn run --tf1" in errors.splitlines()[-1]  # after the traceback


IMPORTS = """
    import importlib
    import tensorflow.python as whole
    import tensorflow.python.framework.ops as ops
    import tensorflow.python.ops.nn_ops as nn_ops
    import tensorflow.core.framework as protocols
    import tensorflow.core.framework.graph_pb2 as graph_pb2
    import tensorflow.contrib.cudnn_rnn as of_contrib
    import tensorflow.contrib.cudnn_rnn.python.ops.cudnn_rnn_ops as ops_of_contrib
    import tensorflow.compat.v1 as tf1
    import tensorflow.keras as keras
    import tensorflow
    import tensorflow as tf
    from tensorflow import contrib, python
    from tensorflow.contrib import cudnn_rnn
    from tensorflow.python import framework
    from tensorflow.python.framework import ops as same_ops

    assert whole is python is tensorflow.python
    assert ops is same_ops is framework.ops is tensorflow.python.framework.ops
    assert ops is importlib.import_module("tensorflow.python.framework.ops")
    assert ops.get_default_graph() is tf.get_default_graph() is tf1.get_default_graph()
    assert cudnn_rnn is of_contrib is contrib.cudnn_rnn is tf.contrib.cudnn_rnn
    assert ops_of_contrib.CudnnLSTM and nn_ops.softmax and keras.layers
    assert isinstance(tf.get_default_graph().as_graph_def(), graph_pb2.GraphDef)
    assert protocols.graph_pb2 is graph_pb2
    print("imported")
"""


@needs_tensorflow_2  # TensorFlow 1.15 itself has not all of these forms
@pytest.mark.sampled(2)
@pytest.mark.parametrize("first", ["", "import tensorflow.python.framework.ops as o; o.Graph()\n"])
def test_all_forms_of_import(first):
    write("program.py", first + textwrap.dedent(IMPORTS))
    assert "imported" in run_program("--tf1", "--tf-contrib-version", "1.15", "program.py")


KERAS_PROGRAM = """
    import tensorflow as tf
    import keras
    assert not tf.executing_eagerly() and tf.Session
    assert keras.ops.shape(keras.ops.zeros([2, 3]))[0] == 2
    print("both")
"""


@needs_keras_3
@pytest.mark.sampled(2)
def test_keras_works_beside_tensorflow_1():
    write("program.py", KERAS_PROGRAM)
    assert "both" in run_program("--tf1", "--tf-contrib-version", "1.3", "program.py")
