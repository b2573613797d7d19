"""A standalone Spark cluster for tests: a master and workers from the PyPI package, on loopback.

Each worker has folders of its own for its work, its home and its temporary files, and a Python that has the
few packages that executors need and neither rollview nor anything else. Where we are root, it has mounts of
its own as well: the folders that are `hidden` are empty for it, as the driver's own disk is on a cluster.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from servers.jvm import start_quickly
from servers.ordinary_user import SITE_PACKAGES
from servers.processes import descendants

PACKAGES = ("numpy", "psycopg", "pyarrow", "typing_extensions")
"""What the docs say that an executor's Python must have; with `pyspark`, which is Spark's own."""

_HOME = Path(pyspark.__file__).parent
_PATIENCE_SECONDS = 120.0
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_HIDE = 'for each in $HIDDEN; do mount -t tmpfs none "$each" || exit 1; done; exec "$@"'


@dataclass
class Cluster:
    """`workers` are the processes of the machines; an executor is a child of one."""

    folder: Path
    python: Path
    hidden: tuple[Path, ...] = ()
    url: str = ""
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def workers(self) -> list[subprocess.Popen[bytes]]:
        return self.processes[1:]

    def settings(self, **more: str) -> dict[str, str]:
        """The entry `spark` of a project file, and whatever else is wanted (`_` for `.`)."""
        return {
            "master": self.url,
            "spark.driver.host": "127.0.0.1",
            "spark.pyspark.python": str(self.python),
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": os.environ["SPARK_LAUNCHER_OPTS"],
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    def executors(self) -> list[int]:
        """The processes of all executors."""
        found = []
        for each in self.workers:
            if each.poll() is None:
                for child in descendants(each.pid):
                    with suppress(FileNotFoundError, ProcessLookupError):
                        if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{child}/cmdline").read_bytes():
                            found.append(child)
        return found

    def kill_worker(self, number: int) -> None:
        """A machine is gone from one moment to the next, with its executors."""
        worker = self.workers[number]
        for process in (worker.pid, *descendants(worker.pid)):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        worker.wait()

    def start_worker(self) -> None:
        """One more machine, with one core."""
        name = f"worker-{len(self.workers)}"
        work = str(self.folder / name / "work")
        self._start(name, [_WORKER, "--cores", "1", "--memory", "600m", "--work-dir", work, self.url])
        self._await(name, "Successfully registered with master")

    def _start(self, name: str, command: Sequence[str]) -> None:
        own = self.folder / name
        for each in ("home", "tmp", "work"):
            (own / each).mkdir(parents=True)
        start_quickly()
        kept = ("PATH", "JAVA_HOME", "LANG", "SPARK_LAUNCHER_OPTS")
        environment = {each: os.environ[each] for each in kept if each in os.environ}
        environment |= {
            "HOME": str(own / "home"),
            "TMPDIR": str(own / "tmp"),
            "SPARK_LOCAL_DIRS": str(own / "tmp"),
            "SPARK_HOME": str(_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": f"-Djava.io.tmpdir={own / 'tmp'} {os.environ['SPARK_LAUNCHER_OPTS']}",
            "HIDDEN": " ".join(map(str, self.hidden)),
        }
        listens = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        program = [str(_HOME / "bin" / "spark-class"), command[0], *listens, *command[1:]]
        if self.hidden and os.getuid() == 0:
            program = ["unshare", "--mount", "sh", "-c", _HIDE, "hide", *program]
        with (own / "log").open("wb") as log:
            self.processes.append(
                subprocess.Popen(
                    program, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=own, env=environment
                )
            )

    def _await(self, name: str, pattern: str) -> re.Match[str]:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        log = self.folder / name / "log"
        while (found := re.search(pattern, log.read_text(errors="replace"))) is None:
            assert self.processes[-1].poll() is None and time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.05)
        return found

    def start(self, workers: int) -> None:
        """The master first: workers register with it."""
        self._start("master", [_MASTER])
        self.url = self._await("master", r"Starting Spark master at (spark://\S+)")[1]
        for _ in range(workers):
            self.start_worker()

    def stop(self) -> None:
        """Ends all processes; a worker ends its executors."""
        for process in reversed(self.processes):
            children = descendants(process.pid) if process.poll() is None else []
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for child in children:
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)


@contextmanager
def spark_cluster(folder: Path, workers: int = 2, hidden: Sequence[Path] = ()) -> Iterator[Cluster]:
    """A cluster with a core on each worker; its files are in a folder."""
    cluster = Cluster(folder, _bare_python(folder / "python"), tuple(hidden))
    try:
        cluster.start(workers)
        yield cluster
    finally:
        cluster.stop()


def _bare_python(folder: Path) -> Path:
    """A Python with the packages alone; they are links to ours, so nothing is downloaded."""
    venv.EnvBuilder(symlinks=True).create(folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert packages.parent.name == f"python{version}"
    for name in PACKAGES:
        found = [path for path in SITE_PACKAGES.iterdir() if re.fullmatch(rf"{name}([._-].*)?", path.name)]
        assert found, f"{name} is not installed"
        for path in found:
            (packages / path.name).symlink_to(path)
    return folder / "bin" / "python"
