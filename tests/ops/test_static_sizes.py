"""RNN sizes given as graph tensors are known if the static shapes determine them."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn.checkpoints import cell_saveables
from helpers.layer_models import LAYERS
from helpers.rnn_models import CLASSES

UNITS, WIDTH = 5, 7

# Each computes WIDTH from the shape of a `[?, ?, WIDTH]` tensor.
KNOWN = {
    "index": lambda x: tf.shape(x)[2],
    "index from the end": lambda x: tf.shape(x)[-1],
    "int64": lambda x: tf.shape(x, out_type=tf.int64)[2],
    "unstack": lambda x: tf.unstack(tf.shape(x))[2],
    "split": lambda x: tf.split(tf.shape(x), [2, 1])[1][0],
    "equal split": lambda x: tf.split(tf.shape(x), 3)[2][0],
    "gather": lambda x: tf.gather(tf.shape(x), 2),
    "slice": lambda x: tf.slice(tf.shape(x), [1], [-1])[1],
    "slices of a slice": lambda x: tf.shape(x)[1:][::-1][0],
    "cast": lambda x: tf.cast(tf.shape(x)[2], tf.int64),
    "identity": lambda x: tf.identity(tf.shape(x)[2]),
    "squeeze": lambda x: tf.squeeze(tf.shape(x)[2:]),
    "squeeze of an axis": lambda x: tf.squeeze(tf.shape(x)[2:], axis=0),
    "reshape": lambda x: tf.reshape(tf.shape(x)[2:], []),
    "expand": lambda x: tf.expand_dims(tf.shape(x), 0)[0, 2],
    "product": lambda x: tf.reduce_prod(tf.shape(x)[2:]),
    "concat": lambda x: tf.concat([[3], tf.shape(x)[1:]], axis=0)[2],
    "stack": lambda x: tf.stack([tf.shape(x)[0], tf.shape(x)[2]])[1],
    "arithmetic": lambda x: (tf.shape(x)[2] * 4 + 2 - tf.shape(x)[2]) // 3,
    "maximum": lambda x: tf.maximum(tf.minimum(tf.shape(x)[2], 100), 2),
    "size": lambda x: tf.size(x[0, 0]),
    "constant": lambda x: tf.constant(WIDTH),
    "dimension": lambda x: x.shape[2],
}
UNKNOWN = {
    "unknown dimension": lambda x: tf.shape(x)[0],
    "product with an unknown dimension": lambda x: tf.reduce_prod(tf.shape(x)),
    "unknown rank": lambda x: tf.shape(tf.placeholder(tf.float32, None))[2],
    "placeholder": lambda x: tf.placeholder(tf.int32, []),
    "part of a placeholder": lambda x: tf.placeholder(tf.int32, None)[0],
    "index that only a run tells": lambda x: tf.shape(x)[tf.placeholder(tf.int32, [])],
    "new axis": lambda x: tf.shape(x)[tf.newaxis, 0][0],
    "remainder": lambda x: tf.shape(x)[0] % 3,
}


@pytest.fixture
def x():
    with tf.Graph().as_default():
        yield tf.placeholder(tf.float32, [None, None, WIDTH])


@pytest.mark.parametrize("form", sorted(KNOWN))
def test_input_size_from_a_shape(x, form):
    model = CLASSES["gru"](1, UNITS, KNOWN[form](x))
    assert model.input_size == WIDTH and isinstance(model.input_size, int)
    output, _ = model(x, tf.zeros([1, tf.shape(x)[1], UNITS]), tf.zeros([model.params_size()]))
    assert output.shape.as_list() == [None, None, UNITS]


@pytest.mark.parametrize("form", sorted(UNKNOWN))
@pytest.mark.parametrize("argument", ["num_layers", "num_units", "input_size"])
def test_unknown_sizes_are_refused_by_name(x, form, argument):
    sizes = dict(num_layers=1, num_units=UNITS, input_size=WIDTH)
    sizes[argument] = UNKNOWN[form](x)
    with pytest.raises(TypeError, match="^%s must be a positive integer that is known" % argument):
        cudnn_rnn.CudnnLSTM(**sizes)


def test_only_the_requested_size_must_be_known(x):
    """A known size of 0 is out of range, even if other dimensions of the shape are unknown."""
    with pytest.raises(ValueError, match="^num_units must be between 1 and"):
        cudnn_rnn.CudnnLSTM(1, tf.shape(x)[2] - WIDTH, WIDTH)


def test_no_node_is_created(x):
    size = tf.shape(x)[2]
    num_nodes = len(tf.get_default_graph().get_operations())
    cudnn_rnn.CudnnLSTM(1, size, size)
    assert len(tf.get_default_graph().get_operations()) == num_nodes


@pytest.mark.parametrize("rnn_mode", sorted(LAYERS))
def test_sizes_of_a_layer(x, rnn_mode):
    """A layer stores the sizes as ints, for its shapes, its variable and its saveable."""
    two = tf.shape(tf.zeros([2]))[0]
    layer = LAYERS[rnn_mode](two, tf.shape(x)[2])
    assert (layer.num_layers, layer.num_units) == (2, WIDTH)
    outputs, states = layer(x)
    assert outputs.shape.as_list() == [None, None, WIDTH]
    assert all(state.shape.as_list() == [2, None, WIDTH] for state in states)
    assert layer.state_shape(4)[0] == [2, 4, WIDTH]
    assert all(spec.tensor.shape.is_fully_defined() for spec in layer.saveable.specs)


def test_sizes_of_saveables_and_functions(x):
    size = tf.shape(x)[2]
    expected = CLASSES["lstm"](2, WIDTH, WIDTH)
    num_params = cudnn_rnn.cudnn_rnn_ops.cudnn_rnn_opaque_params_size("lstm", 2, size, size)
    assert tf.get_static_value(num_params) == expected._num_params()
    params = tf.get_variable("params", [expected._num_params()])
    two = tf.shape(tf.zeros([2]))[0]
    saveable = cell_saveables.CudnnLSTMSaveable(params, two, size, size)
    shapes = [spec.tensor.shape.as_list() for spec in saveable.specs]
    assert shapes == [[2 * WIDTH, 4 * WIDTH]] * 2 + [[4 * WIDTH]] * 2


@pytest.mark.parametrize("cell", ["CudnnCompatibleLSTMCell", "CudnnCompatibleGRUCell"])
def test_sizes_of_cells(x, cell):
    assert getattr(cudnn_rnn, cell)(tf.shape(x)[2]).output_size == WIDTH
    with pytest.raises(TypeError, match="^num_units must be a positive integer that is known"):
        getattr(cudnn_rnn, cell)(tf.shape(x)[0])


@pytest.mark.parametrize("rnn_mode", ["lstm", "gru"])
def test_training_none_is_not_training(x, rnn_mode):
    """As in Keras, None means inference. Dropout makes the two modes differ."""
    inputs = np.random.RandomState(0).uniform(-1, 1, [4, 2, WIDTH]).astype(np.float32)
    layer = LAYERS[rnn_mode](2, UNITS, dropout=0.5, seed=3)
    layer.build(x.shape)
    states = [tf.zeros(shape) for shape in layer.state_shape(2)] + [[]]
    results = [
        layer(x, training=None)[0],
        layer(x, training=False)[0],
        layer._forward(x, states[0], states[1], layer.kernel, training=None)[0],
        layer(x, training=True)[0],
    ]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        none, inference, forward, training = session.run(results, {x: inputs})
    np.testing.assert_array_equal(none, inference)
    np.testing.assert_array_equal(forward, inference)
    assert np.abs(training - inference).max() > 1e-3
