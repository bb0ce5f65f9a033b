"""Recognises synthetic speech with a stack of bidirectional LSTMs and the CTC loss, in graph mode.

A phoneme is a sum of two tones; an utterance is a series of phonemes of different durations, with
noise. The network gets the spectrum of each frame and is told only the series of phonemes, not
where each one is. Utterances are padded; the layer gets their lengths. Prints the label error rate
(edit distance over length) of new utterances.
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow.compat.v1 as tf

import cudnn_rnn

SAMPLE_RATE, FRAME = 8000, 160  # 20 ms
NUM_BANDS = 20
# Hz, of the phonemes 0 to 7
TONES = [(300, 2300), (300, 900), (700, 1200), (700, 2300), (500, 1700), (500, 900)]
TONES += [(400, 3000), (900, 3000)]
FULL = dict(units=64, longest=12, steps=600, batch=32)
QUICK = dict(units=32, longest=5, steps=150, batch=16)


def utter(random, phonemes):
    """Returns the log spectrum of an utterance, `[frames, NUM_BANDS]`."""
    pieces = []
    for phoneme in phonemes:
        seconds = np.arange(FRAME * random.randint(2, 7)) / SAMPLE_RATE
        pitch = 2 * np.pi * random.uniform(0.97, 1.03)
        pieces.append(sum(np.sin(pitch * tone * seconds) for tone in TONES[phoneme]))
        pieces.append(np.zeros(FRAME))  # a pause
    sound = np.concatenate(pieces)
    sound += 0.3 * random.randn(len(sound))
    frames = sound.reshape(-1, FRAME) * np.hanning(FRAME)
    power = np.abs(np.fft.rfft(frames)[:, :-1]) ** 2
    return np.log(power.reshape(len(frames), NUM_BANDS, -1).mean(axis=-1))


def make_batch(random, size):
    """Returns features `[time, batch, NUM_BANDS]`, lengths `[batch]` and a list of phonemes."""
    counts = random.randint(1, size.longest + 1, size.batch)
    phonemes = [random.randint(0, len(TONES), count) for count in counts]
    utterances = [utter(random, series) for series in phonemes]
    lengths = np.array([len(utterance) for utterance in utterances], np.int32)
    features = np.zeros([lengths.max(), size.batch, NUM_BANDS], np.float32)
    for index, utterance in enumerate(utterances):
        features[: len(utterance), index] = utterance
    return features, lengths, phonemes


def sparse(phonemes):
    """Returns the value to feed for a SparseTensor of the labels, `[batch, longest]`."""
    indices = [(row, i) for row, series in enumerate(phonemes) for i in range(len(series))]
    shape = [len(phonemes), max(map(len, phonemes))]
    return tf.SparseTensorValue(np.array(indices), np.concatenate(phonemes), shape)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="train a small model")
    options = parser.parse_args(arguments)
    size = argparse.Namespace(**(QUICK if options.quick else FULL))

    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(1)
        random = np.random.RandomState(1)
        features = tf.placeholder(tf.float32, [None, None, NUM_BANDS])
        lengths = tf.placeholder(tf.int32, [None])
        labels = tf.sparse_placeholder(tf.int32)
        training = tf.placeholder_with_default(False, [])

        lstm = cudnn_rnn.layers.CudnnLSTM(
            num_layers=2, num_units=size.units, direction="bidirectional", dropout=0.1, seed=1
        )
        outputs, _ = lstm(features, sequence_lengths=lengths, training=training)
        # CTC's blank is the last class.
        kernel = tf.get_variable("kernel", [2 * size.units, len(TONES) + 1])
        logits = tf.tensordot(outputs, kernel, axes=1)
        loss = tf.reduce_mean(tf.nn.ctc_loss(labels, logits, lengths))
        step = tf.train.AdamOptimizer(0.01).minimize(loss)

        (decoded,), _ = tf.nn.ctc_greedy_decoder(logits, lengths)
        edits = tf.edit_distance(tf.cast(decoded, tf.int32), labels, normalize=False)
        error_rate = tf.reduce_sum(edits) / tf.cast(tf.size(labels.values), tf.float32)
        written = tf.sparse.to_dense(decoded, default_value=-1)

        def new_batch():
            values = make_batch(random, size)
            return values[2], {features: values[0], lengths: values[1], labels: sparse(values[2])}

        session.run(tf.global_variables_initializer())
        for number in range(1, size.steps + 1):
            _, feed = new_batch()
            feed[training] = True
            value, _ = session.run([loss, step], feed)
            if number % (size.steps // 5) == 0:
                print("step %d, loss %.3f" % (number, value), flush=True)
        rates = [session.run(error_rate, new_batch()[1]) for _ in range(5)]
        phonemes, feed = new_batch()
        for said, heard in zip(phonemes[:3], session.run(written, feed)):
            print("said  %s\nheard %s" % (said, heard[heard >= 0]))
        print("label error rate: %.3f" % np.mean(rates))


if __name__ == "__main__":
    main()
