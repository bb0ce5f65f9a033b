"""`import cudnn_rnn`: which modules and names it brings, and that it needs no Keras."""

import pytest
import tensorflow.compat.v1 as tf

import cudnn_rnn
from helpers.processes import importable, output_of

pytestmark = pytest.mark.ci

KERAS_IS_OPTIONAL = tuple(map(int, tf.__version__.split(".")[:2])) >= (2, 16)

# Fails if `import cudnn_rnn` or a layer imports Keras modules that `import tensorflow` did not.
_LIST_MODULES = """
import sys
def of_keras():
    starts = ("keras", "tf_keras", "tensorflow.python.keras", "tensorflow_core.python.keras")
    return {name for name in sys.modules if name.startswith(starts)}
import tensorflow
before = of_keras()
import cudnn_rnn
from cudnn_rnn import layers
layers.CudnnLSTM(1, 5)(tensorflow.ones([3, 2, 4]))
assert of_keras() == before, sorted(of_keras() - before)[:10]
"""

# Saves and restores a model, a layer and cells; the results must be identical.
_USE_EVERYTHING = """
import sys
import tensorflow.compat.v1 as tf
import cudnn_rnn
tf.disable_v2_behavior()
from cudnn_rnn import *
inputs, state = tf.ones([3, 2, 4]), tf.zeros([1, 2, 5])
model = cudnn_rnn.CudnnLSTM(1, 5, 4)
params = tf.get_variable("params", initializer=tf.random_uniform([model.params_size()]))
results = [model(inputs, state, state, params)[0]]
saveable = CudnnLSTMSaveable(params, 1, 5, 4, scope=tf.VariableScope(None, "model"), name="model")
results.append(cudnn_rnn.layers.CudnnGRU(1, 5)(inputs)[0])
cells = MultiRNNCell([CudnnCompatibleLSTMCell(5), CudnnCompatibleGRUCell(5), BasicRNNCell(5)])
results.append(tf.nn.dynamic_rnn(cells, inputs, dtype=tf.float32)[0])
layer_cells = [CudnnCompatibleLSTMCell(3)], [CudnnCompatibleLSTMCell(3)]
results.append(stack_bidirectional_dynamic_rnn(*layer_cells, inputs=inputs, dtype=tf.float32)[0])
cudnn_rnn.contrib.install("1.15")
saver = tf.train.Saver(tf.global_variables() + tf.get_collection(tf.GraphKeys.SAVEABLE_OBJECTS))
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    expected = session.run(results)
    path = saver.save(session, sys.argv[1])
    session.run(tf.global_variables_initializer())
    saver.restore(session, path)
    found = session.run(results)
assert all((a == b).all() for a, b in zip(found, expected))
print("ALL WORKS")
"""


def run(program, *arguments, folders=(), **environment):
    path = importable(*folders)
    return output_of("-W", "ignore", "-c", program, *arguments, PYTHONPATH=path, **environment)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("legacy", ["0", "1"])
def test_neither_the_import_nor_a_layer_imports_keras(legacy):
    run(_LIST_MODULES, TF_USE_LEGACY_KERAS=legacy)


@pytest.mark.skipif(not KERAS_IS_OPTIONAL, reason="requires TensorFlow 2.16 or newer")
@pytest.mark.sampled(4)
@pytest.mark.parametrize("legacy", ["0", "1"])
@pytest.mark.parametrize("error", ["ImportError", "AttributeError"])
def test_the_package_works_without_a_usable_keras(tmp_path, legacy, error):
    """TensorFlow itself imports without a usable Keras and raises when Keras names are used."""
    for name in ("keras", "tf_keras"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise %s('no Keras today')" % error)
    named = dict(folders=[tmp_path], TF_USE_LEGACY_KERAS=legacy)
    assert "ALL WORKS" in run(_USE_EVERYTHING, tmp_path / "model", **named)


def test_modules_are_imported_on_first_use():
    program = """
import sys, cudnn_rnn
for name in ("exchange", "keras", "onnx"):
    assert "cudnn_rnn." + name not in sys.modules, name
    assert getattr(cudnn_rnn, name) is sys.modules["cudnn_rnn." + name]
print(cudnn_rnn.exchange.convert.__name__, cudnn_rnn.keras.LSTM.__name__)
"""
    assert run(program).split() == ["convert", "LSTM"]


@pytest.mark.skipif(not KERAS_IS_OPTIONAL, reason="requires TensorFlow 2.16 or newer")
def test_the_first_use_of_a_broken_keras_raises_its_own_error(tmp_path):
    (tmp_path / "keras").mkdir()
    (tmp_path / "keras" / "__init__.py").write_text("raise ImportError('no Keras today')")
    program = """
import cudnn_rnn
try:
    cudnn_rnn.keras
except ImportError as error:
    print(error)
"""
    assert "Keras cannot be imported" in run(program, folders=[tmp_path])


def test_what_dir_lists():
    public = {name for name in dir(cudnn_rnn) if not name.startswith("_")}
    modules = {"exchange", "keras", "onnx", "plain", "saveables"}
    assert public == modules | {name for name in cudnn_rnn.__all__ if name != "__version__"}
    assert {"__doc__", "__version__", "__file__"} <= set(dir(cudnn_rnn))
    assert all(hasattr(cudnn_rnn, name) for name in dir(cudnn_rnn))


def test_all_names_exist():
    assert [name for name in cudnn_rnn.__all__ if not hasattr(cudnn_rnn, name)] == []
    assert set(cudnn_rnn.__all__) <= set(dir(cudnn_rnn))
    assert len(set(cudnn_rnn.__all__)) == len(cudnn_rnn.__all__)
    assert cudnn_rnn.cells.compatible.MultiRNNCell is cudnn_rnn.MultiRNNCell
    for kind in ("LSTM", "GRU", "RNNTanh", "RNNRelu"):
        saveable = getattr(cudnn_rnn, "Cudnn%sSaveable" % kind)
        assert issubclass(saveable, cudnn_rnn.CudnnOpaqueParamsSaveable)
        converter = "CudnnParamsFormatConverter" + kind.replace("RNN", "")
        assert issubclass(getattr(cudnn_rnn, converter), cudnn_rnn.CudnnParamsFormatConverter)
        assert {saveable.__name__, converter} <= set(cudnn_rnn.__all__)
    with pytest.raises(AttributeError, match="'cudnn_rnn' has no attribute 'CudnnRNN'"):
        cudnn_rnn.CudnnRNN  # noqa: B018
