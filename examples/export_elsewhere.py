"""Trains a model with the fused op; runs it in TFLite and in ONNX Runtime, without this package.

    python examples/export_elsewhere.py

The task: tell the frequency of a noisy wave. The SavedModel is exported to a plain graph, which the
TFLite converter takes. The weights of the GRU go to ONNX by themselves. Needs TensorFlow 2,
onnx and onnxruntime (pip install onnx onnxruntime).
"""

import argparse
import os
import tempfile

import numpy as np
import tensorflow as tf

import cudnn_rnn
from cudnn_rnn import exchange

UNITS, CLASSES, STEPS = 32, 4, 40


class Classifier(tf.Module):
    """A GRU of two layers, and a linear layer on its last output."""

    def __init__(self):
        super().__init__()
        self.gru = cudnn_rnn.CudnnGRU(num_layers=2, num_units=UNITS, input_size=1)
        size = int(self.gru.params_size())
        self.params = tf.Variable(tf.random.stateless_uniform([size], [0, 1], -0.15, 0.15))
        self.kernel = tf.Variable(tf.random.stateless_normal([UNITS, CLASSES], [0, 2]) * 0.1)

    def logits(self, waves, is_training):
        """Returns `[batch, CLASSES]` for waves `[time, batch, 1]`."""
        state = tf.zeros([2, tf.shape(waves)[1], UNITS])
        outputs, _ = self.gru(waves, state, params=self.params, is_training=is_training)
        return outputs[-1] @ self.kernel

    @tf.function(input_signature=[tf.TensorSpec([None, None, 1])])
    def __call__(self, waves):
        return self.logits(waves, is_training=False)


def make_waves(random, batch):
    """Returns waves `[STEPS, batch, 1]` and their classes `[batch]`."""
    classes = random.randint(0, CLASSES, batch)
    phases = random.uniform(0, 2 * np.pi, batch)
    times = np.arange(STEPS)[:, None]
    waves = np.sin(times * 0.2 * (1 + classes) + phases) + random.normal(0, 0.2, [STEPS, batch])
    return waves[:, :, None].astype(np.float32), classes


def train(model, num_steps):
    """Runs steps of Adam; prints the loss of the last one."""
    random, optimizer = np.random.RandomState(0), tf.keras.optimizers.Adam(0.01)

    @tf.function
    def step(waves, classes):
        with tf.GradientTape() as tape:
            logits = model.logits(waves, is_training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(classes, logits)
            loss = tf.reduce_mean(losses)
        optimizer.apply_gradients(
            zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        )
        return loss

    for _ in range(num_steps):
        loss = step(*map(tf.constant, make_waves(random, 64)))
    print("loss after %d steps: %.3f" % (num_steps, float(loss)))


def run_in_tflite(folder, waves):
    """Exports the SavedModel in `folder` to a plain graph; returns what TFLite computes."""
    plain = os.path.join(folder, "plain")
    cudnn_rnn.export_plain(os.path.join(folder, "fused"), plain)
    interpreter = tf.lite.Interpreter(
        model_content=tf.lite.TFLiteConverter.from_saved_model(plain).convert()
    )
    run = interpreter.get_signature_runner()
    (logits,) = run(waves=waves).values()
    return logits


def run_in_onnxruntime(folder, model, waves):
    """Writes the GRU as an ONNX model; returns the logits from ONNX Runtime's output."""
    import onnxruntime

    path = os.path.join(folder, "gru.onnx")
    gru = exchange.RnnWeights.from_opaque(model.params.numpy(), "gru", 2, UNITS, input_size=1)
    exchange.write(path, [gru], to="onnx")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # no warnings that optional inputs are not constants
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (outputs,) = session.run(["output"], {"input": waves})
    return outputs[-1] @ model.kernel.numpy()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="train for a few steps only")
    chosen = parser.parse_args()
    if tf.__version__.startswith("1."):
        parser.error("requires TensorFlow 2; this is TensorFlow %s" % tf.__version__)
    model = Classifier()
    train(model, 10 if chosen.quick else 200)
    waves, classes = make_waves(np.random.RandomState(1), 100)
    expected = model(waves).numpy()
    print("accuracy: %.2f" % np.mean(expected.argmax(axis=1) == classes))
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(model, os.path.join(folder, "fused"))
        results = {
            "TFLite": run_in_tflite(folder, waves),
            "ONNX Runtime": run_in_onnxruntime(folder, model, waves),
        }
    for name, found in results.items():
        print("%s: largest difference %.1e" % (name, np.abs(found - expected).max()))


if __name__ == "__main__":
    main()
