"""What a lock costs one Python program: this library, python-etcd3 and redis-py, in one run on one machine.

`sdks/bench/run.sh` runs it, and says what it compares.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from contextlib import ExitStack
from typing import Any, Callable, Dict, List, NamedTuple

import etcd3
import redis

import holdfast

_TURNS = int(os.environ.get("TURNS", "7"))
_OPERATIONS = int(os.environ.get("OPERATIONS", "400"))


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


def port(variable: str) -> int:
    return int(os.environ[variable].rpartition(":")[2])


def services(stack: ExitStack) -> List[Service]:
    client = stack.enter_context(holdfast.Client(os.environ["HOLDFAST_ENDPOINTS"], request_timeout=60).connect())
    etcd = stack.enter_context(etcd3.client(port=port("ETCD_ENDPOINT")))
    cache = redis.Redis(port=port("REDIS_ADDRESS"))

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
    name = f"compare/python/{service.name}"
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


def main() -> None:
    turns: Dict[str, List[Turn]] = {}
    with ExitStack() as stack:
        compared = services(stack)
        for service in compared:
            measure(service, 50)
        for turn in range(_TURNS):
            # Another one begins each time.
            order = compared[turn % len(compared) :] + compared[: turn % len(compared)]
            for service in order:
                turns.setdefault(service.name, []).append(measure(service, _OPERATIONS))
    middle = {name: Turn(*(statistics.median(column) for column in zip(*of))) for name, of in turns.items()}
    versions = f"Python {sys.version.split()[0]}, python-etcd3 {etcd3.__version__}, redis-py {redis.__version__}"
    print(f"{versions}; {_TURNS} turns of {_OPERATIONS} operations; p50 and p99 in microseconds\n")
    print("| client | acquire p50 | release p50 | both p50 | both p99 | both p50 / etcd's |")
    print("|---|---|---|---|---|---|")
    for name, it in middle.items():
        share = it.both / middle["python-etcd3"].both
        print(f"| {name} | {it.acquire:.0f} | {it.release:.0f} | {it.both:.0f} | {it.both_p99:.0f} | {share:.2f} |")


if __name__ == "__main__":
    main()
