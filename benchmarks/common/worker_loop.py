"""The worker's side of worker_process.py. Must also run on Python 3.7."""

import json
import os
import sys


class Answers:
    """Sends answers to the process that sends the requests.

    Must be created before other imports: it redirects everything that is printed later to stderr.
    """

    def __init__(self):
        self._file = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def serve(self, answer_of):
        """Answers requests until stdin is closed.

        Args:
          answer_of: a function from the request (a dict) to the answer (a dict). If the function
            raises, the answer is {"error": text}.
        """
        for line in sys.stdin:
            try:
                answer = answer_of(json.loads(line))
            except Exception as error:  # the requesting process decides how to handle it
                answer = {"error": "%s: %s" % (type(error).__name__, str(error).strip()[:500])}
            self._file.write(json.dumps(answer) + "\n")
            self._file.flush()
