"""Writes golden files with the installed release of this package and the installed TensorFlow.

    python make_files.py FOLDER

Writes FOLDER/<release>/tf<TensorFlow>.zip; README.md describes the files. Run it once for each
release, with the installed release outside its checkout, and never again for the same release. The
tests build the same programs with `GraphProgram` and so on, and restore the files into them.
"""

import functools
import os
import sys
import tempfile
import zipfile

import numpy as np
import tensorflow
import tensorflow.compat.v1 as tf
from tensorflow.python.eager import context

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import cudnn_rnn  # noqa: E402
from helpers.layer_models import LAYERS, SAVEABLES, run_cells  # noqa: E402
from helpers.rnn_models import CLASSES, make_params, saveable_a, saveable_b  # noqa: E402

IS_TENSORFLOW_1 = tf.__version__.startswith("1.")
STEPS, BATCH, WIDTH, UNITS = 4, 3, 3, 4
DIRECTIONS = {"uni": "unidirectional", "bi": "bidirectional"}
MODES = ("lstm", "gru", "rnn_relu", "rnn_tanh")
CHECKPOINT, INFERENCE, FROZEN, SAVED_MODEL = "model", "inference.meta", "frozen.pb", "saved_model"


def values(shape, seed=1):
    return np.random.RandomState(seed).uniform(-0.5, 0.5, shape).astype(np.float32)


def write_arrays(folder, **arrays):
    np.savez_compressed(os.path.join(folder, "expected.npz"), **arrays)


# Graphs of TensorFlow 1, their checkpoints, MetaGraphs and SavedModels.


def op_level(rnn_mode, direction, saveable, inputs, training):
    """An op-level class of one layer, whose saveable is the one of this generation."""
    model = CLASSES[rnn_mode](1, UNITS, WIDTH, direction=DIRECTIONS[direction])
    params = make_params(model)
    if saveable == "1.0":
        saveable = saveable_a(model, params)
    elif saveable == "1.3":
        saveable = saveable_b(model, params, "model")
    else:
        sizes = (1, UNITS, WIDTH, "linear_input", DIRECTIONS[direction])
        saveable = SAVEABLES[rnn_mode](params, *sizes, scope="model")
    tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, saveable)
    parts = 2 if direction == "bi" else 1
    states = [tf.zeros([parts, tf.shape(inputs)[1], UNITS])] * (2 if rnn_mode == "lstm" else 1)
    return list(model(inputs, *states, params, is_training=training))


def layer(rnn_mode, direction, inputs, training):
    encoder = LAYERS[rnn_mode](2, UNITS, direction=DIRECTIONS[direction], name="encoder")
    outputs, states = encoder(inputs, training=training)
    return [outputs] + list(states)


def cells(rnn_mode, direction, inputs, training):
    del training
    outputs, states = run_cells(rnn_mode, 1, UNITS, direction == "bi", inputs)
    return [outputs] + states


# By name: the function that builds the graph, the Saver's contents ("all" that Saver() holds, the
# "saveable" alone, or what "saved_as_cells" returns), and the files besides the checkpoint.
GRAPHS = {
    "params_saveable_1.0_gru": (functools.partial(op_level, "gru", "uni", "1.0"), "saveable", []),
    "params_saveable_1.3_lstm": (
        functools.partial(op_level, "lstm", "bi", "1.3"),
        "all",
        [CHECKPOINT + ".meta"],
    ),
    "saved_as_cells_lstm": (functools.partial(layer, "lstm", "uni"), "saved_as_cells", []),
    "saved_as_cells_gru": (functools.partial(layer, "gru", "bi"), "saved_as_cells", []),
}
for _mode in MODES:
    _build = functools.partial(op_level, _mode, "uni", "1.4")
    GRAPHS["cells_saveable_" + _mode] = (_build, "all", [])
    for _direction in DIRECTIONS:
        for _kind in (layer, cells):
            _name = "%s_%s_%s" % (_kind.__name__, _mode, _direction)
            GRAPHS[_name] = (functools.partial(_kind, _mode, _direction), "all", [])
GRAPHS["layer_lstm_bi"][2].extend([INFERENCE, FROZEN])
GRAPHS["layer_lstm_uni"][2].extend([CHECKPOINT + ".meta", SAVED_MODEL])
GRAPHS["layer_gru_bi"][2].extend([INFERENCE, SAVED_MODEL])
GRAPHS["layer_rnn_relu_uni"][2].extend([CHECKPOINT + ".meta"])
GRAPHS["layer_rnn_tanh_bi"][2].extend([FROZEN])
GRAPHS["cells_saveable_gru"][2].extend([CHECKPOINT + ".meta", SAVED_MODEL])


def by_scope(variables):
    """Returns variables with those of a scope together, as release 0.2 created them."""
    scopes = [variable.op.name.rpartition("/")[0] for variable in variables]
    order = sorted(range(len(variables)), key=lambda place: scopes.index(scopes[place]))
    return [variables[place] for place in order]


class GraphProgram:
    """A program of `GRAPHS` in the default graph.

    Its nodes: the placeholder `inputs`; `result_<i>`, which are output, states and, in training,
    the gradients of the sum of the output's squares with respect to inputs and variables; and
    `train`, one step of Adam.
    """

    def __init__(self, name, training=True):
        build, self.contents, self.files = GRAPHS[name]
        self.inputs = tf.placeholder(tf.float32, [None, None, WIDTH], name="inputs")
        results = build(self.inputs, training)
        self.variables = by_scope(tf.trainable_variables())
        if training:
            loss = tf.reduce_sum(tf.square(results[0]))
            results += tf.gradients(loss, [self.inputs] + self.variables)
            self.optimizer = tf.train.AdamOptimizer(0.01)
            step = tf.train.get_or_create_global_step()
            self.optimizer.minimize(loss, step, name="train")
        for index, result in enumerate(results):
            tf.identity(result, name="result_%d" % index)
        self.results = ["result_%d:0" % index for index in range(len(results))]

    def saver(self):
        if self.contents == "saveable":
            return tf.train.Saver(tf.get_collection(tf.GraphKeys.SAVEABLE_OBJECTS))
        if self.contents == "saved_as_cells":
            return tf.train.Saver(cudnn_rnn.saved_as_cells(self.optimizer))
        return tf.train.Saver()

    def initialize(self, session):
        """Gives the variables their values before training.

        With `saved_as_cells` they are the initializers', whose biases are zero: only equal biases
        come back as they were.
        """
        session.run(tf.global_variables_initializer())
        for seed, variable in enumerate(self.variables):
            if self.contents != "saved_as_cells":
                variable.load(values(variable.shape.as_list(), seed + 2), session)


def make_graph_files(folder, name):
    path, inputs = os.path.join(folder, CHECKPOINT), values([STEPS, BATCH, WIDTH])
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(1)
        program = GraphProgram(name)
        saver = program.saver()
        program.initialize(session)
        session.run("train", {"inputs:0": inputs})
        arrays = {"inputs": inputs}
        for index, value in enumerate(session.run(program.results, {"inputs:0": inputs})):
            arrays["result_%d" % index] = value
        saver.save(session, path, write_meta_graph=False, write_state=False)
        if CHECKPOINT + ".meta" in program.files:
            saver.export_meta_graph(path + ".meta", strip_default_attrs=True)
        if program.contents != "saveable":  # which lacks Adam's slots
            session.run("train", {"inputs:0": inputs})
            for index, value in enumerate(session.run(program.results, {"inputs:0": inputs})):
                arrays["after_%d" % index] = value
    write_arrays(folder, **arrays)
    with tf.Graph().as_default() as graph, tf.Session() as session:
        program = GraphProgram(name, training=False)
        saver = program.saver() if program.contents != "saved_as_cells" else None
        if {INFERENCE, FROZEN, SAVED_MODEL} & set(program.files):
            saver.restore(session, path)
        if INFERENCE in program.files:
            saver.export_meta_graph(os.path.join(folder, INFERENCE), strip_default_attrs=True)
        if FROZEN in program.files:
            names = [result[: -len(":0")] for result in program.results]
            frozen = tf.graph_util.convert_variables_to_constants(
                session, graph.as_graph_def(), names
            )
            tf.io.write_graph(frozen, folder, FROZEN, as_text=False)
        if SAVED_MODEL in program.files:
            outputs = {
                "result_%d" % index: graph.get_tensor_by_name(result)
                for index, result in enumerate(program.results)
            }
            tf.saved_model.simple_save(
                session, os.path.join(folder, SAVED_MODEL), {"inputs": program.inputs}, outputs
            )


# Object-based checkpoints. In TensorFlow 1, only the LSTM has them.
OBJECTS = {
    "object_%s_%s" % (mode, direction): (mode, direction)
    for mode in (("lstm",) if IS_TENSORFLOW_1 else MODES)
    for direction in DIRECTIONS
}


def object_layer(name):
    """Returns the layer of a case of `OBJECTS`, built."""
    rnn_mode, direction = name.split("_", 1)[1].rsplit("_", 1)
    encoder = LAYERS[rnn_mode](2, UNITS, direction=DIRECTIONS[direction])
    encoder.build([None, None, WIDTH])
    return encoder


def make_object_files(folder, name):
    inputs = values([STEPS, BATCH, WIDTH])
    with tf.Graph().as_default(), tf.Session() as session:
        encoder = object_layer(name)
        results = encoder(tf.constant(inputs), training=False)
        checkpoint = tf.train.Checkpoint(encoder=encoder)
        session.run([tf.global_variables_initializer(), checkpoint.save_counter.initializer])
        encoder.kernel.load(values(encoder.kernel.shape.as_list(), 2), session)
        arrays = {
            "result_%d" % index: value
            for index, value in enumerate(session.run(tf.nest.flatten(results)))
        }
        checkpoint.save(os.path.join(folder, CHECKPOINT), session)
    os.remove(os.path.join(folder, "checkpoint"))
    write_arrays(folder, inputs=inputs, **arrays)


# A module of TensorFlow 2.


class Module(tensorflow.Module):
    """A layer and an op-level class whose parameters are a variable."""

    def __init__(self):
        super().__init__()
        self.encoder = LAYERS["lstm"](1, UNITS, direction="bidirectional")
        self.encoder.build([None, None, WIDTH])
        self.params = tensorflow.Variable(values([CLASSES["gru"](1, UNITS, 8).params_size()], 3))
        self.encoder.kernel.assign(values(self.encoder.kernel.shape, 4))

    @tensorflow.function(input_signature=[tensorflow.TensorSpec([None, None, WIDTH], tf.float32)])
    def run(self, inputs):
        outputs, _ = self.encoder(inputs)
        state = tf.zeros([1, tf.shape(inputs)[1], UNITS])
        gru = CLASSES["gru"](1, UNITS, 8)
        return gru(outputs, state, self.params, is_training=True)[0]

    def results(self, inputs):
        """Returns the outputs, and the gradients of the sum of their squares."""
        variables = [self.encoder.kernel, self.params]
        return outputs_and_gradients(self.run, inputs, variables)


def outputs_and_gradients(run, inputs, variables):
    with tensorflow.GradientTape() as tape:
        outputs = run(tensorflow.constant(inputs))
        loss = tensorflow.reduce_sum(outputs**2)
    return [value.numpy() for value in [outputs] + tape.gradient(loss, variables)]


def make_module_files(folder, name):
    del name
    module, inputs = Module(), values([STEPS, BATCH, WIDTH])
    results = module.results(inputs)
    arrays = {"result_%d" % index: value for index, value in enumerate(results)}
    write_arrays(folder, inputs=inputs, **arrays)
    tensorflow.saved_model.save(module, os.path.join(folder, SAVED_MODEL))
    tensorflow.train.Checkpoint(model=module).write(os.path.join(folder, CHECKPOINT))


# Keras models of TensorFlow 2.


def keras_model(name):
    import cudnn_rnn.keras as ours

    keras = tensorflow.keras
    middle = {
        "keras_lstm_gru": lambda: [
            keras.layers.Bidirectional(ours.LSTM(UNITS, return_sequences=True)),
            ours.GRU(UNITS),
        ],
        "keras_stack": lambda: [
            ours.RNNStack("lstm", 2, UNITS, True, return_sequences=True),
            ours.SimpleRNN(UNITS, activation="relu"),
        ],
    }[name]()
    first = [keras.Input((None, WIDTH)), keras.layers.Masking()]
    model = keras.Sequential(first + middle + [keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01), "mse")
    return model


def make_keras_files(folder, name):
    model = keras_model(name)
    model.set_weights([values(w.shape, seed) for seed, w in enumerate(model.get_weights())])
    inputs, targets = values([BATCH, STEPS, WIDTH]), values([BATCH, 1])
    inputs[0, 2:] = 0  # masked
    model.train_on_batch(inputs, targets)
    result = model.predict(inputs, verbose=0)
    for suffix in (".keras", ".h5"):
        model.save(os.path.join(folder, "model" + suffix))
    model.save_weights(os.path.join(folder, "model.weights.h5"))
    model.export(os.path.join(folder, SAVED_MODEL), verbose=False)
    model.train_on_batch(inputs, targets)
    after = model.predict(inputs, verbose=0)
    write_arrays(folder, inputs=inputs, targets=targets, result_0=result, after_0=after)


KERAS = [] if IS_TENSORFLOW_1 else ["keras_lstm_gru", "keras_stack"]
MODULES = [] if IS_TENSORFLOW_1 else ["module"]


def archive(folder, path):
    """Writes the files below `folder` to a ZIP archive, always with the same bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        for parent, folders, names in os.walk(folder):
            folders.sort()
            for name in sorted(names):
                file = os.path.join(parent, name)
                member = zipfile.ZipInfo(os.path.relpath(file, folder))
                member.compress_type = zipfile.ZIP_DEFLATED
                with open(file, "rb") as content:
                    target.writestr(member, content.read())


def main(folder):
    folder = os.path.join(folder, cudnn_rnn.__version__)
    path = os.path.join(folder, "tf%s.zip" % ".".join(tf.__version__.split(".")[:2]))
    if os.path.exists(path):
        sys.exit("%s exists. The files of a release are never written again." % path)
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory() as written:
        for names, make, mode in [
            (GRAPHS, make_graph_files, context.graph_mode),
            (OBJECTS, make_object_files, context.graph_mode),
            (MODULES, make_module_files, context.eager_mode),
            (KERAS, make_keras_files, context.eager_mode),
        ]:
            for name in sorted(names):
                os.makedirs(os.path.join(written, name))
                with mode():
                    make(os.path.join(written, name), name)
        archive(written, path)
    print(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
