"""A soak with the page open: writers on a PostgreSQL and a MariaDB, `rollview run --ui` beside them, a
browser that looks at three pages, kills and restarts, then a judgement.

    python benchmarks/page_soak.py --minutes 60

In the first half `run` is killed `--kills` times. In the second half it lives on, while Spark's process is
killed and both servers are restarted `--restarts` times each; its memory must stay within 10 % then. The
views are judged as by `stress.py`. Warnings and errors in the log are counted; a traceback is wrong. Exit
code 1 if anything is.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from playwright.sync_api import Error as BrowserError
from playwright.sync_api import Page, sync_playwright
from stress import Stress, report
from stress_world import Writers

from servers.processes import java_of

LOOK_SECONDS = 5.0
MEMORY_GROWTH = 1.10
PAGES = ("/", "/views/sold/rolling", "/views/sold/rows")


class Browser(threading.Thread):
    """Looks at pages that stay open; keeps what it saw, and what the pages complained about."""

    def __init__(self, url: str) -> None:
        super().__init__(name="browser")
        self._url = url
        self._over = threading.Event()
        self.seen: list[str] = []
        self.complaints: list[str] = []
        self.failed: BaseException | None = None

    def run(self) -> None:
        """Opens the pages and reads them again and again."""
        try:
            with sync_playwright() as driver:
                browser = driver.chromium.launch(
                    executable_path=shutil.which("chromium"), args=["--no-sandbox"]
                )
                context = browser.new_context(base_url=self._url)
                context.on("weberror", lambda error: self.complaints.append(str(error.error)))
                pages = [context.new_page() for _ in PAGES]
                while not self._over.wait(LOOK_SECONDS):
                    for page, path in zip(pages, PAGES, strict=True):
                        self._look(page, path)
                browser.close()
        except BaseException as error:
            self.failed = error

    def _look(self, page: Page, path: str) -> None:
        # While `run` is being started again nobody answers; the page stays open and comes back automatically.
        with suppress(BrowserError):
            if page.url == "about:blank" or page.url.startswith("chrome-error"):
                page.goto(path, timeout=5_000)
            if path == "/":
                self.seen.append(page.locator("#head .facts").inner_text(timeout=5_000))

    def stop(self) -> None:
        """Closes it."""
        self._over.set()
        self.join()


class PageSoak(Stress):
    """The stress test with a page, for longer."""

    def __init__(self, folder: Path, options: argparse.Namespace, seed: int) -> None:
        super().__init__(folder, options, seed)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.events = folder / "events.log"
        self.memory: list[tuple[float, float]] = []
        self.java_memory: list[float] = []
        self.wrong: list[str] = []

    def _start_daemon(self) -> subprocess.Popen[bytes]:
        self.applied_at_start = self._applied()
        program = str(Path(sys.executable).parent / "rollview")
        place = ("--project", str(self.folder), "--ui", str(self.port))
        logs = ("--log-format", "json", "--log-file", str(self.events))
        return subprocess.Popen([program, "run", *place, *logs], stdout=self.log, stderr=self.log)

    def _disturb(self, daemon: subprocess.Popen[bytes], writers: Writers) -> subprocess.Popen[bytes]:
        browser = Browser(f"http://127.0.0.1:{self.port}")
        browser.start()
        try:
            half = self.options.seconds / 2
            kills = time.monotonic() + half
            for number in range(self.options.kills):
                time.sleep(max(0.0, kills - time.monotonic()) / (self.options.kills - number + 1))
                self._wait_for_work(daemon, writers)
                report("  run is killed")
                daemon.kill()
                daemon.wait()
                daemon = self._start_daemon()
            self._watch(daemon, kills)
            self._second_half(daemon, half)
        finally:
            browser.stop()
        self._judge_browser(browser)
        return daemon

    def _second_half(self, daemon: subprocess.Popen[bytes], seconds: float) -> None:
        """`run` lives on; its memory is watched from a tenth of the time on."""
        ends = time.monotonic() + seconds
        self._watch(daemon, time.monotonic() + seconds / 10)
        self.memory.clear()
        self.java_memory.clear()
        disturbances = ["spark", "postgres", "mariadb"] * self.options.restarts
        self.chance.shuffle(disturbances)
        for left in range(len(disturbances), 0, -1):
            self._watch(daemon, time.monotonic() + (ends - time.monotonic()) / (left + 1))
            what = disturbances[left - 1]
            report(f"  {what}")
            if what == "spark":
                os.kill(java_of(daemon.pid), signal.SIGKILL)
            else:
                server = self.servers.postgres if what == "postgres" else self.servers.mariadb
                server.stop()
                server.start()
        self._watch(daemon, ends)

    def _watch(self, daemon: subprocess.Popen[bytes], until: float) -> None:
        while time.monotonic() < until:
            self._check_alive(daemon)
            self.memory.append((time.monotonic(), _resident_megabytes(daemon.pid)))
            with suppress(OSError, AssertionError):
                self.java_memory.append(_resident_megabytes(java_of(daemon.pid)))
            time.sleep(LOOK_SECONDS)

    def _judge_browser(self, browser: Browser) -> None:
        if browser.failed is not None:
            self.wrong.append(f"the browser failed: {browser.failed}")
        self.wrong += [f"the page complains: {each}" for each in dict.fromkeys(browser.complaints)]
        changes = sum(before != after for before, after in zip(browser.seen, browser.seen[1:], strict=False))
        report(f"the page was read {len(browser.seen)} times and had changed {changes} times")
        if changes < len(browser.seen) / 4:
            self.wrong.append("the page did not follow")

    def judge_process(self) -> list[str]:
        """Memory and log, after the run."""
        size = max(1, len(self.memory) // 5)
        values = [megabytes for _, megabytes in self.memory]
        first, last = statistics.median(values[:size]), statistics.median(values[-size:])
        counts = ", ".join(
            f"{statistics.median(values[at : at + size]):.0f}" for at in range(0, len(values), size)
        )
        report(f"memory of run: {counts} MB, a fifth of the time each ({last / first - 1:+.1%})")
        if self.java_memory:
            report(f"memory of Spark: {self.java_memory[0]:.0f} to {max(self.java_memory):.0f} MB")
        if last > first * MEMORY_GROWTH:
            self.wrong.append(f"memory grew from {first:.0f} to {last:.0f} MB")
        text = self.events.read_text()
        lines = [json.loads(line) for line in text.splitlines()]
        counts = Counter(
            f"{line['level']} {line.get('event') or line.get('message', '')[:60]} {line.get('kind', '')}"
            for line in lines
            if line["level"] in ("warning", "error", "critical")
        )
        for what, number in sorted(counts.items()):
            report(f"  log: {number} x {what}")
        if "Traceback" in text:
            self.wrong.append("the log has a traceback")
        return self.wrong


def _resident_megabytes(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise OSError(f"process {pid} has no memory")


def main() -> int:
    """Parses the arguments and runs; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--restarts", type=int, default=2)
    parser.add_argument("--states", type=int, default=30, help="how many states of every view are compared")
    parser.add_argument("--pause", type=float, default=1.0, help="seconds between a writer's transactions")
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    options.seconds, options.bank = options.minutes * 60.0, False
    seed = random.randrange(1_000_000) if options.seed is None else options.seed
    report(f"seed {seed}")
    with tempfile.TemporaryDirectory(prefix="rollview-soak-") as folder:
        soak = PageSoak(Path(folder) / "project", options, seed)
        try:
            wrong = [*soak.run(), *soak.judge_process()]
        finally:
            soak.servers.close()
    for line in wrong:
        report(f"WRONG: {line}")
    report("all is well" if not wrong else f"{len(wrong)} things are wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
