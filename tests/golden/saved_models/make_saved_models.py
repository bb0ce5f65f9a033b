"""Makes the SavedModels of tf.keras for the installed TensorFlow: 1.15.5, 2.4.4, 2.8.4 or 2.15.1.

    python make_saved_models.py FOLDER

See README.md. Run it again only for a case that is new.
"""

import os
import sys
import tempfile
import zipfile

import numpy as np
import tensorflow as tf

WIDTH, UNITS = 3, 2
layers = tf.keras.layers


def bidirectional_gru():
    return [
        layers.Bidirectional(layers.GRU(UNITS, return_sequences=True)),
        layers.Bidirectional(layers.GRU(UNITS)),
    ]


def masked_lstm():
    return [layers.Masking(), layers.LSTM(UNITS)]


def cudnn_lstm():
    import cudnn_rnn  # noqa: F401  (its kernels run the layer on a CPU)

    return [layers.CuDNNLSTM(UNITS)]


class TrainingStep(tf.Module):
    """A function that trains a layer, with the slots of its optimizer."""

    def __init__(self):
        super().__init__()
        self.layer = layers.GRU(UNITS)
        self.layer.build((None, None, WIDTH))
        self.optimizer = tf.keras.optimizers.Adam(0.1)

    @tf.function(input_signature=[tf.TensorSpec([None, None, WIDTH], name="inputs")])
    def train(self, inputs):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(self.layer(inputs) ** 2)
        variables = self.layer.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss


CASES = {
    "1.15.5": [cudnn_lstm],
    "2.4.4": [bidirectional_gru, TrainingStep],
    "2.8.4": [masked_lstm],
    "2.15.1": [bidirectional_gru],
}


def save_model(build, inputs, path):
    """Writes a Keras model, trained for one step; returns its outputs in a list."""
    model = tf.keras.Sequential([*build(), layers.Dense(1)])
    model.build((None, None, WIDTH))
    model.compile("adam", "mse")
    model.fit(inputs, np.ones([len(inputs), 1]), verbose=0)
    model.save(path, save_format="tf")
    return [model.predict(inputs)]


def save_training_step(inputs, path):
    """Writes a module whose optimizer has slots; returns the losses of the next steps."""
    module = TrainingStep()
    module.train(tf.constant(inputs))
    tf.saved_model.save(module, path, signatures=module.train)
    return [module.train(tf.constant(inputs)).numpy() for _ in range(3)]


def main(folder):
    inputs = np.random.RandomState(1).standard_normal([4, 6, WIDTH]).astype(np.float32)
    inputs[1, 4:] = 0  # which a model may mask
    for case in CASES[tf.__version__]:
        name = "training_step" if case is TrainingStep else case.__name__
        with tempfile.TemporaryDirectory() as model:
            if case is TrainingStep:
                outputs = save_training_step(inputs, os.path.join(model, "saved_model"))
            else:
                outputs = save_model(case, inputs, os.path.join(model, "saved_model"))
            np.savez(os.path.join(model, "arrays.npz"), inputs=inputs, outputs=outputs)
            write_archive(model, os.path.join(folder, "tf%s_%s.zip" % (tf.__version__, name)))


def write_archive(folder, path):
    """LZMA finds what the many functions of a model have in common; zip's own method does not."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        for place, _, names in sorted(os.walk(folder)):
            for name in sorted(names):
                file = os.path.join(place, name)
                archive.write(file, os.path.relpath(file, folder))


if __name__ == "__main__":
    main(sys.argv[1])
