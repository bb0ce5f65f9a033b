"""Text for the character language model: reads, encodes and segments it."""

import collections

import numpy as np
from demo_options import UserError

# Represents every character that is not in the training text.
UNKNOWN = "\N{REPLACEMENT CHARACTER}"


def read_corpus(path=None):
    """Returns the text of a UTF-8 file, by default the language reference bundled with Python.

    Raises:
      UserError: the file cannot be read, or is not UTF-8.
    """
    if path is None:
        from pydoc_data.topics import topics

        return "\n\n".join(topics[name] for name in sorted(topics))
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except UnicodeDecodeError as error:
        raise UserError(
            "%s is not UTF-8 text (byte %d: %s). Convert it first, for example with "
            "iconv -t utf-8." % (path, error.start, error.reason)
        )
    except OSError as error:
        raise UserError("cannot read %s: %s" % (path, error.strerror))


def split_text(text, num_streams, held_out=0.1):
    """Returns the first part of the text, for training, and the last part, for measuring.

    Raises:
      UserError: the text is too short to be read as `num_streams` parallel streams.
    """
    shortest = int(np.ceil(20 * num_streams / held_out))
    if len(text) < shortest:
        raise UserError(
            "the text has %d characters, but must have at least %d for --batch %d: use a longer "
            "text or a smaller --batch" % (len(text), shortest, num_streams)
        )
    boundary = int(len(text) * (1 - held_out))
    return text[:boundary], text[boundary:]


class Vocabulary:
    """Maps characters to codes: 0 is every unknown character, the others are sorted."""

    def __init__(self, characters):
        self.characters = characters
        self._codes = {character: code for code, character in enumerate(characters)}

    @classmethod
    def of_text(cls, text):
        """Returns the vocabulary of a text, plus the unknown character."""
        return cls([UNKNOWN] + sorted(set(text) - {UNKNOWN}))

    def __len__(self):
        return len(self.characters)

    def encode(self, text):
        """Returns the codes of the characters, int32 `[len(text)]`."""
        return np.array([self._codes.get(character, 0) for character in text], np.int32)

    def decode(self, codes):
        """Returns the text for a sequence of codes."""
        return "".join(self.characters[code] for code in codes)


Segment = collections.namedtuple("Segment", ["inputs", "targets", "is_first"])


def segments(codes, num_streams, seq_length):
    """Cuts a text into `num_streams` parallel streams of equal length, and these into segments.

    Each segment continues where the previous one ended, so the state of an RNN can be carried over.

    Args:
      codes: the encoded text, int32 `[length]`.
      num_streams: the batch size.
      seq_length: the time steps of a segment; the last one may be shorter.

    Returns:
      A list of `Segment(inputs, targets, is_first)`; both arrays are int32 `[time, num_streams]`.
      The target of each character is the next one.
    """
    length = (len(codes) - 1) // num_streams
    used = length * num_streams
    inputs = codes[:used].reshape(num_streams, length).T
    targets = codes[1 : used + 1].reshape(num_streams, length).T
    return [
        Segment(inputs[start : start + seq_length], targets[start : start + seq_length], start == 0)
        for start in range(0, length, seq_length)
    ]
