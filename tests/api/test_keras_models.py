"""The layers inside Keras models: refused where Keras would neither train nor save them.

In TensorFlow 1 the layers are Keras layers, which Keras trains and saves. The tests use the Keras
of TensorFlow: Keras 3, Keras 2 up to TensorFlow 2.15, or tf_keras with TF_USE_LEGACY_KERAS=1.
"""

import numpy as np
import pytest
import tensorflow

import cudnn_rnn
from helpers.layer_models import LAYERS
from helpers.versions import IS_TENSORFLOW_1, needs_tensorflow_1

UNITS, WIDTH, BATCH, STEPS = 4, 3, 8, 5


@pytest.fixture
def keras(eager):
    if IS_TENSORFLOW_1:
        pytest.skip("requires TensorFlow 2")
    return tensorflow.keras


def refused():
    message = "is not a Keras layer and cannot be part of a Keras model"
    return pytest.raises(TypeError, match=message)


def examples():
    random = np.random.RandomState(0)
    inputs = random.uniform(-1, 1, [BATCH, STEPS, WIDTH]).astype(np.float32)
    return inputs, inputs.sum(axis=(1, 2)).reshape(BATCH, 1)


def last_output(rnn, inputs):
    return rnn(inputs, time_major=False)[0][:, -1]


PLACES = ["attribute", "list", "dict", "module", "closure", "lambda layer"]
if hasattr(tensorflow.keras.Model, "train_step"):  # TensorFlow 2.2
    PLACES.append("train_step")


def make_model(keras, place, rnn):
    """Returns a Keras model that calls `rnn`; `place` says where the model keeps it, if at all."""

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1)
            if place == "list":
                self.parts = [rnn]
            elif place == "dict":
                self.parts = {"rnn": [rnn]}
            elif place == "module":
                self.part = tensorflow.Module()
                self.part.rnn = rnn
            elif place == "lambda layer":
                self.part = keras.layers.Lambda(lambda inputs: last_output(rnn, inputs))
            elif place != "closure":
                self.rnn = rnn

        def call(self, inputs):
            if place == "lambda layer":
                return self.dense(self.part(inputs))
            if place == "train_step":
                return self.dense(inputs[:, -1])
            return self.dense(last_output(rnn, inputs))

        def train_step(self, data):
            if place == "train_step":
                last_output(rnn, data[0])
            return super().train_step(data)

    return Model()


@pytest.mark.parametrize("run_eagerly", [False, True])
@pytest.mark.parametrize("place", PLACES)
def test_fit_of_a_subclassed_model(keras, place, run_eagerly):
    model = make_model(keras, place, LAYERS["lstm"](1, UNITS))
    model.compile("adam", "mse", run_eagerly=run_eagerly)
    with refused():
        model.fit(*examples(), epochs=1, verbose=0)


@pytest.mark.parametrize("how", ["call", "call of the method", "in a function", "predict"])
def test_call_of_a_model(keras, rnn_mode, how):
    model = make_model(keras, "attribute", LAYERS[rnn_mode](1, UNITS))
    inputs, _ = examples()
    calls = {
        "call": model,
        "call of the method": model.call,
        "in a function": tensorflow.function(model),
        "predict": lambda inputs: model.predict(inputs, verbose=0),
    }
    with refused():
        calls[how](tensorflow.constant(inputs))


def test_functional_and_sequential_models(keras):
    symbolic = keras.Input([STEPS, WIDTH])
    layer = LAYERS["gru"](1, UNITS)
    for inputs in symbolic, keras.layers.Dense(2)(symbolic):
        with refused():
            layer(inputs, time_major=False)
    state = keras.Input([1, UNITS])
    with refused():
        layer(tensorflow.zeros([BATCH, STEPS, WIDTH]), (state,), time_major=False)
    with refused():
        keras.Sequential([keras.Input([STEPS, WIDTH]), LAYERS["gru"](1, UNITS)])
    with refused():
        keras.Sequential().add(LAYERS["gru"](1, UNITS))


def test_cells_without_a_keras_base(keras):
    """With Keras 2 the cells are Keras layers, which a model trains and saves."""
    cell = cudnn_rnn.CudnnCompatibleGRUCell(UNITS)

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.cell = cell

        def call(self, inputs):
            return self.cell(inputs[:, 0], tensorflow.zeros([BATCH, UNITS]))[0]

    model = Model()
    inputs = tensorflow.constant(examples()[0])
    if isinstance(cell, keras.layers.Layer):
        model(inputs)
        assert len(model.trainable_variables) == len(cell.trainable_variables) > 0
        return
    with refused():
        model(inputs)
    with refused():
        cell(keras.Input([WIDTH]), tensorflow.zeros([BATCH, UNITS]))
    with refused():
        keras.Sequential([cell])


@pytest.mark.parametrize("in_function", [False, True])
def test_layers_beside_keras_layers(keras, in_function):
    """A tape over all variables trains an RNN between Keras layers."""
    before, rnn, after = keras.layers.Dense(WIDTH), LAYERS["gru"](1, UNITS), keras.layers.Dense(1)
    model = keras.Sequential([keras.Input([STEPS, WIDTH]), keras.layers.Dense(WIDTH)])

    def gradients(inputs):
        with tensorflow.GradientTape() as tape:
            outputs = after(last_output(rnn, before(model(inputs))))
            loss = tensorflow.reduce_sum(outputs)
        trained = before.trainable_variables + rnn.trainable_variables + after.trainable_variables
        return tape.gradient(loss, trained)

    call = tensorflow.function(gradients) if in_function else gradients
    found = call(tensorflow.constant(examples()[0]))
    assert len(found) == 5 and all(np.abs(gradient).max() > 0 for gradient in found)


def test_layer_in_a_callback(keras):
    """A callback may call a layer that is not part of the Keras model in training."""
    rnn, (inputs, targets) = LAYERS["gru"](1, UNITS), examples()

    class Callback(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            last_output(rnn, tensorflow.constant(inputs))

    model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    model.fit(inputs, targets, epochs=1, verbose=0, callbacks=[Callback()])
    assert rnn.built


def test_op_level_object_in_a_model(keras, tmp_path):
    """As the error recommends, the parameters can be a weight of a layer, trained and saved."""

    class Rnn(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.rnn = cudnn_rnn.CudnnGRU(1, UNITS, WIDTH)
            size = int(self.rnn.params_size())
            self.params = self.add_weight(name="params", shape=[size], initializer="normal")

        def call(self, inputs):
            inputs = tensorflow.transpose(inputs, [1, 0, 2])
            state = tensorflow.zeros([1, tensorflow.shape(inputs)[1], UNITS])
            outputs, _ = self.rnn(inputs, state, tensorflow.convert_to_tensor(self.params))
            return outputs[-1]

    inputs, targets = examples()
    rnn = Rnn()
    model, other = (keras.Sequential([each, keras.layers.Dense(1)]) for each in (rnn, Rnn()))
    model.compile("adam", "mse")
    before = rnn.params.numpy()
    model.fit(inputs, targets, epochs=1, verbose=0)
    assert np.abs(rnn.params.numpy() - before).max() > 0
    path = str(tmp_path / "model.weights.h5")
    model.save_weights(path)
    other(tensorflow.constant(inputs))
    other.load_weights(path)
    np.testing.assert_array_equal(*(np.array(each(inputs)) for each in (model, other)))


@needs_tensorflow_1
@pytest.mark.sampled(3)
@pytest.mark.parametrize("place", ["attribute", "list"])
def test_tensorflow_1_trains_and_saves(tmp_path, place, rnn_mode):
    """In TensorFlow 1 the layers are Keras layers; the program initializes their variables."""
    keras = tensorflow.keras
    inputs, targets = examples()
    with tensorflow.Graph().as_default(), tensorflow.Session() as session:
        keras.backend.set_session(session)
        layers = rnn, _ = [LAYERS[rnn_mode](1, UNITS) for _ in range(2)]
        model, other = [make_model(keras, place, layer) for layer in layers]
        for each, layer in zip((model, other), layers):
            each.compile("adam", "mse")
            # Keras optimizers refuse reference variables.
            with tensorflow.variable_scope("", use_resource=True):
                layer.build([None, None, WIDTH])
            session.run(layer.kernel.initializer)
        before = session.run(rnn.kernel)
        model.fit(inputs, targets, epochs=1, verbose=0)
        other.predict(inputs)
        assert any(rnn.kernel is variable for variable in model.trainable_variables)
        assert np.abs(session.run(rnn.kernel) - before).max() > 0
        path = str(tmp_path / "weights.h5")
        model.save_weights(path)
        assert np.abs(other.predict(inputs) - model.predict(inputs)).max() > 0
        other.load_weights(path)
        np.testing.assert_array_equal(other.predict(inputs), model.predict(inputs))


@needs_tensorflow_1
def test_tensorflow_1_refuses_other_models():
    """TensorFlow itself refuses `tf.layers` in functional and sequential models."""
    keras = tensorflow.keras
    with tensorflow.Graph().as_default():
        symbolic = keras.Input([STEPS, WIDTH])
        outputs, _ = LAYERS["gru"](1, UNITS)(symbolic, time_major=False)
        with pytest.raises(TypeError, match="legacy tf.layers.Layers"):
            keras.Model(symbolic, keras.layers.Dense(1)(outputs))
        with pytest.raises(TypeError, match="single output tensor|legacy tf.layers.Layers"):
            keras.Sequential([keras.Input([STEPS, WIDTH]), LAYERS["gru"](1, UNITS)])
