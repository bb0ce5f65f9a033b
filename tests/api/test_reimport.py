"""A second import of the package in one process replaces the first import's TensorFlow hooks."""

import json

import pytest
from tensorflow.python.framework import ops

from cudnn_rnn._compat import wrap_gradient
from helpers.processes import output_of

pytestmark = pytest.mark.ci

# Runs all checks, prints JSON: the failures by check.
PROGRAM = """
import functools, importlib, json, os, sys, tempfile, traceback
import tensorflow.compat.v1 as tf
from tensorflow.python.framework import meta_graph
tf.enable_eager_execution()
import cudnn_rnn

folder = tempfile.mkdtemp()

def built(make_layer, units):
    layer = make_layer(1, units, name="rnn")
    layer.build([None, None, 3])
    return layer

def error_of(restore, path):
    try:
        restore(path)
    except tf.errors.InvalidArgumentError as error:
        return str(error)

def object_error(saving, restoring):
    "What restoring into a layer of another size says; each argument is a version of the package."
    small, large = built(saving.layers.CudnnLSTM, 4), built(restoring.layers.CudnnLSTM, 5)
    path = tf.train.Checkpoint(rnn=small).write(os.path.join(folder, "objects"))
    return error_of(tf.train.Checkpoint(rnn=large).restore, path)

def saver_error(saving, restoring):
    small, large = built(saving.layers.CudnnGRU, 4), built(restoring.layers.CudnnGRU, 5)
    path = tf.train.Saver([small.saveable]).save(None, os.path.join(folder, "saver"))
    return error_of(functools.partial(tf.train.Saver([large.saveable]).restore, None), path)

def import_again():
    for name in [name for name in sys.modules if name.split(".")[0] == "cudnn_rnn"]:
        del sys.modules[name]
    return importlib.import_module("cudnn_rnn")

def reload():
    for name in sorted(sys.modules, reverse=True):  # the package itself last
        if name.split(".")[0] == "cudnn_rnn" and "config" not in name:
            importlib.reload(sys.modules[name])
    return sys.modules["cudnn_rnn"]

def check_errors(how, error_of_restoring):
    old = sys.modules["cudnn_rnn"]
    expected = error_of_restoring(old, old)
    assert expected and folder in expected, expected
    for _ in range(2):
        new = how()
        for saving, restoring in (old, new), (old, old), (new, new), (new, old):
            found = error_of_restoring(saving, restoring)
            assert found == expected, (expected, found)

def check_models():
    old, new = sys.modules["cudnn_rnn"], import_again()
    results = []
    for package in (old, new, old):
        layer = package.layers.CudnnLSTM(1, 4, kernel_initializer=tf.ones_initializer())
        results.append(layer(tf.ones([2, 1, 3]))[0].numpy().tolist())
    assert results[0] == results[1] == results[2]

def check_hooks():
    "Another library wraps the function between the imports."
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

checks = {}
for error_of_restoring in object_error, saver_error:
    for how in import_again, reload:
        checks["%s after %s" % (error_of_restoring.__name__, how.__name__)] = functools.partial(
            check_errors, how, error_of_restoring)
checks["models of both imports compute"] = check_models
checks["hooks do not accumulate"] = check_hooks
failures = {}
for name, check in checks.items():
    failures[name] = None
    try:
        check()
    except Exception:
        failures[name] = traceback.format_exc()
print(json.dumps(failures))
"""


@pytest.mark.sampled(4)
def test_second_import():
    """Restore errors are equal for layers of both imports, even if one saves and one restores."""
    failures = json.loads(output_of("-c", PROGRAM).splitlines()[-1])
    assert len(failures) == 6
    assert not any(failures.values()), "\n".join(filter(None, failures.values()))


def test_a_gradient_function_is_wrapped_once(monkeypatch):
    """A second import replaces the wrapper of the first."""
    registry = getattr(ops, "gradient_registry", None) or ops._gradient_registry
    entry = registry._registry["CudnnRNN"]
    original = entry["type"].__wrapped__
    monkeypatch.setitem(entry, "type", entry["type"])
    for _ in range(2):
        wrap_gradient("CudnnRNN", lambda function: lambda *arguments: (function, arguments))
    assert registry.lookup("CudnnRNN")(1, 2) == (original, (1, 2))
    assert registry.lookup("CudnnRNN").__wrapped__ is original
