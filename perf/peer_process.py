"""A peer in a process of its own, under an interpreter of its own: both ends of the pipe.

For peers that live in another environment than funlib, such as a SYCL library with another version
of the runtime. The times are taken in the process that computes; what passes between the two is
requests and answers, one JSON object a line, and matrices in files of a temporary folder.

    {"do": "describe"}                                    {"missing": text or null, ...describe()}
    {"do": "prepare", "shape": [M, K, N], "transposed": boolean (B's file is N x K),
     "dtype": name, "precision": name or null}            {"paired": boolean}
    {"do": "checked"}                                     {"total_ns": number}
    {"do": "block", "count": number}                      {"samples": [...], "settled": boolean}

An answer {"error": text} says that the request failed. The process ends with its standard input.
"""

import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import peers

A, B, RESULT = "a.bin", "b.bin", "result.bin"

# What leads an interpreter to the packages of another one.
FOREIGN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")


class PeerError(Exception):
    """The peer's process failed or ended."""


# ---- the end that asks -----------------------------------------------------------------------


class RemotePeer(peers.Peer):
    """A peer, by its class, that computes in a process under the interpreter `python`.

    `missing` starts it. The other methods raise PeerError where it failed.
    """

    def __init__(self, peer, place, python):
        super().__init__(place)
        self.name, self.places, self.dtypes = peer.name, peer.places, peer(place).dtypes
        self.python = python
        self.process = None
        self.folder = tempfile.TemporaryDirectory(prefix="funlib-peer-")

    def missing(self):
        # os.environ and not the C library's environment, in which funlib names its own runtime.
        environment = {name: text for name, text in os.environ.items() if name not in FOREIGN}
        command = [self.python, __file__, self.name, self.place, self.folder.name]
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                text=True,
            )
            self.description = self.ask(do="describe")
        except (OSError, PeerError) as error:
            return str(error)
        return self.description.pop("missing")

    def ask(self, **request):
        """The answer to a request."""
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            status = self.process.wait()
            raise PeerError(f"{self.name}: {self.python} ended with status {status}")
        answer = json.loads(line)
        if "error" in answer:
            raise PeerError(f"{self.name}: {answer['error']}")
        return answer

    def describe(self):
        return self.description

    def prepare(self, a, b, precision=None):
        folder = Path(self.folder.name)
        a.tofile(folder / A)
        transposed = not b.flags.c_contiguous
        (b.T if transposed else b).tofile(folder / B)
        what = {"shape": [*a.shape, b.shape[1]], "transposed": transposed, "dtype": a.dtype.name}
        answer = self.ask(do="prepare", precision=precision, **what)
        return RemoteCall(self, (a.shape[0], b.shape[1]), a.dtype, answer["paired"])

    def close(self):
        if self.process:
            with contextlib.suppress(BrokenPipeError):  # what a process that died did not read
                self.process.stdin.close()
            self.process.wait()
            self.process.stdout.close()
        self.folder.cleanup()


class RemoteCall(peers.Call):
    """The call that a RemotePeer prepared last."""

    def __init__(self, peer, shape, dtype, paired):
        self.peer, self.shape, self.dtype, self.paired = peer, shape, dtype, paired

    def checked(self):
        total_ns = self.peer.ask(do="checked")["total_ns"]
        result = np.fromfile(Path(self.peer.folder.name, RESULT), self.dtype)
        return total_ns, result.reshape(self.shape)

    def __call__(self):
        return self.block(1)[0]

    def block(self, count):
        answer = self.peer.ask(do="block", count=count)
        self.settled = answer["settled"] and self.settled
        return [tuple(sample) for sample in answer["samples"]]


# ---- the end that computes -------------------------------------------------------------------


class Server:
    """Answers requests on a peer, by its class; see the module's text."""

    def __init__(self, peer, place, folder):
        self.peer, self.folder = peer(place), Path(folder)
        self.call = None

    def describe(self):
        missing = self.peer.missing()
        if missing:
            return {"missing": missing}
        process = f"a process of its own (Python {platform.python_version()})"
        return {"missing": None, **self.peer.describe(), "process": process}

    def prepare(self, shape, transposed, dtype, precision):
        m, k, n = shape
        self.call = None  # frees what the last one held
        a = np.fromfile(self.folder / A, dtype).reshape(m, k)
        b = np.fromfile(self.folder / B, dtype)
        b = b.reshape(n, k).T if transposed else b.reshape(k, n)
        self.call = self.peer.prepare(a, b, precision)
        return {"paired": self.call.paired}

    def checked(self):
        total_ns, result = self.call.checked()
        result.tofile(self.folder / RESULT)
        return {"total_ns": total_ns}

    def block(self, count):
        samples = self.call.block(count)
        return {"samples": samples, "settled": self.call.settled}

    def answer(self, line):
        """The answer to one line."""
        request = json.loads(line)
        try:
            return getattr(self, request.pop("do"))(**request)
        except Exception as error:  # whatever a peer raises is the other end's to report
            return {"error": f"{type(error).__name__}: {error}"}


def main(name, place, folder):
    """Serves until standard input ends."""
    # What libraries print must not come between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    server = Server(peers.PEERS[name], place, folder)
    for line in sys.stdin:
        answers.write(json.dumps(server.answer(line)) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
