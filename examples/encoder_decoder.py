"""Reverses strings of digits with two LSTMs, an encoder and a decoder, in one checkpoint.

Graph mode with op-level classes. The encoder reads strings of different lengths; its final state
is the decoder's initial state. One Saver holds the canonical weights of both, under scopes of their
own. A second graph has the decoder take one step per call: the program restores the checkpoint into
it and feeds each predicted digit and the state to the next step.
"""

import argparse
import functools
import os
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow.compat.v1 as tf

import cudnn_rnn

START = END = 10  # Starts and ends what the decoder writes; the other symbols are the digits.
NUM_SYMBOLS = 11
EMBEDDING_SIZE = 16
FULL = dict(units=128, longest=8, steps=3000, batch=128, learning_rate=0.003)
QUICK = dict(units=64, longest=4, steps=500, batch=64, learning_rate=0.01)


def make_strings(random, count, longest):
    """Returns digits `[longest, count]`, padded with END, and lengths `[count]`."""
    lengths = random.randint(1, longest + 1, count)
    digits = random.randint(0, 10, [longest, count])
    digits[np.arange(longest)[:, np.newaxis] >= lengths] = END
    return digits, lengths


def reverse(digits, lengths):
    """Returns the right answers, `[longest + 1, count]`; each ends with END."""
    answers = np.full([len(digits) + 1, len(lengths)], END)
    for column, length in enumerate(lengths):
        answers[:length, column] = digits[:length, column][::-1]
    return answers


def make_lstm(scope, units):
    """Returns a function that runs an LSTM of one layer, and the saveable of its parameters."""
    lstm = cudnn_rnn.CudnnLSTM(1, units, EMBEDDING_SIZE)
    with tf.variable_scope(scope):
        initial_value = tf.random_uniform([lstm.params_size()], -0.1, 0.1)
        params = tf.get_variable("params", initializer=initial_value)
    functions = (lstm.params_to_canonical, lstm.canonical_to_params)
    keys = scope + "/rnn"
    saveable = cudnn_rnn.RNNParamsSaveable(lstm, *functions, [params], keys, name=scope)
    return functools.partial(lstm, params=params), saveable


class Model:
    """The variables, the encoder and the decoder, and one Saver of all."""

    def __init__(self, units):
        self.units = units
        self.embedding = tf.get_variable("embedding", [NUM_SYMBOLS, EMBEDDING_SIZE])
        self.kernel = tf.get_variable("softmax", [units, NUM_SYMBOLS])
        self.encoder, of_encoder = make_lstm("encoder", units)
        self.decoder, of_decoder = make_lstm("decoder", units)
        self.saver = tf.train.Saver([self.embedding, self.kernel, of_encoder, of_decoder])

    def encode(self, digits, lengths, is_training):
        """Returns the state (h, c) after the last digit of each string."""
        inputs = tf.nn.embedding_lookup(self.embedding, digits)
        zeros = tf.zeros([1, tf.shape(digits)[1], self.units])
        return self.encoder(
            inputs, zeros, zeros, sequence_lengths=lengths, is_training=is_training
        )[1:]

    def decode(self, symbols, h, c, is_training):
        """Returns the logits after each symbol, `[time, batch, NUM_SYMBOLS]`, and (h, c)."""
        inputs = tf.nn.embedding_lookup(self.embedding, symbols)
        outputs, h, c = self.decoder(inputs, h, c, is_training=is_training)
        return tf.tensordot(outputs, self.kernel, axes=1), (h, c)


def train(path, size):
    """Trains a model on random strings and saves it."""
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(1)
        random = np.random.RandomState(1)
        model = Model(size.units)
        digits = tf.placeholder(tf.int32, [None, None])
        lengths = tf.placeholder(tf.int32, [None])
        answers = tf.placeholder(tf.int32, [None, None])
        state = model.encode(digits, lengths, is_training=True)
        # Each step of the decoder gets the right symbol of the step before.
        before = tf.concat([tf.fill([1, tf.shape(answers)[1]], START), answers[:-1]], axis=0)
        logits, _ = model.decode(before, *state, is_training=True)
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=answers, logits=logits)
        loss = tf.reduce_mean(loss)
        step = tf.train.AdamOptimizer(size.learning_rate).minimize(loss)
        session.run(tf.global_variables_initializer())
        for number in range(1, size.steps + 1):
            values = make_strings(random, size.batch, size.longest)
            feed = {digits: values[0], lengths: values[1], answers: reverse(*values)}
            value, _ = session.run([loss, step], feed)
            if number % (size.steps // 5) == 0:
                print("step %d, loss %.3f" % (number, value), flush=True)
        model.saver.save(session, path)


def answer(path, digits, lengths, units):
    """Returns the restored model's answers, `[longest + 1, count]`; takes the best symbols."""
    with tf.Graph().as_default(), tf.Session() as session:
        model = Model(units)
        encoded = model.encode(tf.constant(digits), tf.constant(lengths), is_training=False)
        symbols = tf.placeholder(tf.int32, [None])
        state = [tf.placeholder(tf.float32, [1, None, units]) for _ in range(2)]
        logits, next_state = model.decode(symbols[tf.newaxis], *state, is_training=False)
        best = tf.argmax(logits[0], axis=-1)
        model.saver.restore(session, path)
        values, written = session.run(encoded), [np.full(len(lengths), START)]
        for _ in range(len(digits) + 1):
            feed = dict(zip(state, values))
            feed[symbols] = written[-1]
            symbol, values = session.run([best, next_state], feed)
            written.append(symbol)
    return np.stack(written[1:])


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="train a small model, short strings")
    options = parser.parse_args(arguments)
    size = argparse.Namespace(**(QUICK if options.quick else FULL))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model")
        train(path, size)
        print("the checkpoint:", *sorted(name for name, _ in tf.train.list_variables(path)))
        digits, lengths = make_strings(np.random.RandomState(2), 500, size.longest)
        answers = answer(path, digits, lengths, size.units)
    right = reverse(digits, lengths)
    for column in range(5):
        text = "".join(map(str, digits[: lengths[column], column]))
        reversed_text = "".join(map(str, answers[: lengths[column], column]))
        print("%s -> %s" % (text, reversed_text))
    # What the decoder writes after END does not count.
    is_right = np.all((answers == right) | (np.cumsum(right == END, axis=0) > 1), axis=0)
    print("right answers: %.3f" % is_right.mean())


if __name__ == "__main__":
    main()
