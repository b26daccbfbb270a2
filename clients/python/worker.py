#!/usr/bin/env python3
"""A worker of the v1 wire (docs/protocol.md) on pyzmq. Put your own work in place of `work`, and keep the rest.

One task at a time: start one process for each core. Reads DISPATCHER_CONNECT (addresses, with commas between them),
DISPATCHER_SERVICE and DISPATCHER_WORKER_DIR, the folder where results wait for their ack; no two workers share one.
"""
import hashlib, json, os, pathlib, random, secrets, signal, sys, threading, time
import zmq


class Retryable(Exception):
    """Raised by `work` with a category and a word: nothing comes of it this time, but another attempt is worth while."""


def work(task: dict) -> bytes:
    """The result for task["input"]. Whatever takes long looks at task["stop"].is_set(): then nobody waits for it."""
    text = bytes(task["input"])  # this is what clients/README.md asks of a worker under test
    if text.startswith(b"retry:"):
        raise Retryable("conformance", "asked")
    path = text.splitlines()[0][5:] if text.startswith(b"wait:") else b""
    while path and not os.path.exists(path) and not task["stop"].wait(0.01):
        pass
    return text


class Worker:
    def __init__(self, endpoints: list[str], service: str, folder: str) -> None:
        self.endpoints, self.outbox = endpoints, pathlib.Path(folder)
        self.outbox.mkdir(parents=True, exist_ok=True)
        self.hello = {"type": "hello", "proto": 1, "name": f"{os.uname().nodename}:{self.outbox.resolve().name}",
                      "incarnation": secrets.token_hex(8), "services": [service], "slots": 1}
        self.task, self.busy, self.stopping, self.wake = {}, False, False, os.pipe()

    def stop(self, *_: object) -> None:  # a signal: give back what has not begun, finish what has, and leave
        self.stopping = bool(os.write(self.wake[1], b"."))

    def run(self) -> None:
        turn = failures = 0
        while not (self.stopping and not self.busy):
            welcomed = self.talk(self.endpoints[turn % len(self.endpoints)])
            turn, failures = turn + (not welcomed), 0 if welcomed else min(failures + 1, 6 * len(self.endpoints))
            time.sleep(random.uniform(0.5, 1) * min(5, 0.1 * 2 ** (failures // len(self.endpoints))))

    def talk(self, endpoint: str) -> bool:
        """One connection, on a socket of its own, from hello to its end. Says whether we were welcome."""
        self.welcome, self.draining, self.fetching = {}, False, False
        self.received = self.granted = self.beats = self.answered = 0
        self.beat_at = time.monotonic() + (10 if len(self.endpoints) == 1 else 2)  # by then we must be welcome
        self.socket = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.reconnect_ivl = -1  # a lost connection is told by the monitor, never built again behind our back
        monitor, poller = self.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED), zmq.Poller()
        for source in (self.socket, monitor, self.wake[0]):
            poller.register(source, zmq.POLLIN)
        try:
            self.socket.connect(endpoint)
            self.say(self.hello | {"holds": self.holds()})
            while self.holds() or self.busy or not self.stopping:
                limit = self.task.get("until", self.beat_at)
                ready = dict(poller.poll(1 + 1000 * max(0, min(self.beat_at, limit) - time.monotonic())))
                if self.wake[0] in ready and b"e" in os.read(self.wake[0], 99):
                    self.task_ended()
                if monitor in ready:
                    return bool(self.welcome)
                if self.socket in ready:
                    _, header, *bodies = self.socket.recv_multipart()
                    self.heard(json.loads(header), bodies)
                if self.beat_at <= time.monotonic():
                    if not self.welcome or self.beats - self.answered == 3:
                        return False
                    self.beats, self.beat_at = self.beats + 1, time.monotonic() + self.welcome["beat_ms"] / 1000
                    self.say({"type": "beat", "n": self.beats, "received": self.received, "holds": self.holds()})
                if self.welcome:
                    self.go_on()
            self.say({"type": "bye"})
        except (zmq.Again, ConnectionError):  # the socket takes nothing more, or the dispatcher wants a fresh start
            pass
        finally:
            self.socket.disable_monitor()
            self.socket.close(linger=2000 if self.stopping else 0)
        return bool(self.welcome)

    def say(self, header: dict, *bodies: bytes) -> None:
        self.socket.send_multipart([b"DSP1", json.dumps(header).encode(), *bodies], zmq.DONTWAIT)

    def holds(self) -> list[dict]:
        now = [{"token": self.task["token"], "state": "running" if "until" in self.task else "queued"}] if self.task else []
        return now + [{"token": path.stem, "state": "finished"} for path in self.outbox.glob("*.report")]

    def heard(self, header: dict, bodies: list[bytes]) -> None:
        kind, token = header["type"], header.get("token")
        if kind == "welcome":
            self.welcome, self.beat_at = header, time.monotonic() + header["beat_ms"] / 1000
            self.forget(*header["drop"])
            for path in self.outbox.glob("*.report"):
                self.tell(path)
        elif kind == "task":
            self.received += 1
            if token not in [hold["token"] for hold in self.holds()]:
                self.task = header | {"input": bytearray(b"".join(bodies)), "stop": threading.Event()}
        elif kind == "chunk" and self.fetching and token == self.task.get("token"):
            self.task["input"] += bodies[0]
            self.fetching = False
        elif kind == "want" and header["name"] == "result" and (path := self.outbox / f"{token}.report").exists():
            report, _, body = path.read_bytes().partition(b"\n")
            if piece := body[header["offset"]:header["offset"] + header["length"]]:
                self.say({"type": "part", "token": token, "name": header["name"], "offset": header["offset"]}, piece)
        elif kind in ("ack", "cancel"):
            self.forget(token)
        elif kind == "beat":
            self.answered = max(self.answered, header["n"])
            self.forget(*header.get("unknown", []))
        elif kind == "drain":
            self.draining = True
        elif kind == "error" and header["code"] == "version":
            sys.exit(header["message"])
        elif kind == "error" and header["code"] in ("no_hello", "limit"):
            raise ConnectionError(header["message"])

    def forget(self, *tokens: str) -> None:
        for token in tokens:
            (self.outbox / f"{token}.report").unlink(missing_ok=True)
            if token == self.task.get("token"):
                self.task["stop"].set()
                self.task, self.fetching = {}, False

    def go_on(self) -> None:
        """Gives back, fetches, begins, ends at the limit or asks for more: what is due."""
        task, leaving = self.task, self.draining or self.stopping
        if not task and not self.busy and not leaving and self.granted <= self.received:
            self.granted = self.received + 1
            self.say({"type": "ready", "granted": self.granted})
        elif task and "until" in task and task["until"] <= time.monotonic():
            task["until"] = float("inf")
            task["stop"].set()
        elif task and "until" not in task and leaving and not task.get("released"):
            task["released"] = self.say({"type": "release", "token": task["token"]}) or True
        elif task and "until" not in task and not leaving and not self.fetching:
            if (have := len(task["input"])) < task["size"]:
                self.fetching, length = True, min(self.welcome["chunk_max"], task["size"] - have)
                self.say({"type": "fetch", "token": task["token"], "offset": have, "length": length})
            elif not self.busy:
                task["until"], self.busy = time.monotonic() + task["limit_ms"] / 1000, True
                self.say({"type": "begun", "token": task["token"]})
                threading.Thread(target=self.work_on, args=(task,), daemon=True).start()

    def work_on(self, task: dict) -> None:  # on a thread of its own: beats go on meanwhile
        report, body = {"type": "result", "token": task["token"], "status": "no_problem"}, b""
        try:
            body = work(task)
            report["parts"] = [{"name": "result", "size": len(body), "sha256": hashlib.sha256(body).hexdigest()}]
        except Retryable as why:
            report = {"type": "retryable", "token": task["token"], "cause": message(*why.args)}
        except Exception as error:
            report |= {"status": "fatal", "messages": [message("worker", type(error).__name__, str(error))]}
        if task["stop"].is_set():
            report, body = {"type": "retryable", "token": task["token"], "cause": message("timeout", "wallclock")}, b""
        task["report"] = json.dumps(report).encode() + b"\n" + body
        os.write(self.wake[1], b"e")

    def task_ended(self) -> None:
        self.busy = False
        if self.task and "report" in self.task:  # else it was cancelled meanwhile
            path, task, self.task = self.outbox / f"{self.task['token']}.report", self.task, {}
            with open(path.with_suffix(".new"), "wb") as file:  # on disk, synced, before it is announced
                file.write(task["report"])
                file.flush()
                os.fsync(file.fileno())
            os.rename(file.name, path)
            folder = os.open(self.outbox, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)
            self.tell(path)

    def tell(self, path: pathlib.Path) -> None:
        report, _, body = path.read_bytes().partition(b"\n")
        if self.welcome:
            self.say(json.loads(report), *([body] if body and len(body) <= self.welcome["inline_max"] else []))


def message(category: str, what: str, details: str = "") -> dict:
    return {"severity": "fatal", "category": category, "what": what, "details": details}


if __name__ == "__main__":
    env = os.environ.get
    worker = Worker(env("DISPATCHER_CONNECT", "tcp://127.0.0.1:51695").split(","), env("DISPATCHER_SERVICE", "echo"),
                    env("DISPATCHER_WORKER_DIR", "worker"))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, worker.stop)
    worker.run()
