"""Speeds up a Keras model by changing one line, and measures by how much.

Builds the same classifier twice, with keras.layers.LSTM and with cudnn_rnn.keras.LSTM, gives both
the same weights and data, and times predictions and training steps in turns.
"""

import argparse
import os
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from tensorflow import keras

import cudnn_rnn.keras

FULL = dict(units=128, batch=32, steps=60, width=32, rounds=15)
QUICK = dict(units=16, batch=8, steps=10, width=8, rounds=2)
# The default of cudnn_rnn.keras.LSTM, and of keras.layers.LSTM in TensorFlow 2. In TensorFlow 1,
# keras.layers.LSTM computes hard_sigmoid unless told otherwise, so predictions would differ.
RECURRENT_ACTIVATION = "sigmoid"


def make_model(size, LSTM):
    """Returns a compiled classifier of sequences `[batch, steps, width]`."""
    model = keras.Sequential(
        [
            keras.Input((size.steps, size.width)),
            LSTM(size.units, return_sequences=True, recurrent_activation=RECURRENT_ACTIVATION),
            LSTM(size.units, recurrent_activation=RECURRENT_ACTIVATION),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(keras.optimizers.Adam(0.001), "sparse_categorical_crossentropy")
    return model


def medians(functions, rounds):
    """Returns the median times of functions, in seconds; each round calls each of them once."""
    times = [[] for _ in functions]
    for _ in range(rounds + 2):
        for function, of_function in zip(functions, times):
            start = time.perf_counter()
            function()
            of_function.append(time.perf_counter() - start)
    return [statistics.median(of_function[2:]) for of_function in times]  # without warm-up


def report(what, times):
    print(
        "%-14s keras.layers.LSTM %7.2f ms, cudnn_rnn.keras.LSTM %7.2f ms: %.1f times as fast"
        % (what, times[0] * 1e3, times[1] * 1e3, times[0] / times[1])
    )


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small model, few measurements")
    options = parser.parse_args(arguments)
    size = argparse.Namespace(**(QUICK if options.quick else FULL))

    random = np.random.RandomState(1)
    inputs = random.randn(size.batch, size.steps, size.width).astype(np.float32)
    labels = random.randint(0, 10, size.batch)

    slow = make_model(size, keras.layers.LSTM)
    fast = make_model(size, cudnn_rnn.keras.LSTM)  # the changed line
    fast.set_weights(slow.get_weights())
    difference = np.abs(slow.predict_on_batch(inputs) - fast.predict_on_batch(inputs)).max()
    print("largest difference of predictions: %.1e" % difference)

    models = (slow, fast)
    predict = [lambda model=model: model.predict_on_batch(inputs) for model in models]
    report("prediction", medians(predict, size.rounds))
    train = [lambda model=model: model.train_on_batch(inputs, labels) for model in models]
    report("training step", medians(train, size.rounds))
    # Both have made the same training steps.
    difference = np.abs(slow.predict_on_batch(inputs) - fast.predict_on_batch(inputs)).max()
    print("largest difference after training: %.1e" % difference)


if __name__ == "__main__":
    main()
