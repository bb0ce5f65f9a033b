"""Text for the character language model: reading it, numbering its characters, cutting it up."""

import collections

import numpy as np
from demo_options import UserError

# Stands for every character that the training text does not have.
UNKNOWN = "\N{REPLACEMENT CHARACTER}"


def read_corpus(path=None):
    """Returns the text of a UTF-8 file, by default the language reference in every Python."""
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
    """Returns the first part of the text, to train on, and the last part, to measure with.

    Raises:
      UserError: a part is too short to be read as `num_streams` streams side by side.
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
    """Numbers for characters: 0 is any unknown one, the others are in order of the alphabet."""

    def __init__(self, characters):
        self.characters = characters
        self._codes = {character: code for code, character in enumerate(characters)}

    @classmethod
    def of_text(cls, text):
        """The characters of a text, and the unknown one."""
        return cls([UNKNOWN] + sorted(set(text) - {UNKNOWN}))

    def __len__(self):
        return len(self.characters)

    def encode(self, text):
        """Returns the numbers of the characters, int32 `[len(text)]`."""
        return np.array([self._codes.get(character, 0) for character in text], np.int32)

    def decode(self, codes):
        """Returns the text with these numbers."""
        return "".join(self.characters[code] for code in codes)


Segment = collections.namedtuple("Segment", ["inputs", "targets", "is_first"])


def segments(codes, num_streams, seq_length):
    """Cuts a text into `num_streams` streams of equal length, read side by side in segments.

    Each segment goes on where the one before it ended, so the state of an RNN can be carried over.

    Args:
      codes: int32 `[length]`.
      num_streams: the batch size.
      seq_length: time steps of a segment; the last one may have fewer.

    Returns:
      List of `Segment(inputs, targets, is_first)`, both arrays int32 `[time, num_streams]`; the
      target of a character is the next one.
    """
    length = (len(codes) - 1) // num_streams
    used = length * num_streams
    inputs = codes[:used].reshape(num_streams, length).T
    targets = codes[1 : used + 1].reshape(num_streams, length).T
    return [
        Segment(inputs[start : start + seq_length], targets[start : start + seq_length], start == 0)
        for start in range(0, length, seq_length)
    ]
