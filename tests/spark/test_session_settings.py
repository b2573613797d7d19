"""Settings of Spark reach it by a private file: no process shows them to other users of the machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SECRET = "hunter2 = very: #secret \\ \"quoted\" 'too' Ä"
OTHER_SECRET = "in-java-options-0815"

_PROGRAM = """
import json, os, sys, tempfile, threading, time
from pathlib import Path
from rollview.spark.session import java_process, open_session

seen, files, over = set(), set(), threading.Event()

def look():
    while not over.is_set():
        for each in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                seen.add(each.read_bytes())
            except OSError:
                pass
        for each in Path(tempfile.gettempdir()).glob("rollview-spark-*/*"):
            try:
                files.add((each.name, each.stat().st_mode & 0o777, each.parent.stat().st_mode & 0o777))
            except OSError:
                pass
        time.sleep(0.002)

watcher = threading.Thread(target=look)
watcher.start()
settings = json.loads(sys.stdin.readline())
spark = open_session("x", settings)
over.set()
watcher.join()
java = java_process()
sockets = {os.readlink(each) for each in Path(f"/proc/{java.pid}/fd").iterdir() if each.is_symlink()}
tables = [Path(f"/proc/net/{kind}").read_text().splitlines()[1:] for kind in ("tcp", "tcp6")]
lines = [line.split() for table in tables for line in table]
listening = [line[1] for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in sockets]
print(json.dumps({
    "listening": listening,
    "page": spark.sparkContext.uiWebUrl,
    "java": Path(f"/proc/{java.pid}/cmdline").read_bytes().decode("utf-8", "replace"),
    "environment": Path(f"/proc/{java.pid}/environ").read_bytes().decode("utf-8", "replace"),
    "seen": [each.decode("utf-8", "replace") for each in seen if each],
    "files": sorted(files),
    "left": [str(each) for each in Path(tempfile.gettempdir()).glob("rollview-spark-*")],
    "values": {key: spark.conf.get(key) for key in settings if key.startswith("spark.")},
    "memory": spark.sql("SELECT 1 AS one").collect()[0][0],
    "submit": os.environ.get("PYSPARK_SUBMIT_ARGS"),
}))
spark.stop()
"""


@pytest.mark.slow
def test_no_command_line_has_a_setting(tmp_path: Path) -> None:
    """Also while Spark is being started, when several programs run one after the other."""
    given = tmp_path / "given.properties"
    given.write_text("spark.app.of.the.user=kept\nspark.driver.memory=1g\n")
    settings = {
        "master": "local[1]",
        "spark.hadoop.fs.s3a.secret.key": SECRET,
        "spark.some.password": "  spaces around  ",
        "spark.driver.memory": "600m",
        "spark.driver.extraJavaOptions": f"-Dsome.password={OTHER_SECRET} '-Dsome.name=a b'",
    }
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    environment["PYSPARK_SUBMIT_ARGS"] = f"--properties-file {given} --conf spark.also.given=1 pyspark-shell"
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        input=json.dumps(settings) + "\n",
        capture_output=True,
        check=False,
        text=True,
        env=environment,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    shown = "\n".join([found["java"], found["environment"], *found["seen"]])
    assert "SparkSubmit" in found["java"] and "-Xmx600m" in found["java"]
    for secret in ("hunter2", "spaces around", OTHER_SECRET):
        assert secret not in shown, secret
    # They have arrived all the same, to the letter.
    assert found["values"] == {key: each for key, each in settings.items() if key.startswith("spark.")}
    # The files were there, for their owner alone, and are gone.
    assert {(mode, folder) for _, mode, folder in found["files"]} == {(0o600, 0o700)}, found["files"]
    assert found["left"] == []
    # It listens on 127.0.0.1 alone, as the kernel writes it for both families, and has no page.
    assert found["listening"]
    for place in found["listening"]:
        assert place.split(":")[0] in ("0100007F", "0000000000000000FFFF00000100007F"), found["listening"]
    assert found["page"] is None
    assert found["submit"] == environment["PYSPARK_SUBMIT_ARGS"]
