"""A second import of the package in one process replaces the first import's TensorFlow hooks."""

import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
import functools, importlib, os, sys, tempfile
import tensorflow.compat.v1 as tf
tf.enable_eager_execution()
import cudnn_rnn

folder = tempfile.mkdtemp()

def object_error(saving, restoring):
    "What restoring into a layer of another size says; each argument is a version of the package."
    small, large = saving.layers.CudnnLSTM(1, 4), restoring.layers.CudnnLSTM(1, 5)
    for layer in small, large:
        layer.build([None, None, 3])
    path = tf.train.Checkpoint(rnn=small).write(os.path.join(folder, "objects"))
    try:
        tf.train.Checkpoint(rnn=large).restore(path)
    except tf.errors.InvalidArgumentError as error:
        return str(error)

def saver_error(saving, restoring):
    small, large = (package.layers.CudnnGRU(1, units, name="rnn")
                    for package, units in ((saving, 4), (restoring, 5)))
    for layer in small, large:
        layer.build([None, None, 3])
    with_saveable = tf.train.Saver([small.saveable])
    path = with_saveable.save(None, os.path.join(folder, "saver"))
    try:
        tf.train.Saver([large.saveable]).restore(None, path)
    except tf.errors.InvalidArgumentError as error:
        return str(error)

def import_again():
    for name in [name for name in sys.modules if name.split(".")[0] == "cudnn_rnn"]:
        del sys.modules[name]
    return importlib.import_module("cudnn_rnn")

def reload():
    for name in sorted(sys.modules, reverse=True):  # the package itself last
        if name.split(".")[0] == "cudnn_rnn" and "config" not in name:
            importlib.reload(sys.modules[name])
    return cudnn_rnn

%s
"""


def run(program):
    output = subprocess.run(
        [sys.executable, "-c", PROGRAM % textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )
    assert output.stdout.endswith("done\n"), output.stdout + output.stderr


@pytest.mark.parametrize("kind", ["object_error", "saver_error"])
@pytest.mark.parametrize("how", ["import_again", "reload"])
def test_errors_of_restoring(how, kind):
    """Restore errors are equal for layers of both imports, even if one saves and one restores."""
    run(
        """
        old, expected = cudnn_rnn, {kind}(cudnn_rnn, cudnn_rnn)
        assert expected and folder in expected, expected
        for _ in range(2):
            new = {how}()
            for saving in (old, new):
                for restoring in (new, old):
                    found = {kind}(saving, restoring)
                    assert found == expected, (expected, found)
        print("done")
        """.format(kind=kind, how=how)
    )


def test_hooks_do_not_accumulate():
    """Hooks do not accumulate, even if another library wrapped the function between the imports."""
    run(
        """
        from tensorflow.python.framework import meta_graph
        name = "import_scoped_meta_graph_with_return_elements"
        ours = getattr(meta_graph, name)
        restore = tf.train.Saver.restore
        calls = []

        @functools.wraps(ours)
        def foreign(*arguments, **named):
            calls.append(arguments)
            return ours(*arguments, **named)

        setattr(meta_graph, name, foreign)
        import_again()
        assert getattr(meta_graph, name) is foreign and tf.train.Saver.restore is restore
        with tf.Graph().as_default():
            tf.train.import_meta_graph(tf.MetaGraphDef(
                meta_info_def=tf.MetaGraphDef.MetaInfoDef(tensorflow_version="1.15.0")))
        assert len(calls) == 1
        hook = ours.cudnn_rnn_hook.wrapper
        assert hook is sys.modules["cudnn_rnn._patches.meta_graphs"].import_scoped
        print("done")
        """
    )


def test_models_of_both_imports_compute():
    run(
        """
        old, new = cudnn_rnn, import_again()
        results = []
        for package in (old, new, old):
            layer = package.layers.CudnnLSTM(1, 4, kernel_initializer=tf.ones_initializer())
            results.append(layer(tf.ones([2, 1, 3]))[0].numpy().tolist())
        assert results[0] == results[1] == results[2]
        print("done")
        """
    )
