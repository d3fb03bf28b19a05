"""The driver of the Python library for the conformance suite: JSON lines on standard input and output.

With `--sync` it tries the blocking client, without it the asyncio one. With `--misbehave MODE` it breaks a rule of the
protocol, and the suite must find that.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import os
import sys
import threading
from typing import Any, Callable, Dict, Optional

import holdfast
from holdfast import errors

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import misbehaviour
import vectors

Request = Dict[str, Any]

_writing = threading.Lock()


def reply(request: Request, outcome: Dict[str, Any]) -> None:
    line = json.dumps({"id": request["id"], **outcome})
    with _writing:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def error_of(error: BaseException) -> Dict[str, Any]:
    """In the words that all drivers share."""
    told: Dict[str, Any] = {"message": str(error)}
    if isinstance(error, Unsupported):
        return {"kind": "unsupported", **told}
    if isinstance(error, errors.Lost):
        return {"kind": "lost", "reason": error.reason, **told}
    if isinstance(error, errors.Unauthenticated):
        return {"kind": "unauthenticated", **told}
    if isinstance(error, errors.PermissionDenied):
        return {"kind": "permission_denied", **told}
    if isinstance(error, errors.Rejected):
        return {"kind": "rejected", "reason": error.reason, "retryable": error.retryable, **told}
    if isinstance(error, errors.Unavailable):
        return {"kind": "unavailable", "may_have_happened": error.may_have_happened, **told}
    if isinstance(error, errors.Deadlock):
        return {"kind": "deadlock", "cycle": error.cycle, **told}
    if isinstance(error, errors.Died):
        return {"kind": "died", "since": str(error.since), **told}
    kinds = {
        errors.Busy: "busy",
        errors.TimedOut: "timed_out",
        errors.Closed: "closed",
        errors.InvalidEndpoints: "invalid",
        errors.InvalidSecurity: "invalid",
        asyncio.CancelledError: "cancelled",
    }
    for kind, name in kinds.items():
        if isinstance(error, kind):
            return {"kind": name, **told}
    return {"kind": "other", "message": repr(error)}


class Unsupported(Exception):
    """The driver cannot do what it is asked for."""


def seconds(request: Request, key: str) -> Optional[float]:
    return None if request.get(key) is None else request[key] / 1000


def terms_of(request: Request) -> Dict[str, Any]:
    """The options of a lock."""
    terms: Dict[str, Any] = {"wait": seconds(request, "wait_ms") or 0.0}
    for key, name in (("ttl_ms", "ttl"), ("max_hold_ms", "max_hold")):
        if request.get(key) is not None:
            terms[name] = seconds(request, key)
    for key in ("auto_renew", "actor", "policy", "tier", "reentrant"):
        if key in request:
            terms[key] = request[key]
    if "since" in request:
        terms["since"] = int(request["since"])
    if request.get("mode") == "shared":
        terms["shared"] = True
    elif request.get("mode") == "permit":
        terms["permits"] = request["permits"]
    return terms


def tokens_of(guard: Any) -> Dict[str, Any]:
    if isinstance(guard, (holdfast.GuardAll, holdfast.AsyncGuardAll)):
        return {"tokens": [str(token) for token in guard.tokens]}
    return {"token": str(guard.token), "fence": guard.fence}


def item_of(told: Any) -> Dict[str, Any]:
    """An event of a watch, or a change of an election."""
    if isinstance(told, holdfast.Observed):
        if told.kind == "leader":
            return {"leader": {"value": told.value.decode(), "epoch": str(told.epoch)}}
        return {told.kind: True}
    if told.kind == "present":
        return {"lock": {"name": told.name, "holders": told.holders, "waiters": told.waiters}}
    if told.kind in ("snapshot_complete", "restarted"):
        return {told.kind: True}
    return {"event": {"kind": told.kind, "names": list(told.names), "token": str(told.token)}}


class Driver:
    """What does not depend on the client."""

    #: The session has a thread of its own, so the program cannot block it.
    lacks = ["block"]

    def __init__(self) -> None:
        self.clients: Dict[str, Any] = {}
        self.guards: Dict[str, Any] = {}
        self.watches: Dict[str, Any] = {}

    def at_once(self, request: Request) -> Optional[Dict[str, Any]]:
        """`None` if it needs waiting."""
        operation = request["op"]
        if operation == "hello":
            return {"name": "python", "lacks": self.lacks}
        if operation == "vectors":
            return {"answers": [vectors.answer(request["kind"], case) for case in request["cases"]]}
        if operation == "token":
            return tokens_of(self.guards[request["guard"]])
        if operation == "fork":
            return self.fork(request)
        return None

    def operation(self, request: Request) -> Any:
        operation = getattr(self, request["op"], None)
        if operation is None:
            raise Unsupported(f"no request `{request['op']}`")
        return operation

    def client_options(self, request: Request) -> Dict[str, Any]:
        options: Dict[str, Any] = {"ttl": request["ttl_ms"] / 1000}
        if "request_timeout_ms" in request:
            options["request_timeout"] = request["request_timeout_ms"] / 1000
        for key in ("ca", "cert", "key", "auth_file"):
            if key in request:
                options[key] = request[key]
        return misbehaviour.client_options(options)

    def begin_watch(self, request: Request) -> Dict[str, Any]:
        client = self.clients[request["client"]]
        if request["op"] == "observe":
            begin = client.election(request["name"]).observe
        else:
            begin = functools.partial(client.watch, request["prefix"], snapshot=request.get("snapshot", True))
        self.watches[request["as"]] = begin()
        return {}

    def keep(self, request: Request, guard: Any) -> Dict[str, Any]:
        told = tokens_of(guard)
        self.guards[request["as"]] = guard
        return told

    def fork(self, request: Request) -> Dict[str, Any]:
        """What a child finds."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            told: Dict[str, Any] = {}
            try:
                told["token"] = self._told(lambda: tokens_of(self.guards[request["guard"]]))
                for key in ("busy", "free"):
                    told[key] = self._told(lambda key=key: self.take_in_child(request, request[key]))  # type: ignore[misc]
            finally:
                os.write(writing, json.dumps(told).encode())
                os._exit(0)
        os.close(writing)
        told_bytes = b""
        while True:
            read = os.read(reading, 65536)
            if not read:
                break
            told_bytes += read
        os.close(reading)
        os.waitpid(child, 0)
        return dict(json.loads(told_bytes))

    def _told(self, ask: Callable[[], Dict[str, Any]]) -> Dict[str, Any]:
        try:
            return ask()
        except Exception as error:
            return error_of(error)

    def take_in_child(self, request: Request, name: str) -> Dict[str, Any]:
        raise NotImplementedError


class SyncDriver(Driver):
    lacks = [*Driver.lacks, "cancel"]

    def handle(self, request: Request) -> None:
        threading.Thread(target=self._answer, args=(request,), daemon=True).start()

    def _answer(self, request: Request) -> None:
        try:
            reply(request, {"ok": self.operation(request)(request)})
        except Exception as error:
            reply(request, {"err": error_of(error)})

    def connect(self, request: Request) -> Dict[str, Any]:
        client = holdfast.Client(request["endpoints"], **self.client_options(request))
        self.clients[request["as"]] = client if request.get("when_needed") else client.connect()
        return {}

    def close(self, request: Request) -> Dict[str, Any]:
        self.clients[request["client"]].close()
        return {}

    def acquire(self, request: Request) -> Dict[str, Any]:
        lock = self.clients[request["client"]].lock(request["name"], **terms_of(request))
        return self.keep(request, lock.acquire())

    def acquire_all(self, request: Request) -> Dict[str, Any]:
        wait = seconds(request, "wait_ms") or 0.0
        return self.keep(request, self.clients[request["client"]].lock_all(request["names"], wait=wait).acquire())

    def campaign(self, request: Request) -> Dict[str, Any]:
        election = self.clients[request["client"]].election(request["name"])
        leadership = election.lead(request["value"], wait=seconds(request, "wait_ms"))
        self.keep(request, leadership)
        return {"epoch": str(leadership.epoch)}

    def release(self, request: Request) -> Dict[str, Any]:
        outcome = self.guards[request["guard"]].release()
        return {"outcome": outcome}

    def renew(self, request: Request) -> Dict[str, Any]:
        self.guards[request["guard"]].renew(seconds(request, "ttl_ms"))
        return {}

    def convert(self, request: Request) -> Dict[str, Any]:
        guard = self.guards[request["guard"]]
        if request["mode"] == "shared":
            guard.convert_to_shared()
        else:
            guard.convert_to_exclusive(wait=seconds(request, "wait_ms") or 0.0)
        return {}

    def transfer(self, request: Request) -> Dict[str, Any]:
        return {"token": str(self.guards[request["guard"]].transfer(request["to"]))}

    def await_loss(self, request: Request) -> Dict[str, Any]:
        return {"reason": self.guards[request["guard"]].wait_lost()}

    def watch(self, request: Request) -> Dict[str, Any]:
        return self.begin_watch(request)

    observe = watch

    def next(self, request: Request) -> Dict[str, Any]:
        return {"items": [item_of(next(self.watches[request["watch"]]))]}

    def end_watch(self, request: Request) -> Dict[str, Any]:
        self.watches[request["watch"]].close()
        return {}

    def take_in_child(self, request: Request, name: str) -> Dict[str, Any]:
        return tokens_of(self.clients[request["client"]].lock(name).acquire())


class AsyncDriver(Driver):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.tasks: Dict[int, "asyncio.Task[None]"] = {}
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def handle(self, request: Request) -> None:
        self.loop.call_soon_threadsafe(self._begin, request)

    def _begin(self, request: Request) -> None:
        task = self.loop.create_task(self._answer(request))
        self.tasks[request["id"]] = task
        task.add_done_callback(lambda _: self.tasks.pop(request["id"], None))

    async def _answer(self, request: Request) -> None:
        try:
            reply(request, {"ok": await self.operation(request)(request)})
        except (Exception, asyncio.CancelledError) as error:
            reply(request, {"err": error_of(error)})

    async def cancel(self, request: Request) -> Dict[str, Any]:
        task = self.tasks.get(request["call"])
        if task is not None:
            task.cancel()
        return {}

    async def connect(self, request: Request) -> Dict[str, Any]:
        client = holdfast.AsyncClient(request["endpoints"], **self.client_options(request))
        self.clients[request["as"]] = client if request.get("when_needed") else await client.connect()
        return {}

    async def close(self, request: Request) -> Dict[str, Any]:
        await self.clients[request["client"]].close()
        return {}

    async def acquire(self, request: Request) -> Dict[str, Any]:
        lock = self.clients[request["client"]].lock(request["name"], **terms_of(request))
        return self.keep(request, await lock.acquire())

    async def acquire_all(self, request: Request) -> Dict[str, Any]:
        wait = seconds(request, "wait_ms") or 0.0
        lock = self.clients[request["client"]].lock_all(request["names"], wait=wait)
        return self.keep(request, await lock.acquire())

    async def campaign(self, request: Request) -> Dict[str, Any]:
        election = self.clients[request["client"]].election(request["name"])
        leadership = await election.lead(request["value"], wait=seconds(request, "wait_ms"))
        self.keep(request, leadership)
        return {"epoch": str(leadership.epoch)}

    async def release(self, request: Request) -> Dict[str, Any]:
        return {"outcome": await self.guards[request["guard"]].release()}

    async def renew(self, request: Request) -> Dict[str, Any]:
        await self.guards[request["guard"]].renew(seconds(request, "ttl_ms"))
        return {}

    async def convert(self, request: Request) -> Dict[str, Any]:
        guard = self.guards[request["guard"]]
        if request["mode"] == "shared":
            await guard.convert_to_shared()
        else:
            await guard.convert_to_exclusive(wait=seconds(request, "wait_ms") or 0.0)
        return {}

    async def transfer(self, request: Request) -> Dict[str, Any]:
        return {"token": str(await self.guards[request["guard"]].transfer(request["to"]))}

    async def await_loss(self, request: Request) -> Dict[str, Any]:
        return {"reason": await self.guards[request["guard"]].wait_lost()}

    async def watch(self, request: Request) -> Dict[str, Any]:
        return self.begin_watch(request)

    observe = watch

    async def next(self, request: Request) -> Dict[str, Any]:
        return {"items": [item_of(await self.watches[request["watch"]].__anext__())]}

    async def end_watch(self, request: Request) -> Dict[str, Any]:
        await self.watches[request["watch"]].close()
        return {}

    def take_in_child(self, request: Request, name: str) -> Dict[str, Any]:
        async def take() -> Dict[str, Any]:
            return tokens_of(await self.clients[request["client"]].lock(name).acquire())

        return asyncio.run(take())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sync", action="store_true")
    parser.add_argument("--misbehave", choices=sorted(misbehaviour.MODES))
    arguments = parser.parse_args()
    if arguments.misbehave:
        misbehaviour.MODES[arguments.misbehave]()
    driver: Any = SyncDriver() if arguments.sync else AsyncDriver()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = driver.at_once(request)
        except Exception as error:
            reply(request, {"err": error_of(error)})
            continue
        if answer is None:
            driver.handle(request)
        else:
            reply(request, {"ok": answer})


if __name__ == "__main__":
    main()
