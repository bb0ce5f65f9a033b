"""The order of a test's cases: the most telling first, so that a run may end after any of them."""

import heapq
import itertools


def most_telling_first(rows):
    """Returns the indices of the rows in an order whose start covers as much as possible.

    The first rows together have every pair of two columns' values that any row has, the next ones
    every triple, and so has each later part of the order, as far as the rest allows. Each row is
    the one that adds most.

    Args:
      rows: a list of dicts from columns to values.
    """
    order = _cover(_make_masks(rows, 2))
    triples = _make_masks(rows, 3)
    while True:
        for index in order:
            triples.pop(index, None)
        if not triples:
            return order
        order += _cover(triples)


def _make_masks(rows, size):
    """Returns a dict from indices to sets of combinations of `size` values, as bits of an int.

    A row of fewer columns counts as one combination.
    """
    bits, masks = {}, {}
    for index, row in enumerate(rows):
        values = sorted((column, repr(value)) for column, value in row.items())
        combinations = itertools.combinations(values, min(size, len(values)))
        masks[index] = sum(1 << bits.setdefault(one, len(bits)) for one in combinations)
    return masks


def _cover(masks):
    """Returns indices whose masks together have all bits, those that add most bits first."""
    chosen, covered = [], 0
    # The number of bits that a mask adds only falls, so an entry of the heap is an upper bound.
    heap = [(-_count(mask), index) for index, mask in masks.items()]
    heapq.heapify(heap)
    while heap:
        index = heapq.heappop(heap)[1]
        added = _count(masks[index] & ~covered)
        if heap and (-added, index) > heap[0]:
            heapq.heappush(heap, (-added, index))
        elif added:
            covered |= masks[index]
            chosen.append(index)
        else:
            break
    return chosen


def _count(mask):
    return bin(mask).count("1")
