"""Celery with a real broker and real workers, APScheduler, Django and gevent."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import textwrap
import threading
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Iterator, List, Optional

import pytest

import holdfast
from holdfast.pytest_plugin import Server


def eventually(is_so: Any, seconds: float = 30.0) -> None:
    give_up = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < give_up, "it did not happen in time"
        time.sleep(0.05)


def run_python(directory: Path, code: str, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        cwd=directory,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


# Celery


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    binary = shutil.which("redis-server")
    if binary is None:
        if os.environ.get("CI") == "true":
            pytest.fail("redis-server is not there")
        pytest.skip("redis-server is not there")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    arguments = ["--port", str(port), "--save", "", "--appendonly", "no", "--bind", "127.0.0.1"]
    process = subprocess.Popen(
        [binary, *arguments], cwd=tmp_path_factory.mktemp("redis"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )

    def is_there() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            return False
        return True

    eventually(is_there)
    yield f"redis://127.0.0.1:{port}/0"
    process.kill()
    process.wait()


TASKS = """
import os, time
from celery import Celery
import holdfast.celery

app = Celery("tasks", broker=os.environ["BROKER"], backend=os.environ["BROKER"])
app.conf.holdfast = {"endpoints": os.environ["HOLDFAST_ENDPOINT"], "ttl": 5}
app.conf.broker_connection_retry_on_startup = True

def note(words):
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(words + "\\n")

@app.task(base=holdfast.celery.SingletonTask, lock="report:{day}")
def report(day):
    note(f"begin {day}")
    while not os.path.exists(os.environ["NOTES"] + ".go"):
        time.sleep(0.02)
    return report.guard.fence

@app.task(base=holdfast.celery.SingletonTask, lock="report:{day}", on_busy="raise")
def strict(day):
    return "ran"

@app.task(
    base=holdfast.celery.SingletonTask, lock="report:{day}", on_busy="retry", default_retry_delay=0.2, max_retries=100
)
def patient(day):
    return strict.__name__
"""


class Workers:
    """Two workers, each with two forked processes. Programs that ask for tasks run in processes of their own."""

    def __init__(self, directory: Path, broker: str, endpoint: str) -> None:
        self.directory, self.notes = directory, directory / "notes"
        (directory / "tasks.py").write_text(TASKS, encoding="utf-8")
        self._environment = {"BROKER": broker, "HOLDFAST_ENDPOINT": endpoint, "NOTES": str(self.notes)}
        command = [sys.executable, "-m", "celery", "-A", "tasks", "worker", "-P", "prefork", "-c", "2", "-l", "warning"]
        self._processes = [
            subprocess.Popen(
                [*command, "-n", name],
                cwd=directory,
                env={**os.environ, **self._environment},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for name in ("one", "two")
        ]

    def ask(self, code: str, *arguments: str) -> str:
        done = run_python(self.directory, code, *arguments, **self._environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def go(self) -> None:
        """Tasks that run may end."""
        (self.directory / "notes.go").touch()

    def stop(self) -> None:
        self.go()
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait(30)


@pytest.fixture
def workers(tmp_path: Path, broker: str, holdfast_server: Server) -> Iterator[Workers]:
    workers = Workers(tmp_path, broker, holdfast_server.endpoint)
    yield workers
    workers.stop()


def test_one_of_several_celery_tasks_runs_at_a_time(workers: Workers) -> None:
    first = workers.ask("import tasks; print(tasks.report.delay('monday').id)")
    eventually(workers.notes.exists)
    asked = """
        import holdfast, tasks
        skipped = [tasks.report.delay("monday").id for _ in range(5)]
        try:
            tasks.strict.delay("monday").get(timeout=30)
        except holdfast.Busy:
            print("busy", end=" ")
        patient = tasks.patient.delay("monday")
        # Another name is another lock.
        print(tasks.strict.delay("tuesday").get(timeout=30), patient.ready(), patient.id, *skipped)
        """
    busy, ran, is_ready, patient, *skipped = workers.ask(asked).split()
    assert (busy, ran, is_ready) == ("busy", "ran", "False")
    workers.go()
    results = """
        import sys, tasks
        first, patient, *skipped = [tasks.app.AsyncResult(it) for it in sys.argv[1:]]
        print(first.get(timeout=30), patient.get(timeout=30), any(it.successful() for it in skipped))
        """
    fence, patient_result, any_ran = workers.ask(results, first, patient, *skipped).split()
    assert fence.startswith("hf1.L.") and (patient_result, any_ran) == ("strict", "False")
    assert workers.notes.read_text(encoding="utf-8") == "begin monday\n"


def test_a_celery_task_that_lost_its_lock_fails(workers: Workers, holdfast_server: Server) -> None:
    first = workers.ask("import tasks; print(tasks.report.delay('sunday').id)")
    eventually(workers.notes.exists)
    holdfast_server.break_lock("report:sunday")
    with holdfast.Client(holdfast_server.endpoint) as client:
        client.lock("report:sunday", wait=10).acquire().release()
    workers.go()
    result = """
        import sys, holdfast, tasks
        try:
            tasks.app.AsyncResult(sys.argv[1]).get(timeout=30)
        except holdfast.Lost as lost:
            print(type(lost).__name__)
        """
    assert workers.ask(result, first) == "Lost"


def test_a_wrong_option_of_a_celery_task_is_told_when_it_is_defined() -> None:
    from celery import Celery

    import holdfast.celery

    app = Celery("wrong", set_as_current=False)
    with pytest.raises(ValueError, match="on_busy is"):

        @app.task(base=holdfast.celery.SingletonTask, on_busy="wait", lazy=False)
        def wrong() -> None: ...


# APScheduler


def test_one_of_two_schedulers_runs_the_jobs(holdfast_server: Server) -> None:
    from apscheduler.schedulers.background import BackgroundScheduler

    from holdfast.apscheduler import Elected

    ran: List[str] = []

    def elected(name: str, client: holdfast.Client) -> Elected:
        scheduler = BackgroundScheduler()
        scheduler.add_job(ran.append, "interval", seconds=0.1, args=[name], next_run_time=datetime.now())
        return Elected(scheduler, client, "scheduler", name)

    with holdfast.Client(holdfast_server.endpoint) as one, holdfast.Client(holdfast_server.endpoint) as two:
        first = elected("first", one).start()
        eventually(lambda: first.is_leading and "first" in ran)
        second = elected("second", two).start()
        eventually(lambda: one.status("scheduler").waiter_count == 1)
        assert first.fence.startswith("hf1.L.")
        with pytest.raises(holdfast.Lost):
            _ = second.fence
        before = len(ran)
        eventually(lambda: len(ran) > before + 2)
        assert set(ran) == {"first"}
        # It is taken away: the other one goes on.
        holdfast_server.break_lock("scheduler")
        eventually(lambda: second.is_leading and "second" in ran)
        eventually(lambda: two.status("scheduler").waiter_count == 1)
        at = len(ran)
        eventually(lambda: len(ran) > at + 3)
        assert set(ran[at + 1 :]) == {"second"}
        second.stop()
        eventually(lambda: first.is_leading)
        first.stop()
        assert one.status("scheduler").holder_count == 0


def test_a_campaign_goes_on_when_it_is_woken_by_the_loss_of_the_leadership_before() -> None:
    from holdfast.apscheduler import _Campaign

    class Waking(threading.Event):
        """Wakes the first wait without an outcome, and brings the outcome after that."""

        waits = 0

        def wait(self, timeout: Optional[float] = None) -> bool:
            self.waits += 1
            if self.waits == 2:
                campaign.resolve("granted")
            return True

    class Election:
        _changed, _stops = Waking(), threading.Event()

    campaign = _Campaign(Election())  # type: ignore[arg-type]
    assert campaign.await_outcome() == "granted"
    assert Election._changed.waits == 2


def test_a_job_that_runs_ends_under_the_lock(holdfast_client: holdfast.Client) -> None:
    from apscheduler.schedulers.background import BackgroundScheduler

    from holdfast.apscheduler import Elected

    holders: List[int] = []

    def job() -> None:
        time.sleep(0.5)
        holders.append(holdfast_client.status("stopping").holder_count)

    scheduler = BackgroundScheduler()
    scheduler.add_job(job, "date", run_date=datetime.now() + timedelta(seconds=0.2))
    with Elected(scheduler, holdfast_client, "stopping"):
        eventually(lambda: scheduler.get_jobs() == [])
    assert holders == [1]


# Django

SETTINGS = """
import os
SECRET_KEY = "a test"
INSTALLED_APPS = ["holdfast.django", "shop"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["DATABASE"]}}
HOLDFAST = {"endpoints": os.environ["HOLDFAST_ENDPOINT"]}
ROOT_URLCONF = "shop.urls"
ALLOWED_HOSTS = ["*"]
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
USE_TZ = True
"""
URLS = """
from django.http import HttpResponse
from django.urls import path
from holdfast.django import client, locked

@locked("invoice:{pk}", on_busy="raise")
def invoice(request, pk):
    return HttpResponse(str(client().status(f"invoice:{pk}").holder_count))

urlpatterns = [path("invoice/<int:pk>", invoice)]
"""
WAITING = """
import os, time
from django.core.management.base import BaseCommand

class Command(BaseCommand):
    def handle(self, *args, **options):
        print("begun", flush=True)
        while not os.path.exists(os.environ["DATABASE"] + ".go"):
            time.sleep(0.02)
"""


@pytest.fixture
def project(tmp_path: Path, holdfast_server: Server) -> Any:
    commands = tmp_path / "shop" / "management" / "commands"
    commands.mkdir(parents=True)
    for directory in (commands, commands.parent, commands.parent.parent):
        (directory / "__init__.py").touch()
    (tmp_path / "settings.py").write_text(SETTINGS, encoding="utf-8")
    (tmp_path / "shop" / "urls.py").write_text(URLS, encoding="utf-8")
    (commands / "waiting.py").write_text(WAITING, encoding="utf-8")
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "settings",
        "DATABASE": str(tmp_path / "db"),
        "HOLDFAST_ENDPOINT": holdfast_server.endpoint,
        "PYTHONPATH": str(tmp_path),
    }

    def manage(*arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "django", *arguments],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return manage


def test_a_django_command_runs_under_a_lock(project: Any, tmp_path: Path) -> None:
    migrated = project("locked", "migrate", "--verbosity", "1")
    assert "migrations" in migrated.communicate(timeout=60)[0].lower()
    assert migrated.returncode == 0
    first = project("locked", "--name", "deploy", "waiting")
    assert first.stdout.readline() == "begun\n"
    refused = project("locked", "--name", "deploy", "--wait", "0", "waiting")
    assert "deploy is held by another process" in refused.communicate(timeout=60)[0]
    assert refused.returncode == 75
    skipped = project("locked", "--name", "deploy", "--wait", "0", "--skip", "waiting")
    assert "is skipped" in skipped.communicate(timeout=60)[0]
    assert skipped.returncode == 0
    (tmp_path / "db.go").touch()
    first.communicate(timeout=60)
    assert first.returncode == 0


def test_a_django_view_runs_under_a_lock(project: Any, holdfast_client: holdfast.Client) -> None:
    code = """
        import django
        django.setup()
        from django.test import Client
        import holdfast
        try:
            print(Client().get("/invoice/7").content.decode())
        except holdfast.Busy:
            print("busy")
        """
    view = project("shell", "-v", "0", "-c", textwrap.dedent(code))
    assert view.communicate(timeout=60)[0].splitlines()[-1] == "1"
    with holdfast_client.lock("invoice:7"):
        view = project("shell", "-v", "0", "-c", textwrap.dedent(code))
        assert view.communicate(timeout=60)[0].splitlines()[-1] == "busy"


# gevent


def test_gevent_with_patched_threads_is_refused(tmp_path: Path) -> None:
    code = """
        from gevent import monkey; monkey.patch_all()
        import holdfast
        holdfast.Client("127.0.0.1:7420")
        """
    done = run_python(tmp_path, code)
    assert done.returncode != 0 and "monkey.patch_all(thread=False)" in done.stderr


def test_gevent_without_patched_threads_works(tmp_path: Path, holdfast_server: Server) -> None:
    code = """
        from gevent import monkey; monkey.patch_all(thread=False)
        import sys, gevent, holdfast
        with holdfast.Client(sys.argv[1], ttl=2) as client:
            with client.lock("green") as guard:
                # A greenlet that does not yield stops no heartbeats.
                import time
                end = time.monotonic() + 3
                while time.monotonic() < end:
                    pass
                print(guard.token > 0)
        """
    done = run_python(tmp_path, code, holdfast_server.endpoint)
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr
