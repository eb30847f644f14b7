"""Follows the KV events of a server, rebuilds which blocks are cached, and compares them with the server's own list.

    pip install -r tools/compat/requirements/kv-events.txt
    python3 tools/compat/kv_event_subscriber.py --server http://127.0.0.1:8000 \\
        --endpoint tcp://127.0.0.1:5557 --replay tcp://127.0.0.1:5558

Reads commands, one on each line, and answers each with a line of JSON:

    check        waits until it has all batches of the server's list, and compares
    disconnect   closes the subscription, as if the connection were lost
    connect      subscribes again; batches that are missing are replayed
"""

from __future__ import annotations

import argparse
import json
import sys
import urllib.request

import msgpack
import zmq

STORED = (
    "type block_hashes parent_block_hash token_ids block_size lora_id medium lora_name extra_keys group_idx "
    "kv_cache_spec_kind kv_cache_spec_sliding_window locality"
).split()
REMOVED = "type block_hashes medium group_idx locality".split()


class Subscriber:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.context = zmq.Context()
        self.socket: zmq.Socket | None = None
        self.blocks: dict[tuple[str, int, int], tuple] = {}
        """By medium, group and hash: parent and tokens, as far as the event has them."""
        self.next = 0
        self.last = b""
        """The payload before `next`: a server that was restarted has another one at this number."""
        self.live = self.replayed = self.restarts = 0
        self.problems: list[str] = []

    def connect(self) -> None:
        self.socket = self.context.socket(zmq.SUB)
        self.socket.setsockopt_string(zmq.SUBSCRIBE, self.arguments.topic)
        self.socket.connect(self.arguments.endpoint)

    def disconnect(self) -> None:
        if self.socket is not None:
            self.socket.close(linger=0)
        self.socket = None

    def receive(self, wait_ms: int) -> bool:
        """Takes one batch from the subscription; False if there is none in time."""
        if self.socket is None or not self.socket.poll(wait_ms):
            return False
        _, sequence, payload = self.socket.recv_multipart()
        number = int.from_bytes(sequence, "big")
        self.live += 1
        if number == self.next:
            self.apply(number, payload)
        elif not (number == self.next - 1 and payload == self.last):
            self.replay()
        return True

    def replay(self) -> None:
        is_same = self.next == 0
        for number, payload in self.batches_from(max(self.next - 1, 0)):
            if number == self.next - 1 and payload == self.last:
                is_same = True
            if not is_same:
                break
            if number < self.next:
                continue
            self.replayed += 1
            self.apply(number, payload)
        if is_same:
            return
        self.restarts += 1
        self.blocks.clear()
        self.next, self.last = 0, b""
        self.replay()

    def batches_from(self, first: int):
        socket = self.context.socket(zmq.DEALER)
        try:
            socket.connect(self.arguments.replay)
            socket.setsockopt(zmq.RCVTIMEO, 60_000)
            socket.send_multipart([b"", first.to_bytes(8, "big")])
            while True:
                *_, sequence, payload = socket.recv_multipart()
                if not payload:
                    return
                yield int.from_bytes(sequence, "big"), payload
        finally:
            socket.close(linger=0)

    def apply(self, number: int, payload: bytes) -> None:
        if number > self.next:  # the server does not keep the batches between any more
            self.blocks.clear()
        seconds, events, rank = msgpack.unpackb(payload)
        if not isinstance(seconds, float) or rank != 0:
            self.problems.append(f"batch {number}: seconds {seconds!r}, rank {rank!r}")
        for event in events:
            self.apply_event(number, event)
        self.next, self.last = number + 1, payload

    def apply_event(self, number: int, event: dict | list) -> None:
        if isinstance(event, list):  # vLLM's format before June 2026
            event = dict(zip(STORED if event[0] == "BlockStored" else REMOVED, event))
        kind = event["type"]
        if kind == "AllBlocksCleared":
            self.blocks.clear()
            return
        place = (event["medium"], event.get("group_idx") or 0)
        hashes = event["block_hashes"]
        if kind == "BlockRemoved":
            for one in hashes:
                self.blocks.pop((*place, one), None)
            return
        tokens, size = event["token_ids"], event["block_size"]
        if len(tokens) != len(hashes) * size:
            self.problems.append(f"batch {number}: {len(tokens)} tokens for {len(hashes)} blocks of {size}")
        for i, one in enumerate(hashes):
            parent = event["parent_block_hash"] if i == 0 else hashes[i - 1]
            content = (parent, *tokens[i * size : (i + 1) * size]) if tokens else ()
            self.blocks[(*place, one)] = content

    def list_of_server(self) -> dict:
        with urllib.request.urlopen(f"{self.arguments.server}/kv_events/blocks") as answer:
            return json.load(answer)

    def check(self) -> dict:
        listed = self.list_of_server()
        while self.receive(0):
            pass
        # The last batches may be on their way, or lost with a connection.
        while self.next < listed["next_seq"] and self.receive(self.arguments.patience_ms):
            pass
        if self.next != listed["next_seq"]:
            self.replay()
        # A tier may store a block, and the batch arrive, after the server made its list.
        while self.next > listed["next_seq"]:
            before = listed["next_seq"]
            listed = self.list_of_server()
            if listed["next_seq"] == before:
                break
            if self.next < listed["next_seq"]:
                self.replay()
        server = {
            (medium["medium"], medium["group_idx"], int(one))
            for medium in listed["blocks"]
            for one in medium["block_hashes"]
        }
        media = {medium for medium, _, _ in server} | {"GPU", "CPU"}
        own = {key for key in self.blocks if key[0] in media}
        return {
            "agrees": own == server and self.next == listed["next_seq"] and not self.problems,
            "next": self.next,
            "listed_next": listed["next_seq"],
            "blocks": len(server),
            "missing": [list(map(str, key)) for key in sorted(server - own)][:5],
            "extra": [list(map(str, key)) for key in sorted(own - server)][:5],
            "stored_below": sorted(str(key[2]) for key in self.blocks if key[0] == "STORAGE"),
            "without_tokens": sum(1 for content in self.blocks.values() if not content),
            "problems": self.problems[:5],
            "live": self.live,
            "replayed": self.replayed,
            "restarts": self.restarts,
        }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--replay", required=True)
    parser.add_argument("--topic", default="")
    parser.add_argument("--patience-ms", type=int, default=1000)
    subscriber = Subscriber(parser.parse_args())
    subscriber.connect()
    print(json.dumps({"command": "connect"}), flush=True)
    for line in sys.stdin:
        command = line.strip()
        known = command in ("check", "connect", "disconnect")
        answer = getattr(subscriber, command)() if known else {"error": "unknown command"}
        print(json.dumps({"command": command, **(answer or {})}), flush=True)


if __name__ == "__main__":
    main()
