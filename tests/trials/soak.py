"""Sessions with pools of many sizes compute at once, beside a process that keeps a core busy.

Eight sessions have pools of 1 to 8 threads of their own. Eight threads per session train, infer and
decode models of random shapes; each result must have the bits of the first run, which was alone.
The resident memory must stay flat. The latency of a decode step is recorded next to that of a
tf.matmul with as many operations, in the same sessions.
"""

import array
import collections
import faulthandler
import os
import random
import subprocess
import sys
import threading
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
import tensorflow as tf

import cudnn_rnn
import running

tf1 = tf.compat.v1

CLASSES = [
    cudnn_rnn.CudnnLSTM,
    cudnn_rnn.CudnnGRU,
    cudnn_rnn.CudnnRNNTanh,
    cudnn_rnn.CudnnRNNRelu,
]
# A call takes milliseconds; nothing but a hang takes this long, even on a busy machine.
SECONDS_OF_A_HANG = 600
# The resident memory may grow by this much from the first third of the run to the last.
GROWTH_BYTES = 48 << 20
DECODER_UNITS, DECODER_BATCH = 256, 4
KINDS = ("decode", "infer", "matmul", "train")

Task = collections.namedtuple("Task", "kind fetches feeds expected")


SPIN = """
import os, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
while os.getppid() == int(sys.argv[1]):
    pass
"""


def spin():
    """Returns a process that keeps the first CPU busy until it is killed or this process ends."""
    return subprocess.Popen([sys.executable, "-c", SPIN, str(os.getpid())])


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class LoadedSession:
    """A session with a pool of its own, and the tasks that its threads run."""

    def __init__(self, num_threads, generator):
        self.num_threads, self.tasks, parts = num_threads, [], []
        with tf.Graph().as_default():
            for _ in range(3):
                parts += self._random_model(generator)
            parts += self._decoder(generator)
            initialize = tf1.global_variables_initializer()
            config = tf1.ConfigProto(
                intra_op_parallelism_threads=num_threads,
                inter_op_parallelism_threads=2,
                use_per_session_threads=True,
            )
            self.session = tf1.Session(config=config)
            self.session.run(initialize)
        for kind, fetches, feeds in parts:
            expected = self.session.run(fetches, feeds)
            self.tasks.append(Task(kind, fetches, feeds, expected))

    @staticmethod
    def _variable(size, units, generator):
        values = generator.uniform(-1, 1, size) / np.sqrt(units)
        return tf1.Variable(values.astype(np.float32), use_resource=True)

    def _model(self, cls, layers, units, batch, steps, direction, dtype, generator):
        """Returns the results in training, those in inference, the differentiated inputs, feeds."""
        model = cls(layers, units, units, direction=direction, dtype=dtype)
        with tf1.Session() as session:
            size = int(session.run(model.params_size()))
        params = tf.cast(self._variable(size, units, generator), dtype)
        states = layers * (2 if direction == "bidirectional" else 1)
        shapes = [(steps, batch, units)] + [(states, batch, units)] * (1 + (cls is CLASSES[0]))
        inputs = [tf1.placeholder(dtype, shape) for shape in shapes]
        arrays = [generator.standard_normal(shape).astype(dtype.as_numpy_dtype) for shape in shapes]
        train, infer = (
            model(inputs[0], *inputs[1:], params=params, is_training=flag) for flag in (True, False)
        )
        return train, infer, inputs + [params], dict(zip(inputs, arrays))

    def _random_model(self, generator):
        choose = generator.randint
        direction = ("unidirectional", "bidirectional")[choose(2)]
        sizes = (choose(1, 4), (3, 20, 64, 150)[choose(4)], choose(1, 24), choose(1, 30))
        dtype = (tf.float32, tf.float32, tf.bfloat16, tf.float16)[choose(4)]
        model = self._model(CLASSES[choose(4)], *sizes, direction, dtype, generator)
        train, infer, inputs, feeds = model
        loss = tf.reduce_sum([tf.reduce_sum(tf.cast(one, tf.float32)) for one in train])
        gradients = tf.gradients(loss, inputs)
        # Sums of ops of TensorFlow may depend on the threads, so they are not fetched.
        return [("train", [train, gradients], feeds), ("infer", [infer], feeds)]

    def _decoder(self, generator):
        sizes = (1, DECODER_UNITS, DECODER_BATCH, 1, "unidirectional", tf.float32)
        _, infer, _, feeds = self._model(CLASSES[0], *sizes, generator)
        x = tf1.placeholder(tf.float32, [DECODER_BATCH, 2 * DECODER_UNITS])
        weights = self._variable([2 * DECODER_UNITS, 4 * DECODER_UNITS], DECODER_UNITS, generator)
        product = tf.matmul(x, weights)
        values = generator.standard_normal(x.shape.as_list()).astype(np.float32)
        return [("decode", [infer], feeds), ("matmul", [product], {x: values})]


class Load:
    """The threads of all sessions."""

    def __init__(self, sessions, threads_per_session, seed):
        self.stops, self.problems, self.counts = threading.Event(), [], collections.Counter()
        # Eight bytes per call, so that an hour of calls adds little to the resident memory.
        self.latencies = collections.defaultdict(lambda: array.array("d"))
        self._lock, self.last = threading.Lock(), {}
        self.threads = [
            threading.Thread(target=self._work, args=(one, seed * 1000 + number), daemon=True)
            for number, one in enumerate(list(sessions) * threads_per_session)
        ]

    def start(self, rounds):
        self._rounds = rounds
        for thread in self.threads:
            self.last[thread] = time.monotonic()
            thread.start()

    def _work(self, loaded, seed):
        generator, thread = random.Random(seed), threading.current_thread()
        numbers = range(self._rounds) if self._rounds else iter(int, 1)
        try:
            for _ in numbers:
                if self.stops.is_set():
                    return
                self._run(loaded, generator.choice(loaded.tasks))
                self.last[thread] = time.monotonic()
        except Exception as error:  # a thread that ends would be missed only at the end
            self.fail("%s: %s" % (type(error).__name__, error))
        finally:
            self.last.pop(thread)

    def fail(self, text):
        self.problems.append(text)
        self.stops.set()

    def _run(self, loaded, task):
        start = time.perf_counter()
        found = loaded.session.run(task.fetches, task.feeds)
        seconds = time.perf_counter() - start
        pairs = zip(tf.nest.flatten(found), tf.nest.flatten(task.expected))
        # TensorFlow's own product may divide its sums by threads.
        if task.kind != "matmul" and any(one.tobytes() != two.tobytes() for one, two in pairs):
            text = "a %s step in a pool of %d threads has other bits than the serial run"
            self.fail(text % (task.kind, loaded.num_threads))
        with self._lock:
            self.counts[task.kind] += 1
            if task.kind in ("decode", "matmul"):
                self.latencies[task.kind].append(seconds)

    def hanging(self):
        """Returns whether a thread has been in one call for SECONDS_OF_A_HANG."""
        now = time.monotonic()
        return any(now - last > SECONDS_OF_A_HANG for last in list(self.last.values()))


def watch(load, minutes):
    """Waits for the end, at most these minutes; returns samples of the resident memory."""
    samples, end = [], time.monotonic() + 60 * minutes
    next_line = time.monotonic() + 30
    while any(thread.is_alive() for thread in load.threads):
        if time.monotonic() > end:
            load.stops.set()
        if load.hanging():
            faulthandler.dump_traceback(all_threads=True)
            print("FAILED: a call has taken more than %d seconds" % SECONDS_OF_A_HANG, flush=True)
            os._exit(1)
        samples.append(resident_bytes())
        if time.monotonic() > next_line:
            total = sum(load.counts.values())
            print("%d calls, %d MiB resident" % (total, samples[-1] >> 20), flush=True)
            next_line += 30
        time.sleep(0.5)
    return samples


def check_memory(load, samples):
    """Fails the load if the memory has grown; returns the bytes by which it has."""
    third = len(samples) // 3
    growth = max(samples[-third:]) - max(samples[:third]) if third else 0
    if growth > GROWTH_BYTES:
        load.fail("the resident memory has grown by %d MiB" % (growth >> 20))
    return growth


def describe(load, growth):
    """Returns the counts of calls, the growth of the memory and the latencies as text."""
    counts = ", ".join("%d %s" % (load.counts[kind], kind) for kind in KINDS)
    latencies = "; ".join(
        "%s p50 %.2f ms, p99 %.1f ms"
        % (kind, *(1e3 * np.percentile(load.latencies[kind], [50, 99])))
        for kind in ("decode", "matmul")
    )
    text = "%s steps, all with the serial bits; memory %+d MiB; %s"
    return text % (counts, growth >> 20, latencies)


def main():
    parser = running.make_parser(__doc__, seed=1, short="two sessions, a few calls per thread")
    parser.add_argument("--minutes", type=running.above_zero(float), default=8, help="default: 8")
    chosen = parser.parse_args()
    generator = np.random.RandomState(chosen.seed)
    pools = (1, 3) if chosen.short else range(1, 9)
    sessions = [LoadedSession(num_threads, generator) for num_threads in pools]
    load = Load(sessions, 4 if chosen.short else 8, chosen.seed)
    neighbour = spin()
    try:
        load.start(10 if chosen.short else None)
        samples = watch(load, float("inf") if chosen.short else chosen.minutes)
        if neighbour.poll() is not None:
            load.fail("the process that keeps a core busy has ended")
    finally:
        neighbour.kill()
    growth = 0 if chosen.short else check_memory(load, samples)
    missing = [kind for kind in KINDS if not load.counts[kind]]
    if missing:
        load.fail("no calls of these kinds have run: %s" % ", ".join(missing))
    for problem in load.problems:
        print("FAILED: %s (--seed %d)" % (problem, chosen.seed))
    sizes = "%d threads on %d sessions: " % (len(load.threads), len(sessions))
    print("result: " + sizes + (load.problems or [describe(load, growth)])[0])
    return 1 if load.problems else 0


if __name__ == "__main__":
    sys.exit(main())
