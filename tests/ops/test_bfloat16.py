"""bfloat16, which TensorFlow 2's ops accept, in classes, functions, layers, cells and saveables.

The kernels compute in float and round the results to bfloat16; on some processors they also round
the factors of products. The results therefore agree with float32 results for the same inputs to a
few units in the last of bfloat16's 8 bits.
"""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python.eager import context

import cudnn_rnn
from cudnn_rnn import cudnn_rnn_ops
from cudnn_rnn.model import layout
from helpers.damaged_checkpoints import flip_a_bit
from helpers.layer_models import LAYERS, SAVEABLES, run_cells
from helpers.networks import every_mode, every_mode_and_direction
from helpers.op_harness import TOLERANCES, relative_error
from helpers.rnn_models import CLASSES, GENERATIONS, initialize
from helpers.sequence_cases import HAS_BFLOAT16

LAYER_COUNT, UNITS, WIDTH, BATCH, STEPS = 2, 4, 3, 2, 5

every_input_mode = pytest.mark.parametrize("input_mode", ["linear_input", "skip_input"])


@pytest.fixture(autouse=True)
def skip_without_bfloat16(request):
    if HAS_BFLOAT16 == (request.function is test_without_bfloat16):
        pytest.skip("this TensorFlow's ops have %sbfloat16" % ("" if HAS_BFLOAT16 else "no "))


def rounded(*shape, seed=0):
    """Returns a float32 array of this shape, with values that bfloat16 can represent."""
    values = np.random.RandomState([seed] + list(shape)).uniform(-1, 1, shape)
    return values.astype(tf.bfloat16.as_numpy_dtype).astype(np.float32)


def halvable(size, num_biases):
    """Returns values of an opaque buffer whose biases equal half of the stored sums."""
    values = rounded(size)
    values[size - num_biases * UNITS :] = 0.25
    return values


def assert_agree(session, build):
    """Checks that the tensors of `build(dtype)` agree for bfloat16 and float32."""
    results = []
    for dtype in (tf.bfloat16, tf.float32):
        with tf.variable_scope(dtype.name):
            tensors = build(dtype)
        assert {tensor.dtype.base_dtype for tensor in tensors} == {dtype}
        initialize(session)
        results.append([np.asarray(a, np.float32) for a in session.run(tensors)])
    for index, (found, expected) in enumerate(zip(*results)):
        assert found.shape == expected.shape, index
        assert np.abs(expected).max() > 0, index
        error = relative_error(found, expected)
        assert error <= TOLERANCES["bfloat16"], (index, error)


def with_gradients(outputs, inputs):
    """Returns the outputs and the gradients of the sum of their squares."""
    loss = tf.add_n([tf.reduce_sum(output * output) for output in outputs])
    return list(outputs) + tf.gradients(loss, inputs)


@every_mode_and_direction
def test_op_level_classes(session, rnn_mode, direction):
    states = LAYER_COUNT * (1 + (direction == "bidirectional"))

    def build(dtype):
        model = CLASSES[rnn_mode](LAYER_COUNT, UNITS, WIDTH, direction=direction, dtype=dtype)
        arrays = [rounded(STEPS, BATCH, WIDTH), rounded(states, BATCH, UNITS)]
        arrays += [rounded(states, BATCH, UNITS, seed=1)] * (rnn_mode == "lstm")
        arrays.append(0.5 * rounded(layout.params_size(model.config)))
        inputs = [tf.constant(array, dtype) for array in arrays]
        return with_gradients(model(*inputs), inputs)

    assert_agree(session, build)


@every_mode
def test_canonical_conversions_are_exact(session, rnn_mode):
    model = CLASSES[rnn_mode](LAYER_COUNT, UNITS, WIDTH, dtype=tf.bfloat16)
    values = rounded(layout.params_size(model.config))
    weights, biases = model.params_to_canonical(tf.constant(values, tf.bfloat16))
    assert {tensor.dtype for tensor in weights + biases} == {tf.bfloat16}
    back = session.run(model.canonical_to_params(weights, biases))
    np.testing.assert_array_equal(back.astype(np.float32), values)


def test_projection_lengths_and_batch_major(session):
    def build(dtype):
        model = cudnn_rnn.CudnnLSTM(LAYER_COUNT, UNITS, WIDTH, dtype=dtype, num_proj=2)
        arrays = [
            rounded(BATCH, STEPS, WIDTH),
            rounded(BATCH, LAYER_COUNT, 2),
            rounded(BATCH, LAYER_COUNT, UNITS),
            rounded(layout.params_size(model.config)),
        ]
        inputs = [tf.constant(array, dtype) for array in arrays]
        return with_gradients(model(*inputs, sequence_lengths=[STEPS, 2], time_major=False), inputs)

    assert_agree(session, build)


def test_the_dtype_of_arrays_and_tensors(session):
    """Without dtype=, the inputs decide the dtype; for the functions, NumPy arrays do so, too."""
    size = layout.params_size(cudnn_rnn.CudnnGRU(1, UNITS, WIDTH).config)
    numpy_type = tf.bfloat16.as_numpy_dtype
    arrays = [rounded(STEPS, BATCH, WIDTH), rounded(1, BATCH, UNITS), rounded(size)]
    arrays = [array.astype(numpy_type) for array in arrays]
    by_class = cudnn_rnn.CudnnGRU(1, UNITS, WIDTH)(*[tf.constant(array) for array in arrays])
    by_function = cudnn_rnn_ops.cudnn_gru(*arrays, is_training=True)
    for left, right in zip(session.run(by_class), session.run(by_function[:2])):
        assert left.dtype == right.dtype == numpy_type
        np.testing.assert_array_equal(left, right)


@every_mode_and_direction
def test_layers(session, rnn_mode, direction):
    def build(dtype):
        layer = LAYERS[rnn_mode](LAYER_COUNT, UNITS, direction=direction, dtype=dtype)
        inputs = tf.constant(rounded(STEPS, BATCH, WIDTH), dtype)
        layer.build(inputs.shape)
        values = tf.constant(0.5 * rounded(layer.kernel.shape.num_elements()), dtype)
        with tf.control_dependencies([tf.assign(layer.kernel, values)]):
            outputs, states = layer(tf.identity(inputs), training=True)
        return with_gradients([outputs] + list(states), [inputs, layer.kernel])

    assert_agree(session, build)


@every_mode
def test_layers_initialize_their_variables(session, rnn_mode):
    layer = LAYERS[rnn_mode](LAYER_COUNT, UNITS, dtype=tf.bfloat16)
    layer.build([None, None, WIDTH])
    assert layer.kernel.dtype.base_dtype == tf.bfloat16
    initialize(session)
    values = session.run(layer.kernel).astype(np.float32)
    num_biases = len(layer.canonical_bias_shapes) * UNITS
    assert (values[:-num_biases] != 0).mean() > 0.9 and not values[-num_biases:].any()


@pytest.mark.sampled(2)
@every_input_mode
@pytest.mark.parametrize("generation", sorted(GENERATIONS))
@every_mode
def test_saveables_of_generations_a_and_b(session, tmp_path, rnn_mode, generation, input_mode):
    model = CLASSES[rnn_mode](LAYER_COUNT, UNITS, UNITS, input_mode, dtype=tf.bfloat16)
    values = rounded(layout.params_size(model.config))
    variable = tf.Variable(tf.constant(values, tf.bfloat16))
    saver = tf.train.Saver([GENERATIONS[generation](model, variable)])
    assert_round_trip(session, saver, variable, values, tmp_path)


@pytest.mark.sampled(2)
@every_input_mode
@every_mode_and_direction
def test_opaque_saveables(session, tmp_path, rnn_mode, direction, input_mode):
    model = CLASSES[rnn_mode](LAYER_COUNT, UNITS, UNITS, input_mode, direction, tf.bfloat16)
    values = halvable(layout.params_size(model.config), len(layout.canonical_biases(model.config)))
    variable = tf.Variable(tf.constant(values, tf.bfloat16))
    saveable = SAVEABLES[rnn_mode](
        variable, LAYER_COUNT, UNITS, UNITS, input_mode=input_mode, direction=direction
    )
    assert_round_trip(session, tf.train.Saver([saveable]), variable, values, tmp_path)


def assert_round_trip(session, saver, variable, values, tmp_path):
    """Checks that a save and restore keeps the values, and that damage to the checkpoint raises."""
    initialize(session)
    path = saver.save(session, str(tmp_path / "model"))
    reader = tf.train.load_checkpoint(path)
    assert set(reader.get_variable_to_dtype_map().values()) == {tf.bfloat16}
    shapes = reader.get_variable_to_shape_map()
    session.run(tf.assign(variable, tf.zeros_like(variable)))
    saver.restore(session, path)
    np.testing.assert_array_equal(session.run(variable).astype(np.float32), values)
    flip_a_bit(path, max(shapes, key=lambda key: np.prod(shapes[key])))
    with pytest.raises(tf.errors.DataLossError, match="cannot be read.*expected.* dtype bfloat16"):
        saver.restore(session, path)
    np.testing.assert_array_equal(session.run(variable).astype(np.float32), values)


@every_mode
def test_object_based(tmp_path, rnn_mode):
    with context.eager_mode():
        layer = LAYERS[rnn_mode](LAYER_COUNT, UNITS, dtype=tf.bfloat16)
        layer.build([None, None, WIDTH])
        values = halvable(layer.kernel.shape.num_elements(), len(layer.canonical_bias_shapes))
        layer.kernel.assign(tf.constant(values, tf.bfloat16))
        checkpoint = tf.train.Checkpoint(layer=layer)
        path = checkpoint.save(str(tmp_path / "model"))
        layer.kernel.assign(tf.zeros_like(layer.kernel))
        checkpoint.restore(path).assert_consumed()
        np.testing.assert_array_equal(layer.kernel.numpy().astype(np.float32), values)


@every_mode
def test_cells_compute_what_the_layer_does(session, tmp_path, rnn_mode):
    """Layer and cells agree on one checkpoint, but the cells round each operation to bfloat16."""
    inputs = rounded(STEPS, BATCH, WIDTH)
    layer = LAYERS[rnn_mode](1, UNITS, dtype=tf.bfloat16)
    layer.build(inputs.shape)
    values = halvable(layer.kernel.shape.num_elements(), len(layer.canonical_bias_shapes))
    outputs, _ = layer(tf.constant(inputs, tf.bfloat16), training=False)
    initialize(session)
    session.run(tf.assign(layer.kernel, tf.constant(values, tf.bfloat16)))
    path = tf.train.Saver([layer.saveable]).save(session, str(tmp_path / "model"))
    expected = session.run(outputs).astype(np.float32)
    with tf.Graph().as_default(), tf.Session() as other:
        outputs, _ = run_cells(rnn_mode, 1, UNITS, False, tf.constant(inputs, tf.bfloat16))
        assert outputs.dtype == tf.bfloat16
        tf.train.Saver().restore(other, path)
        found = other.run(outputs).astype(np.float32)
    # Half a unit in the last of 8 bits per rounding, about four roundings per step, over all steps.
    assert relative_error(found, expected) <= STEPS * 4 * 2.0**-9


@pytest.mark.parametrize(
    "make",
    [
        lambda inputs: cudnn_rnn.CudnnLSTM(1, UNITS, WIDTH, dtype=tf.bfloat16),
        lambda inputs: LAYERS["gru"](1, UNITS, dtype=tf.bfloat16),
        lambda inputs: LAYERS["gru"](1, UNITS)(inputs),
        lambda inputs: cudnn_rnn.CudnnGRU(1, UNITS, WIDTH)(inputs, inputs, inputs),
    ],
)
def test_without_bfloat16(session, make):
    with pytest.raises(
        (TypeError, ValueError),
        match="must be .*float16, float32 or float64, but is .*bfloat16.* The RNN ops of "
        r"TensorFlow \d+\.\d+\.\d+ do not support bfloat16; use TensorFlow 2\.13 or newer",
    ):
        make(tf.zeros([STEPS, BATCH, WIDTH], tf.bfloat16))
