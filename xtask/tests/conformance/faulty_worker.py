"""The worker of clients/python with one fault, named by the first argument: what the checks of conformance must find."""
import os
import pathlib
import signal
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "clients/python"))
import worker  # noqa: E402


class Faulty(worker.Worker):
    """Each fault changes what is said or what is heard, and nothing else."""

    def say(self, header, *bodies):
        kind = header["type"]
        if FAULT == "asks_too_early" and kind == "hello":
            super().say(header)
            header = {"type": "ready", "granted": 1}
        if FAULT == "wrong_hash" and kind == "result":
            header["parts"] = [part | {"sha256": "0" * 64} for part in header["parts"]]
        if FAULT == "wrong_piece" and kind == "part":
            bodies = (bytes(len(bodies[0])),)
        if FAULT == "begins_silently" and kind == "begun":
            return
        if FAULT == "lists_nothing" and kind in ("hello", "beat"):
            header["holds"] = []
        if FAULT == "leaves_silently" and kind == "bye":
            return
        if FAULT == "keeps_back" and kind == "release":
            return
        if FAULT == "asks_for_too_much" and kind == "ready":
            header["granted"] += 1000 * header["granted"]
        if FAULT == "fetches_too_much" and kind == "fetch":
            header["length"] = self.task["size"] - header["offset"]
        if FAULT == "numbers_beats_wrongly" and kind == "beat":
            header["n"] += 1
        super().say(header, *bodies)

    def heard(self, header, bodies):
        kind = header["type"]
        if FAULT == "ignores_cancel" and kind == "cancel":
            return
        if FAULT == "ignores_unknown" and kind == "beat":
            header["unknown"] = []
        if FAULT == "ignores_drop" and kind == "welcome":
            header["drop"] = []
        if FAULT == "ignores_silence" and kind == "welcome":
            self.silent = True
        if FAULT == "ignores_limits" and kind == "task":
            header["limit_ms"] = 10**9
        if FAULT == "knows_every_type" and kind not in ("welcome", "task", "beat", "ack", "chunk", "want"):
            sys.exit(f"what is {kind}?")
        if FAULT == "knows_every_error" and kind == "error":
            sys.exit("an error!")
        if FAULT == "knows_six_words_less" and kind == "ack" and header["answer"] != "stored":
            return
        if FAULT == "takes_a_task_twice" and kind == "task" and self.task:
            self.received += 1
            self.say({"type": "begun", "token": header["token"]})
            return
        super().heard(header, bodies)

    def tell(self, path):
        super().tell(path)
        if FAULT == "forgets_before_ack":
            path.unlink()

    def go_on(self):
        if FAULT == "ignores_silence":
            self.answered = self.beats
        super().go_on()


FAULT = sys.argv[1]
env = os.environ
if FAULT == "has_no_outbox":  # what a process had finished is gone with it
    for left in pathlib.Path(env["DISPATCHER_WORKER_DIR"]).glob("*.report"):
        left.unlink()
if FAULT == "works_in_its_loop":
    worker.threading.Thread.start = lambda self: self.run()
if FAULT == "never_waits":
    worker.random.uniform = lambda *_: 0.0
endpoints = env["DISPATCHER_CONNECT"].split(",")
if FAULT == "knows_one_address":
    endpoints = endpoints[:1]
if FAULT == "dies_with_its_link":
    Faulty.run = lambda self: self.talk(self.endpoints[0])
one = Faulty(endpoints, env["DISPATCHER_SERVICE"], env["DISPATCHER_WORKER_DIR"])
signal.signal(signal.SIGTERM, one.stop)
if FAULT == "listens_to_no_signal":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
one.run()
