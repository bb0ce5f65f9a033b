"""Runs training steps of the core in several threads at once."""

import contextlib
import threading

import torch
from core_harness import describe, train
from core_library import Model


def make_stream(device):
    """Returns a new stream of a GPU, or None."""
    return torch.cuda.Stream() if device.type == "cuda" else None


def train_at_once(core, case, device, data, streams, rounds):
    """Runs `rounds` training steps of a model per thread; returns the results of the last ones.

    Args:
      core: CoreLibrary.
      case: Case.
      device: torch.device.
      data: from `make_data`.
      streams: one for each thread, from `make_stream`; a stream may be repeated.
      rounds: how many steps each thread runs; all threads begin each of them together.
    """
    barrier = threading.Barrier(len(streams))
    results, errors = [None] * len(streams), []

    def run(index):
        stream = streams[index]
        try:
            core.enter_thread()
            with torch.cuda.stream(stream) if stream else contextlib.suppress():
                with Model(core, describe(case), device) as model:
                    for _ in range(rounds):
                        barrier.wait()
                        results[index] = train(model, case, device, data)
        except threading.BrokenBarrierError:
            pass  # the error of another thread is kept
        except Exception as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(streams))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results
