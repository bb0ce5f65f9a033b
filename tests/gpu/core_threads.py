"""Runs training steps of the core in several threads at once."""

import itertools
import threading

import torch
from core_harness import describe, train
from core_library import Model

_mock_streams = itertools.count(1)


def make_streams(core, device, count):
    """Returns `count` new streams: of PyTorch, numbers for the mock, or None on a CPU."""
    if device.type == "cuda":
        return [torch.cuda.Stream(device) for _ in range(count)]
    return [next(_mock_streams) if core.is_on_gpu(device) else None for _ in range(count)]


def train_at_once(core, case, device, data, streams, steps):
    """Runs training steps in as many threads as there are streams; returns their last results.

    Args:
      core: CoreLibrary.
      case: Case.
      device: torch.device.
      data: from `make_data`.
      streams: each thread's stream, from `make_streams`; threads may share one.
      steps: each thread's number of steps, which the threads start together.
    """
    barrier = threading.Barrier(len(streams))
    results, errors = [None] * len(streams), []

    def run(index):
        stream = streams[index]
        options = {"stream": stream} if isinstance(stream, int) else {}
        try:
            core.enter_thread()
            with torch.cuda.stream(None if options else stream):
                with Model(core, describe(case), device) as model:
                    for _ in range(steps):
                        barrier.wait()
                        results[index] = train(model, case, device, data, **options)
        except threading.BrokenBarrierError:
            pass  # another thread's error is the cause
        except BaseException as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=run, args=[index]) for index in range(len(streams))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results
