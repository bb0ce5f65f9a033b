"""Tags each token of a sequence with a bidirectional Keras model; lengths differ.

The task: in a text with unbalanced brackets, mark every bracket that has a partner, and every
letter between partners. The tag of a token depends on what is before it and on what is after it.
Sequences are padded on the right. Embedding makes the mask, which the recurrent layer turns into
sequence lengths, so padding costs no time and has no effect.
"""

import argparse
import os
import random

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from tensorflow import keras

import cudnn_rnn.keras

TOKENS = " ab()"  # 0 is padding
SHORTEST, LONGEST = 4, 24
FULL = dict(examples=16000, units=64, epochs=8)
QUICK = dict(examples=3000, units=24, epochs=6)


def tags_of(text):
    """Returns a list with 1 for every token that is part of a balanced pair, and 0 for others."""
    tags, open_brackets = [0] * len(text), []
    for position, token in enumerate(text):
        if token == "(":
            open_brackets.append(position)
        elif token == ")" and open_brackets:
            start = open_brackets.pop()
            tags[start : position + 1] = [1] * (position + 1 - start)
    return tags


def make_data(num_examples):
    """Returns texts, tokens and tags; the arrays are int32 `[num_examples, LONGEST]`."""
    lengths = np.random.randint(SHORTEST, LONGEST + 1, num_examples)
    texts = ["".join(np.random.choice(list("aabb()"), length)) for length in lengths]
    tokens = np.zeros([num_examples, LONGEST], np.int32)
    tags = np.zeros([num_examples, LONGEST], np.int32)
    for row, text in enumerate(texts):
        tokens[row, : len(text)] = [TOKENS.index(token) for token in text]
        tags[row, : len(text)] = tags_of(text)
    return texts, tokens, tags


def make_model(units):
    """Returns a compiled model from tokens `[batch, time]` to logits `[batch, time, 2]`."""
    recurrent = cudnn_rnn.keras.LSTM(units, return_sequences=True)
    model = keras.Sequential(
        [
            keras.layers.Embedding(len(TOKENS), 16, mask_zero=True),
            keras.layers.Bidirectional(recurrent),
            keras.layers.Dense(2),  # of each step
        ]
    )
    # The mask goes through all layers to the loss, which leaves out padded steps.
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss)
    return model


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="train a small model on little data")
    options = parser.parse_args(arguments)
    size = argparse.Namespace(**(QUICK if options.quick else FULL))

    random.seed(1)  # seeds Keras's initializers
    tf.compat.v1.set_random_seed(1)
    np.random.seed(1)
    _, tokens, tags = make_data(size.examples)
    texts, held_out_tokens, held_out_tags = make_data(500)
    model = make_model(size.units)
    model.fit(tokens, tags, batch_size=64, epochs=size.epochs, verbose=0)

    predicted = model.predict(held_out_tokens, verbose=0).argmax(axis=-1)
    is_token = held_out_tokens != 0
    for row in range(5):
        print(texts[row])
        print("".join(" ^"[tag] for tag in predicted[row, : len(texts[row])]))
    frequency = held_out_tags[is_token].mean()
    print("accuracy of the more frequent tag: %.3f" % max(frequency, 1 - frequency))
    accuracy = (predicted == held_out_tags)[is_token].mean()
    print("held-out accuracy: %.3f" % accuracy)

    # The same sequences with more padding have the same results.
    longer = np.pad(held_out_tokens, [(0, 0), (0, 10)], "constant")
    logits, of_longer = (model.predict(t, verbose=0) for t in (held_out_tokens, longer))
    difference = np.abs(logits - of_longer[:, :LONGEST])[is_token].max()
    print("largest difference with more padding: %.1e" % difference)


if __name__ == "__main__":
    main()
