"""The order of a test's cases: the most telling first, so that a run may end after any of them."""

import heapq
import itertools


def most_telling_first(rows):
    """Returns the indices of the rows in an order whose start covers as many pairs as possible.

    A pair is two values in two columns of one row. Each row is the one with the most pairs that no
    earlier row has. Once there is no such pair, the same begins again with the rows that are left.

    Args:
      rows: a list of dicts from columns to values.
    """
    bits = {}
    masks = [sum(1 << bits.setdefault(pair, len(bits)) for pair in _pairs(row)) for row in rows]
    order, left = [], set(range(len(rows)))
    while left:
        covered = 0
        # The number of new pairs of a row only falls, so an entry of the heap is an upper bound.
        heap = [(-_count(masks[index]), index) for index in left]
        heapq.heapify(heap)
        while heap:
            index = heapq.heappop(heap)[1]
            gain = _count(masks[index] & ~covered)
            if not gain and covered:
                continue
            if heap and (-gain, index) > heap[0]:
                heapq.heappush(heap, (-gain, index))
                continue
            covered |= masks[index]
            order.append(index)
            left.remove(index)
    return order


def _pairs(row):
    """Returns the set of pairs in a row; of a single column, its value."""
    values = sorted((column, repr(value)) for column, value in row.items())
    return set(itertools.combinations(values, min(2, len(values))))


def _count(mask):
    return bin(mask).count("1")
