"""Starts three nodes of Holdfast, three of etcd and one Redis on loopback, and runs a command beside them.

    python3 sdks/bench/servers.py --holdfast target/dist/holdfast -- COMMAND

The command finds them by HOLDFAST_ENDPOINTS, ETCD_ENDPOINT (the node that leads: a client of it needs no forwarding) and
REDIS_ADDRESS. Holdfast and etcd write each operation to the disks of a majority; Redis keeps nothing. `etcd` and
`redis-server` must be in PATH; on Debian they are in the packages etcd-server and redis-server. All end with the
command.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Dict, List

READY_SECONDS = 60.0


def free_ports(count: int) -> List[int]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(listener.getsockname()[1]) for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


class Servers:
    """The processes of all services."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._processes: List["subprocess.Popen[bytes]"] = []

    def _start(self, name: str, *command: str) -> None:
        with open(self._directory / f"{name}.log", "wb") as log:
            process = subprocess.Popen(command, cwd=self._directory, stdout=log, stderr=log)
        self._processes.append(process)

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()

    def holdfast(self, binary: str) -> str:
        """Its clients wait until the cluster has a leader."""
        ports = free_ports(6)
        nodes = "".join(
            f'[[nodes]]\nid = {node}\nclient = "127.0.0.1:{ports[node - 1]}"\npeer = "127.0.0.1:{ports[node + 2]}"\n'
            for node in (1, 2, 3)
        )
        for node in (1, 2, 3):
            file = self._directory / f"node-{node}.toml"
            head = f'cluster = "compare"\nnode = {node}\ndata_dir = "{self._directory}/holdfast-{node}"\n'
            file.write_text(head + nodes, encoding="utf-8")
            self._start(f"holdfast-{node}", binary, "server", "--config", str(file))
        return ",".join(f"127.0.0.1:{port}" for port in ports[:3])

    def etcd(self) -> str:
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
            self._start(f"etcd-{node}", "etcd", *[f"--{key}={value}" for key, value in options.items()])
        give_up = time.monotonic() + READY_SECONDS
        while time.monotonic() < give_up:
            for port in ports[:3]:
                if leads(port):
                    return f"127.0.0.1:{port}"
            time.sleep(0.2)
        raise SystemExit("etcd elected no leader within a minute")

    def redis(self) -> str:
        (port,) = free_ports(1)
        options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self._start("redis", "redis-server", *options)
        give_up = time.monotonic() + READY_SECONDS
        while time.monotonic() < give_up:
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
                    connection.sendall(b"PING\r\n")
                    if connection.recv(16).startswith(b"+PONG"):
                        return f"127.0.0.1:{port}"
            except OSError:
                pass
            time.sleep(0.1)
        raise SystemExit("Redis did not start within a minute")


def leads(port: int) -> bool:
    """Whether the node of etcd with this port is the leader."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v3/maintenance/status", data=b"{}")
    try:
        with urllib.request.urlopen(request, timeout=2) as answer:
            status = json.load(answer)
    except (OSError, ValueError):
        return False
    return "leader" in status and status["leader"] == status["header"]["member_id"]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--holdfast", required=True, help="the program `holdfast`, an optimised build: `--profile dist`")
    parser.add_argument("--data-dir", help="where the servers keep their data; by default in a temporary directory")
    parser.add_argument("command", nargs="+", help="what to run")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-compare-", dir=arguments.data_dir) as directory:
        servers = Servers(Path(directory))
        try:
            found: Dict[str, str] = {
                "HOLDFAST_ENDPOINTS": servers.holdfast(os.path.abspath(arguments.holdfast)),
                "ETCD_ENDPOINT": servers.etcd(),
                "REDIS_ADDRESS": servers.redis(),
            }
            return subprocess.run(arguments.command, env={**os.environ, **found}, check=False).returncode
        finally:
            servers.stop()


if __name__ == "__main__":
    sys.exit(main())
