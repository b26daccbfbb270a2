#!/usr/bin/env python3
"""A worker of the legacy wire (docs/protocol.md, "The legacy wire") on pyzmq. Put your own work in place of `work`.

Reads DISPATCHER_CONNECT (requests), DISPATCHER_LEGACY_RESULTS (results) and DISPATCHER_SERVICE.
"""
import io, os, time, uuid, zipfile
import zmq


def work(archive: bytes) -> dict[str, bytes]:
    """The members of the result for an input archive; `cortex.log` has the messages. Here: the input's, and its log."""
    with zipfile.ZipFile(io.BytesIO(archive)) as source:  # this is what clients/README.md asks of a worker under test
        members = {name: source.read(name) for name in source.namelist()}
    return members | {"cortex.log": members.get("log", b"Info:worker:done\n")}


def packed(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


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
            members = work(b"".join(frames))
        except Exception as error:
            members = {"cortex.log": f"Fatal:worker:{type(error).__name__} {error}\n".encode()}
        sink.send_multipart([name, service, task, packed(members)])


if __name__ == "__main__":
    env = os.environ.get
    run(env("DISPATCHER_CONNECT", "tcp://127.0.0.1:51695"), env("DISPATCHER_LEGACY_RESULTS", "tcp://127.0.0.1:51696"),
        env("DISPATCHER_SERVICE", "echo").encode(), f"{os.uname().nodename}:{uuid.uuid4().hex[:8]}".encode())
