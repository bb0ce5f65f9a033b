"""Trains a character language model with CudnnLSTM, saves it, and restores it in two ways.

The steps are those of a typical graph-mode program with tf.contrib.cudnn_rnn:

1. train: a CudnnLSTM, whose weights are one opaque vector, learns with Adam to predict the next
   character of a text; its state is carried from segment to segment;
2. save: a Saver with an RNNParamsSaveable writes the weights in canonical form, layer by layer;
3. restore, in new graphs built from the files alone: into another CudnnLSTM, and into
   CudnnCompatibleLSTMCell under dynamic_rnn, which runs on any device with TensorFlow alone;
   both must reproduce the loss measured before saving;
4. generate text, character by character.
"""

import argparse
import collections
import json
import math
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import demo_report

with demo_report.quiet_imports():
    import numpy as np
    import tensorflow.compat.v1 as tf
    import tqdm
    from character_text import Vocabulary, read_corpus, segments, split_text
    from demo_options import UserError, make_output_folder, parse_options

    from cudnn_rnn import (
        CudnnCompatibleLSTMCell,
        CudnnLSTM,
        MultiRNNCell,
        RNNParamsSaveable,
        get_float32_matmul_precision,
    )

tf.logging.set_verbosity(tf.logging.ERROR)

EMBEDDING_SIZE = 64
LARGEST_GRADIENT_NORM = 1.0
# Maximum difference between the saved and the restored model's loss, in bits per character, for
# each precision of float32 products. Cells always compute in the highest.
LOSS_TOLERANCE = {"highest": 1e-4, "high": 1e-4, "medium": 1e-2}
PROMPT_LENGTH = 120
SAMPLE_LENGTH = 500
QUICK_TEXT_LENGTH = 50000

# A built model. `initial_state` and `final_state` are lists of tensors in the same order; the
# initial states are zeros unless fed. `loss` is in bits per character.
Model = collections.namedtuple(
    "Model", ["inputs", "targets", "initial_state", "final_state", "logits", "loss", "saver"]
)


def build_model(recurrent_layers, vocabulary_size, options, is_training):
    """Builds embedding, recurrent layers and softmax in the default graph.

    Args:
      recurrent_layers: `cudnn_layers` or `compatible_layers`.
      vocabulary_size: number of different characters.
      options: has `layers` and `units`.
      is_training: False for a model that needs no gradients.

    Returns:
      A `Model` whose saver holds the weights of all layers in canonical form.
    """
    with tf.variable_scope("model"):
        # [time, batch], as CudnnLSTM requires.
        inputs = tf.placeholder(tf.int32, [None, None], "inputs")
        targets = tf.placeholder(tf.int32, [None, None], "targets")
        embedding = tf.get_variable("embedding", [vocabulary_size, EMBEDDING_SIZE])
        embedded = tf.nn.embedding_lookup(embedding, inputs)
        outputs, initial_state, final_state, saved = recurrent_layers(
            embedded, options.layers, options.units, is_training
        )
        kernel = tf.get_variable("softmax/kernel", [options.units, vocabulary_size])
        bias = tf.get_variable(
            "softmax/bias", [vocabulary_size], initializer=tf.zeros_initializer()
        )
        logits = tf.tensordot(outputs, kernel, axes=1) + bias
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=targets, logits=logits)
        loss = tf.reduce_mean(loss) / math.log(2)
    saver = tf.train.Saver([embedding, kernel, bias] + saved)
    return Model(inputs, targets, initial_state, final_state, logits, loss, saver)


def cudnn_layers(embedded, num_layers, num_units, is_training):
    """Builds the recurrent layers as one CudnnLSTM.

    Returns:
      The outputs `[time, batch, num_units]`, the lists of initial and final states, and the list of
      objects that a Saver must save.
    """
    lstm = CudnnLSTM(num_layers, num_units, EMBEDDING_SIZE)
    bound = 1 / math.sqrt(num_units)
    params = tf.get_variable(
        "opaque_params", initializer=tf.random_uniform([lstm.params_size()], -bound, bound)
    )
    state_shape = [num_layers, tf.shape(embedded)[1], num_units]
    state = [tf.zeros(state_shape, name="h"), tf.zeros(state_shape, name="c")]
    outputs, output_h, output_c = lstm(embedded, state[0], state[1], params, is_training)
    # Saved instead of the opaque vector. dynamic_rnn puts its variables in the same scope, so the
    # keys are the variable names of the compatible cells.
    saveable = RNNParamsSaveable(
        lstm,
        lstm.params_to_canonical,
        lstm.canonical_to_params,
        [params],
        tf.get_variable_scope().name + "/rnn",
    )
    return outputs, state, [output_h, output_c], [saveable]


def compatible_layers(embedded, num_layers, num_units, is_training):
    """Builds the same layers of CudnnCompatibleLSTMCells; see `cudnn_layers`."""
    del is_training
    cell = MultiRNNCell([CudnnCompatibleLSTMCell(num_units) for _ in range(num_layers)])
    state = cell.zero_state(tf.shape(embedded)[1], tf.float32)
    outputs, final_state = tf.nn.dynamic_rnn(cell, embedded, initial_state=state, time_major=True)
    return outputs, tf.nest.flatten(state), tf.nest.flatten(final_state), list(cell.variables)


def training_op(loss, options):
    """Returns an Adam step with a learning rate that decays to a tenth and clipped gradients."""
    step = tf.train.get_or_create_global_step()
    learning_rate = tf.train.polynomial_decay(
        options.learning_rate, step, options.steps, options.learning_rate / 10
    )
    variables = tf.trainable_variables()
    gradients, _ = tf.clip_by_global_norm(tf.gradients(loss, variables), LARGEST_GRADIENT_NORM)
    optimizer = tf.train.AdamOptimizer(learning_rate)
    return optimizer.apply_gradients(list(zip(gradients, variables)), global_step=step)


def run_segment(session, model, segment, state, fetches):
    """Runs one segment from `state`, a list of arrays; returns the fetched values and new state."""
    feed = {model.inputs: segment.inputs, model.targets: segment.targets}
    if not segment.is_first:
        feed.update(zip(model.initial_state, state))
    return session.run([fetches, model.final_state], feed)


def measure(session, model, parts):
    """Returns the mean loss over consecutive segments, in bits per character."""
    state, total, count = None, 0.0, 0
    for part in parts:
        loss, state = run_segment(session, model, part, state, model.loss)
        total += float(loss) * part.targets.size
        count += part.targets.size
    return total / count


def train(session, model, training_parts, held_out_parts, options):
    """Trains the model and shows the progress.

    Returns:
      Two lists of (step, bits per character): for every training segment, and for the held-out
      text.

    Raises:
      UserError: the loss is not finite.
    """
    step_op = training_op(model.loss, options)
    session.run(tf.global_variables_initializer())
    training, held_out, state = [], [(0, measure(session, model, held_out_parts))], None
    between = -(-options.steps // 10)  # rounded up
    with tqdm.tqdm(total=options.steps, desc="Training", unit="step", ncols=100) as progress:
        for step in range(1, options.steps + 1):
            part = training_parts[(step - 1) % len(training_parts)]
            (loss, _), state = run_segment(session, model, part, state, (model.loss, step_op))
            if not np.isfinite(loss):
                raise UserError(
                    "the loss is %s after %d steps: try a smaller --learning-rate (it was %g)"
                    % (loss, step, options.learning_rate)
                )
            training.append((step, float(loss)))
            if step % between == 0 or step == options.steps:
                held_out.append((step, measure(session, model, held_out_parts)))
            recent = np.mean([value for _, value in training[-20:]])
            progress.set_postfix_str(
                "bits/char: %.2f, held out %.2f" % (recent, held_out[-1][1]), refresh=False
            )
            progress.update()
    return training, held_out


def train_and_save(paths, vocabulary, training_codes, held_out_codes, options):
    """Trains a CudnnLSTM and saves it to `paths.checkpoint` and `paths.model`.

    Returns:
      A dictionary of results, and the two lists of `train`.
    """
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(options.seed)
        model = build_model(cudnn_layers, len(vocabulary), options, is_training=True)
        num_parameters = sum(v.shape.num_elements() for v in tf.trainable_variables())
        start = time.time()
        training, held_out = train(
            session,
            model,
            segments(training_codes, options.batch, options.seq_length),
            segments(held_out_codes, options.batch, options.seq_length),
            options,
        )
        results = dict(
            num_parameters=num_parameters,
            seconds_of_training=round(time.time() - start, 1),
            training_bits_per_character=float(np.mean([loss for _, loss in training[-20:]])),
            held_out_bits_per_character=held_out[-1][1],
        )
        model.saver.save(session, paths.checkpoint, write_meta_graph=False)
    # A program needs this description to use the checkpoint.
    description = dict(
        characters=vocabulary.characters,
        layers=options.layers,
        units=options.units,
        held_out_bits_per_character=held_out[-1][1],
    )
    demo_report.write_json(paths.model, description)
    return results, training, held_out


def restored(session, recurrent_layers, paths):
    """Restores a model from the files into the default graph; returns it and its vocabulary."""
    with open(paths.model, encoding="utf-8") as file:
        saved = json.load(file)
    options = argparse.Namespace(layers=saved["layers"], units=saved["units"])
    vocabulary = Vocabulary(saved["characters"])
    model = build_model(recurrent_layers, len(vocabulary), options, is_training=False)
    model.saver.restore(session, paths.checkpoint)
    return model, vocabulary


def measure_restored(recurrent_layers, paths, text, options):
    """Returns the loss on `text` of a model restored into a new graph."""
    with tf.Graph().as_default(), tf.Session() as session:
        model, vocabulary = restored(session, recurrent_layers, paths)
        parts = segments(vocabulary.encode(text), options.batch, options.seq_length)
        return measure(session, model, parts)


def write_text(paths, prompt, length, temperature, seed):
    """Returns the restored model's continuation of a text, sampled from its predictions."""
    random = np.random.RandomState(seed)
    with tf.Graph().as_default(), tf.Session() as session:
        model, vocabulary = restored(session, cudnn_layers, paths)
        next_logits = model.logits[-1, 0]
        # Feeds the whole prompt at once, [time, 1], then one character per step, [1, 1].
        feed, codes = {model.inputs: vocabulary.encode(prompt)[:, np.newaxis]}, []
        for _ in range(length):
            logits, state = session.run([next_logits, model.final_state], feed)
            scores = logits.astype(np.float64) / temperature
            scores[0] = -np.inf  # never the unknown character
            probabilities = np.exp(scores - scores.max())
            codes.append(random.choice(len(vocabulary), p=probabilities / probabilities.sum()))
            feed = dict(zip(model.initial_state, state))
            feed[model.inputs] = [codes[-1:]]
    return vocabulary.decode(codes)


def run(options):
    """Trains, saves, restores and generates text; returns the exit code."""
    text = read_corpus(options.corpus)
    text = text[:QUICK_TEXT_LENGTH] if options.quick else text
    training_text, held_out_text = split_text(text, options.batch)
    vocabulary = Vocabulary.of_text(training_text)
    paths = make_output_folder(options.output)
    print(
        "Model  %d-layer CudnnLSTM with %d units, in TensorFlow %s"
        % (options.layers, options.units, tf.__version__)
    )
    print(
        "Text   %s: %s characters, %d different; the last %s are held out"
        % (
            options.corpus or "the Python language reference (pydoc_data.topics)",
            format(len(text), ","),
            len(vocabulary) - 1,
            format(len(held_out_text), ","),
        ),
        flush=True,
    )
    results, training, held_out = train_and_save(
        paths,
        vocabulary,
        vocabulary.encode(training_text),
        vocabulary.encode(held_out_text),
        options,
    )
    saved = results["held_out_bits_per_character"]
    print("\nHeld-out text, bits per character:")
    print("  %-52s %.4f" % ("the trained CudnnLSTM", saved))
    agree, tolerance = True, LOSS_TOLERANCE[get_float32_matmul_precision()]
    for key, name, layers in (
        ("cudnn_lstm", "restored into a new CudnnLSTM", cudnn_layers),
        ("compatible_cells", "restored into CudnnCompatibleLSTMCell", compatible_layers),
    ):
        loss = measure_restored(layers, paths, held_out_text, options)
        results["restored_into_" + key] = loss
        agrees = abs(loss - saved) <= tolerance
        agree = agree and agrees
        verdict = "equal" if agrees else "NOT EQUAL"
        print("  %-52s %.4f  %s" % (name, loss, verdict), flush=True)
    prompt = held_out_text[:PROMPT_LENGTH]
    sample = write_text(paths, prompt, SAMPLE_LENGTH, options.temperature, options.seed)
    print("\nThe held-out text begins:\n\n%s" % indented(prompt))
    print("\nThe restored model continues (temperature %g):\n" % options.temperature)
    print(indented(sample))
    leave_files(paths, options, results, training, held_out, sample)
    if not agree:
        print(
            "\nThe loss of a restored model differs from the saved loss by more than the tolerance "
            "of %g bits per character." % tolerance,
            file=sys.stderr,
        )
    return 0 if agree else 1


def indented(text):
    """Returns the text with each line indented by four spaces."""
    return "\n".join("    " + line for line in text.splitlines())


def leave_files(paths, options, results, training, held_out, sample):
    """Writes sample, results and curve; prints the paths of all files."""
    title = "Character language model, %d-layer CudnnLSTM, %d units" % (
        options.layers,
        options.units,
    )
    demo_report.plot_curve(paths.curve, training, held_out, title)
    with open(paths.sample, "w", encoding="utf-8") as file:
        file.write(sample)
    demo_report.write_json(
        paths.results,
        dict(
            results,
            options=vars(options),
            tensorflow=tf.__version__,
            held_out_curve=held_out,
        ),
    )
    print("\nWritten:")
    for path, what in (
        (paths.checkpoint, "checkpoint, canonical weights (with .index, .data-...)"),
        (paths.model, "characters and sizes of the model"),
        (paths.curve, "loss curve"),
        (paths.sample, "text that the model generated"),
        (paths.results, "losses and options of this run"),
    ):
        print("  %-36s %s" % (path, what))


def main(arguments=None):
    """Runs the program; returns its exit code."""
    options = parse_options(sys.argv[1:] if arguments is None else arguments)
    try:
        return run(options)
    except (UserError, ImportError) as error:
        print("character_language_model.py: error: %s" % error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    # The text may contain characters that the terminal cannot encode.
    sys.stdout.reconfigure(errors="replace")
    sys.exit(main())
