"""What a lock costs one Python program: this library, python-etcd3 and redis-py, in one run on one machine.

    python3 -m venv bench && bench/bin/pip install ./sdks/python etcd3 'protobuf<3.21' redis
    bench/bin/python sdks/python/bench/compare.py --holdfast target/release/holdfast

It starts three nodes of Holdfast, three of etcd (both write each operation to the disks of a majority), and one server
of Redis, which keeps nothing. `etcd` and `redis-server` must be in PATH; on Debian they are in the packages etcd-server
and redis-server. One client takes and gives back a lock that no other client wants. The services take turns; the
figures are the median of the turns.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

import etcd3
import redis

import holdfast

_READY_SECONDS = 60.0


class Service(NamedTuple):
    """How a lock is taken, and given back."""

    name: str
    acquire: Callable[[str], Any]
    release: Callable[[Any], Any]


class Turn(NamedTuple):
    """Microseconds."""

    acquire: float
    release: float
    both: float
    both_p99: float


def free_ports(count: int) -> List[int]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(listener.getsockname()[1]) for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


class Servers:
    """The processes of all services. They end with the program."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._processes: List["subprocess.Popen[bytes]"] = []

    def start(self, name: str, *command: str) -> None:
        with open(self._directory / f"{name}.log", "wb") as log:
            process = subprocess.Popen(command, cwd=self._directory, stdout=log, stderr=log)
        self._processes.append(process)

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()

    def holdfast(self, binary: str) -> str:
        ports = free_ports(6)
        nodes = "".join(
            f'[[nodes]]\nid = {node}\nclient = "127.0.0.1:{ports[node - 1]}"\npeer = "127.0.0.1:{ports[node + 2]}"\n'
            for node in (1, 2, 3)
        )
        for node in (1, 2, 3):
            file = self._directory / f"node-{node}.toml"
            head = f'cluster = "compare"\nnode = {node}\ndata_dir = "{self._directory}/holdfast-{node}"\n'
            file.write_text(head + nodes, encoding="utf-8")
            self.start(f"holdfast-{node}", binary, "server", "--config", str(file))
        return ",".join(f"127.0.0.1:{port}" for port in ports[:3])

    def etcd(self) -> int:
        ports = free_ports(6)
        peers = [f"n{node}=http://127.0.0.1:{ports[node + 3]}" for node in range(3)]
        for node in range(3):
            client, peer = (f"http://127.0.0.1:{port}" for port in (ports[node], ports[node + 3]))
            options = {
                "name": f"n{node}",
                "data-dir": f"{self._directory}/etcd-{node}",
                "listen-client-urls": client,
                "advertise-client-urls": client,
                "listen-peer-urls": peer,
                "initial-advertise-peer-urls": peer,
                "initial-cluster": ",".join(peers),
            }
            self.start(f"etcd-{node}", "etcd", *[f"--{key}={value}" for key, value in options.items()])
        return self._leader_of_etcd(ports[:3])

    def _leader_of_etcd(self, ports: List[int]) -> int:
        """The node that leads: a client of it needs no forwarding."""
        give_up = time.monotonic() + _READY_SECONDS
        while time.monotonic() < give_up:
            for port in ports:
                try:
                    with etcd3.client(port=port, timeout=2) as client:
                        status = client.status()
                        if status.leader is not None and f":{port}" in status.leader.client_urls[0]:
                            return port
                except Exception:
                    time.sleep(0.2)
        raise SystemExit("etcd did not start")

    def redis(self) -> int:
        (port,) = free_ports(1)
        self.start(
            "redis", "redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"
        )
        give_up = time.monotonic() + _READY_SECONDS
        while time.monotonic() < give_up:
            try:
                redis.Redis(port=port).ping()
                return port
            except redis.ConnectionError:
                time.sleep(0.1)
        raise SystemExit("Redis did not start")


def services(servers: Servers, binary: str, stack: ExitStack) -> List[Service]:
    client = stack.enter_context(holdfast.Client(servers.holdfast(binary), request_timeout=_READY_SECONDS).connect())
    etcd = stack.enter_context(etcd3.client(port=servers.etcd()))
    cache = redis.Redis(port=servers.redis())

    def etcd_acquire(name: str) -> Any:
        lock = etcd.lock(name, ttl=30)
        assert lock.acquire()
        return lock

    def redis_acquire(name: str) -> Any:
        lock = cache.lock(name, timeout=30)
        assert lock.acquire()
        return lock

    return [
        Service("holdfast", lambda name: client.lock(name).acquire(), lambda guard: guard.release()),
        Service(
            "holdfast, efficiency tier",
            lambda name: client.lock(name, tier="efficiency").acquire(),
            lambda guard: guard.release(),
        ),
        Service("python-etcd3", etcd_acquire, lambda lock: lock.release()),
        Service("redis-py", redis_acquire, lambda lock: lock.release()),
    ]


def measure(service: Service, operations: int) -> Turn:
    acquires, releases, both = [], [], []
    name = f"compare/{service.name}"
    for _ in range(operations):
        began = time.perf_counter_ns()
        lock = service.acquire(name)
        held = time.perf_counter_ns()
        service.release(lock)
        ended = time.perf_counter_ns()
        acquires.append(held - began)
        releases.append(ended - held)
        both.append(ended - began)
    both.sort()
    p50 = statistics.median
    return Turn(p50(acquires) / 1e3, p50(releases) / 1e3, p50(both) / 1e3, both[len(both) * 99 // 100] / 1e3)


def versions() -> str:
    etcd = subprocess.run(["etcd", "--version"], capture_output=True, text=True, check=True).stdout.split()[2]
    server = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=True).stdout
    python, kept = sys.version.split()[0], server.split("v=")[1].split()[0]
    peers = f"python-etcd3 {etcd3.__version__} with etcd {etcd}, redis-py {redis.__version__} with Redis {kept}"
    return f"Python {python}, {peers}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--holdfast", required=True, help="the program `holdfast`, built with --release")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--operations", type=int, default=400, help="of each turn")
    parser.add_argument("--data-dir", help="where the servers keep their data; by default in a temporary directory")
    arguments = parser.parse_args()
    turns: Dict[str, List[Turn]] = {}
    load: List[Tuple[float, float, float]] = []
    with tempfile.TemporaryDirectory(prefix="holdfast-compare-", dir=arguments.data_dir) as directory:
        servers = Servers(Path(directory))
        try:
            with ExitStack() as stack:
                compared = services(servers, os.path.abspath(arguments.holdfast), stack)
                for service in compared:
                    measure(service, 50)
                for turn in range(arguments.turns):
                    # Another one begins each time.
                    order = compared[turn % len(compared) :] + compared[: turn % len(compared)]
                    for service in order:
                        turns.setdefault(service.name, []).append(measure(service, arguments.operations))
                    load.append(os.getloadavg())
        finally:
            servers.stop()
    middle = {name: Turn(*(statistics.median(column) for column in zip(*of))) for name, of in turns.items()}
    print(f"{versions()}; {os.cpu_count()} cores")
    print(f"load of the machine (1 minute): {min(it[0] for it in load):.1f} to {max(it[0] for it in load):.1f}")
    print(f"{arguments.turns} turns of {arguments.operations} operations; p50 and p99 in microseconds\n")
    print("| client | acquire p50 | release p50 | both p50 | both p99 | both p50 / etcd's |")
    print("|---|---|---|---|---|---|")
    for name, it in middle.items():
        share = it.both / middle["python-etcd3"].both
        print(f"| {name} | {it.acquire:,.0f} | {it.release:,.0f} | {it.both:,.0f} | {it.both_p99:,.0f} | {share:.2f} |")


if __name__ == "__main__":
    main()
