"""`python manage.py locked migrate`: runs another command while it holds a lock."""

from __future__ import annotations

import argparse
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from ....errors import Busy, Lost, TimedOut
from ... import client


class Command(BaseCommand):  # type: ignore[misc]
    help = "Runs a command while it holds a lock, so that one process at a time runs it."
    # The command that is run checks what it needs.
    requires_system_checks: "list[str]" = []

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("--name", help="the lock; by default `django:` and the command")
        parser.add_argument("--wait", type=float, default=60.0, metavar="SECONDS", help="how long to wait (default 60)")
        parser.add_argument("--skip", action="store_true", help="succeed without running it if the lock is held")
        parser.add_argument("command", help="the command to run")
        parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")

    def handle(self, *_: Any, **options: Any) -> None:
        command = options["command"]
        name = options["name"] or f"django:{command}"
        try:
            guard = client().lock(name, wait=options["wait"]).acquire()
        except (Busy, TimedOut) as error:
            if options["skip"]:
                self.stdout.write(f"{name} is held by another process: {command} is skipped")
                return
            raise CommandError(f"{name} is held by another process: {error}", returncode=75) from error
        try:
            with guard:
                call_command(command, *options["arguments"])
        except Lost as lost:
            raise CommandError(f"{command} ran to its end, but not under its lock: {lost}") from lost
