"""Trains a word language model in the style of the PTB tutorial of TensorFlow 1, in graph mode.

Two LSTM layers in one op, with dropout; the state is carried from batch to batch (truncated
backpropagation through time); plain gradient descent, whose learning rate is halved after a few
epochs. The checkpoint has canonical weights. The program restores it into a new graph, which must
have the perplexity of the trained model.
"""

import argparse
import collections
import math
import os
import re
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow.compat.v1 as tf
from character_text import read_corpus, segments
from demo_options import UserError

import cudnn_rnn

LARGEST_GRADIENT_NORM = 5.0
FULL = dict(words=None, vocabulary=5000, units=200, batch=20, steps=35, epochs=8)
QUICK = dict(words=16000, vocabulary=500, units=48, batch=5, steps=20, epochs=4)

Model = collections.namedtuple("Model", "inputs targets training state final_state loss saver")


def read_words(path, vocabulary_size, limit):
    """Returns the codes of a text's words, int32; 0 is every rare word."""
    lines = read_corpus(path).lower().splitlines()
    words = [word for line in lines for word in re.findall(r"\w+|[^\w\s]", line) + ["<eos>"]]
    words = words[:limit]
    frequent = collections.Counter(words).most_common(vocabulary_size - 1)
    codes = {word: code for code, (word, _) in enumerate(frequent, 1)}
    return np.array([codes.get(word, 0) for word in words], np.int32)


def unigram_perplexity(training, held_out, vocabulary_size):
    """Returns the perplexity of a model that knows only how frequent each word is."""
    counts = np.bincount(training, minlength=vocabulary_size) + 1.0
    return math.exp(-np.mean(np.log(counts / counts.sum())[held_out]))


def build_model(vocabulary_size, units, layers=2, dropout=0.2):
    """Builds the model in the default graph; tensors are time-major, `[time, batch, ...]`."""
    inputs = tf.placeholder(tf.int32, [None, None])
    targets = tf.placeholder(tf.int32, [None, None])
    training = tf.placeholder_with_default(False, [])
    rate = tf.where(training, dropout, 0.0)

    embedding = tf.get_variable("embedding", [vocabulary_size, units])
    embedded = tf.nn.dropout(tf.nn.embedding_lookup(embedding, inputs), rate=rate)

    lstm = cudnn_rnn.CudnnLSTM(layers, units, units, dropout=dropout, seed=1)
    initial_value = tf.random_uniform([lstm.params_size()], -0.1, 0.1)
    params = tf.get_variable("lstm_params", initializer=initial_value)
    zeros = tf.zeros([layers, tf.shape(inputs)[1], units])
    # Zeros unless fed.
    state = [tf.placeholder_with_default(zeros, [layers, None, units]) for _ in range(2)]
    outputs, h, c = lstm(embedded, state[0], state[1], params, training)
    saveable = cudnn_rnn.RNNParamsSaveable(
        lstm, lstm.params_to_canonical, lstm.canonical_to_params, [params], "model/rnn"
    )

    kernel = tf.get_variable("softmax/kernel", [units, vocabulary_size])
    bias = tf.get_variable("softmax/bias", [vocabulary_size], initializer=tf.zeros_initializer())
    logits = tf.tensordot(tf.nn.dropout(outputs, rate=rate), kernel, axes=1) + bias
    loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=targets, logits=logits)
    # The canonical weights stand for the opaque vector.
    saver = tf.train.Saver([embedding, kernel, bias, saveable])
    return Model(inputs, targets, training, state, [h, c], tf.reduce_mean(loss), saver)


def run_epoch(session, model, parts, train=None, feed=()):
    """Returns the perplexity of a text in segments; runs the op `train` on each."""
    state, total, count = None, 0.0, 0
    fetches = [model.loss, model.final_state] + ([] if train is None else [train])
    for part in parts:
        values = {model.inputs: part.inputs, model.targets: part.targets, **dict(feed)}
        if not part.is_first:
            values.update(zip(model.state, state))
        loss, state = session.run(fetches, values)[:2]
        total += loss * part.inputs.size
        count += part.inputs.size
    if not total < 700 * count:  # exp would overflow, or the loss is NaN
        raise UserError("the training diverged: use a smaller --learning-rate")
    return math.exp(total / count)


def training_op(model, learning_rate):
    """Returns a step of gradient descent with clipped gradients."""
    # Summed over time, averaged over the batch, as in the PTB tutorial.
    loss = model.loss * tf.cast(tf.shape(model.inputs)[0], tf.float32)
    variables = tf.trainable_variables()
    gradients, _ = tf.clip_by_global_norm(tf.gradients(loss, variables), LARGEST_GRADIENT_NORM)
    optimizer = tf.train.GradientDescentOptimizer(learning_rate)
    return optimizer.apply_gradients(list(zip(gradients, variables)))


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", metavar="FILE", help="UTF-8 text (default: from Python's help)")
    parser.add_argument("--learning-rate", type=float, default=1.0, help="at first (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="train a small model on a short text")
    options = parser.parse_args(arguments)
    size = argparse.Namespace(**(QUICK if options.quick else FULL))

    codes = read_words(options.text, size.vocabulary, size.words)
    shortest = 10 * size.batch + 1  # a tenth is held out, as `batch` parallel streams
    if len(codes) < shortest:
        raise UserError("the text has %d words; at least %d are needed" % (len(codes), shortest))
    boundary = len(codes) * 9 // 10
    print("%d words, the last %d are held out" % (len(codes), len(codes) - boundary))
    unigram = unigram_perplexity(codes[:boundary], codes[boundary:], size.vocabulary)
    print("perplexity of word frequencies: %.2f" % unigram)
    training = segments(codes[:boundary], size.batch, size.steps)
    held_out = segments(codes[boundary:], size.batch, size.steps)

    with tempfile.TemporaryDirectory() as folder:
        with tf.Graph().as_default(), tf.Session() as session:
            tf.set_random_seed(1)
            model = build_model(size.vocabulary, size.units)
            learning_rate = tf.placeholder(tf.float32, [])
            train = training_op(model, learning_rate)
            session.run(tf.global_variables_initializer())
            for epoch in range(size.epochs):
                rate = options.learning_rate * 0.5 ** max(0, epoch + 1 - size.epochs // 2)
                feed = {model.training: True, learning_rate: rate}
                in_training = run_epoch(session, model, training, train, feed)
                perplexity = run_epoch(session, model, held_out)
                text = "epoch %d, learning rate %.3f, perplexity: training %.2f, held out %.2f"
                print(text % (epoch + 1, rate, in_training, perplexity), flush=True)
            path = model.saver.save(session, os.path.join(folder, "model"))
        with tf.Graph().as_default(), tf.Session() as session:
            model = build_model(size.vocabulary, size.units)
            model.saver.restore(session, path)
            print("held out, restored: %.2f" % run_epoch(session, model, held_out))


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        raise SystemExit("word_language_model.py: error: %s" % error)
