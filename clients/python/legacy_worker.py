#!/usr/bin/env python3
"""A worker of the legacy wire (docs/protocol.md, "The legacy wire") on pyzmq. Put your own work in place of `work`.

Reads DISPATCHER_CONNECT (requests), DISPATCHER_RESULTS (results) and DISPATCHER_SERVICE.
"""
import io, os, time, uuid, zipfile
import zmq


def work(archive: bytes) -> bytes:
    """The result archive for an input archive: the same members, with the log that the input asks for."""
    with zipfile.ZipFile(io.BytesIO(archive)) as source:
        members = {name: source.read(name) for name in source.namelist()}
    members["cortex.log"] = members.get("log", b"Info:conformance:done nothing to say\n")
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as result:
        for name, content in members.items():
            result.writestr(name, content)
    return target.getvalue()


def run(requests: str, results: str, service: bytes, name: bytes) -> None:
    source, sink = zmq.Context.instance().socket(zmq.DEALER), zmq.Context.instance().socket(zmq.PUSH)
    source.identity = name
    source.connect(requests), sink.connect(results)
    while True:
        source.send(service)
        if not source.poll(5000):  # the dispatcher went away with our request
            continue
        task, *frames = source.recv_multipart()
        if task == b"0":
            time.sleep(0.1)
            continue
        try:
            result = work(b"".join(frames))
        except Exception as error:
            print(f"task {task.decode()}: {error!r}", flush=True)
            result = b""  # nothing usable
        sink.send_multipart([name, service, task, result])


if __name__ == "__main__":
    env = os.environ.get
    run(env("DISPATCHER_CONNECT", "tcp://127.0.0.1:51695"), env("DISPATCHER_RESULTS", "tcp://127.0.0.1:51696"),
        env("DISPATCHER_SERVICE", "echo").encode(), f"{os.uname().nodename}:{uuid.uuid4().hex[:8]}".encode())
