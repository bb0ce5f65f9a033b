"""A language model as programs of TensorFlow 1.3 are written; runs with `tf.contrib`.

    python -m cudnn_rnn run --tf1 --tf-contrib-version 1.3 language_model.py MODE FOLDER

MODE is the kind of LSTM: basic, block or cudnn. Trains, saves to FOLDER, and prints the losses and
the keys of the checkpoint.
"""

import sys

import numpy as np
import tensorflow as tf

PARAMS = tf.contrib.training.HParams(
    units=6, layers=2, words=11, steps=5, batch=4, keep=0.9, scale=0.1
)


def cell_of_mode(mode, is_training):
    if mode == "basic":
        cell = tf.contrib.rnn.BasicLSTMCell(PARAMS.units, forget_bias=0.0, reuse=not is_training)
        if is_training:
            cell = tf.contrib.rnn.DropoutWrapper(cell, output_keep_prob=PARAMS.keep)
        return cell
    return tf.contrib.rnn.LSTMBlockCell(PARAMS.units, forget_bias=0.0)


def run_cells(mode, inputs, is_training):
    cells = [cell_of_mode(mode, is_training) for _ in range(PARAMS.layers)]
    cell = tf.contrib.rnn.MultiRNNCell(cells, state_is_tuple=True)
    state = cell.zero_state(PARAMS.batch, tf.float32)
    outputs = []
    with tf.variable_scope("RNN"):
        for step in range(PARAMS.steps):
            if step > 0:
                tf.get_variable_scope().reuse_variables()
            output, state = cell(inputs[:, step, :], state)
            outputs.append(output)
    return tf.stack(outputs, 1)


def run_cudnn(inputs, is_training):
    lstm = tf.contrib.cudnn_rnn.CudnnLSTM(
        num_layers=PARAMS.layers,
        num_units=PARAMS.units,
        input_size=PARAMS.units,
        dropout=1 - PARAMS.keep if is_training else 0,
    )
    params = tf.get_variable(
        "lstm_params",
        initializer=tf.random_uniform([lstm.params_size()], -PARAMS.scale, PARAMS.scale),
        validate_shape=False,
    )
    zeros = tf.zeros([PARAMS.layers, PARAMS.batch, PARAMS.units])
    state = tf.contrib.rnn.LSTMStateTuple(h=zeros, c=zeros)
    outputs, _, _ = lstm(tf.transpose(inputs, [1, 0, 2]), state.h, state.c, params, is_training)
    if is_training:
        tf.add_to_collection(
            tf.GraphKeys.SAVEABLE_OBJECTS,
            tf.contrib.cudnn_rnn.RNNParamsSaveable(
                lstm,
                lstm.params_to_canonical,
                lstm.canonical_to_params,
                [params],
                base_variable_scope="Model/RNN",
            ),
        )
    return tf.transpose(outputs, [1, 0, 2])


def loss_of(mode, words, is_training):
    embedding = tf.get_variable("embedding", [PARAMS.words, PARAMS.units])
    inputs = tf.nn.embedding_lookup(embedding, words[:, :-1])
    if mode == "cudnn":
        outputs = run_cudnn(inputs, is_training)
    else:
        outputs = run_cells(mode, inputs, is_training)
    matrix = tf.get_variable(
        "softmax",
        [PARAMS.units, PARAMS.words],
        initializer=tf.contrib.layers.xavier_initializer(),
        regularizer=tf.contrib.layers.l2_regularizer(1e-6),
    )
    logits = tf.reshape(tf.matmul(tf.reshape(outputs, [-1, PARAMS.units]), matrix), [-1, 5, 11])
    loss = tf.contrib.seq2seq.sequence_loss(
        logits,
        words[:, 1:],
        tf.ones([PARAMS.batch, PARAMS.steps]),
        average_across_timesteps=False,
        average_across_batch=True,
    )
    return tf.reduce_sum(loss)


def main(mode, folder):
    tf.set_random_seed(1)
    words = tf.constant(np.arange(24).reshape(4, 6) * 3 % PARAMS.words)
    initializer = tf.random_uniform_initializer(-PARAMS.scale, PARAMS.scale)
    with tf.variable_scope("Model", initializer=initializer):
        train_loss = loss_of(mode, words, is_training=True)
    with tf.variable_scope("Model", reuse=True, initializer=initializer):
        loss = loss_of(mode, words, is_training=False)
    variables = tf.trainable_variables()
    gradients, _ = tf.clip_by_global_norm(tf.gradients(train_loss, variables), 5)
    step = tf.contrib.framework.get_or_create_global_step()
    train = tf.train.AdamOptimizer(0.05).apply_gradients(zip(gradients, variables), step)
    saver = tf.train.Saver(variables + [step] if mode != "cudnn" else None)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        before = session.run(loss)
        for _ in range(60):
            session.run(train)
        after = session.run(loss)
        path = saver.save(session, folder + "/model", step)
        saver.restore(session, path)
        assert abs(session.run(loss) - after) < 1e-5
    print("losses", before, after)
    print("keys", sorted(key for key, _ in tf.train.list_variables(path) if "Adam" not in key))


if __name__ == "__main__":
    main(*sys.argv[1:])
