"""What `run` looks at besides sources: the view files, the clock, its memory."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from watched_project import add_views, catalog_of, view_text, write_project

from rollview.events import ClockJumped, Event, FileNoted
from rollview.monitoring import Monitor
from rollview.project.project import Project
from rollview.run import upkeep
from rollview.run.upkeep import ClockWatch, give_back
from rollview.views import view_files
from rollview.views.view_files import FileWatch


@pytest.fixture
def filed(tmp_path: Path) -> Iterator[Project]:
    """Two views that are set up as their files say."""
    folder = write_project(tmp_path / "filed")
    texts = {name: view_text(name) for name in ("sold", "kept")}
    views = folder / "views"
    views.mkdir(exist_ok=True)
    for name, text in texts.items():
        (views / f"{name}.sql").write_text(text)
    with Project.open(folder) as project:
        add_views(catalog_of(project), texts)
        yield project


def _watch(project: Project, monkeypatch: pytest.MonkeyPatch) -> tuple[FileWatch, list[Event]]:
    monkeypatch.setattr(view_files, "LOOK_SECONDS", 0.0)
    parts, heard = project._warehouse, list[Event]()
    project.subscribe(heard.append)
    return FileWatch(parts.project, parts.catalog, parts.events), heard


def _notes_of(heard: list[Event]) -> dict[str, str]:
    found = {each.view: each.note for each in heard if isinstance(each, FileNoted)}
    heard.clear()
    return found


def test_files_are_reported_once_for_each_change(filed: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    watch, heard = _watch(filed, monkeypatch)
    watch.poll()
    assert heard == []
    file = filed._warehouse.project.folder / "views" / "sold.sql"
    text = file.read_text()
    file.write_text("SELEC nothing")
    watch.poll()
    notes = _notes_of(heard)
    assert notes.keys() == {"sold"}, "the other view has nothing to do with it"
    assert "cannot be used" in notes["sold"] and "sold.sql" in notes["sold"]
    watch.poll()
    assert heard == []
    file.write_text(text + "\n-- and more")
    watch.poll()
    assert "has changed" in _notes_of(heard)["sold"]
    file.unlink()
    watch.poll()
    assert "is gone" in _notes_of(heard)["sold"]
    file.write_text(text)
    watch.poll()
    assert _notes_of(heard) == {"sold": ""}


def test_a_broken_file_of_no_view_is_reported(filed: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    watch, heard = _watch(filed, monkeypatch)
    (filed._warehouse.project.folder / "views" / "new.sql").write_text("SELEC nothing")
    watch.poll()
    notes = _notes_of(heard)
    assert len(notes) == 1 and "new.sql" in "".join(notes.values())
    status = filed.status()
    assert "new.sql" in "".join(status.broken.values())
    assert [view.note for view in status.views] == ["", ""]


def test_no_file_stops_the_watch(filed: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not text, nothing at all, a folder, a link that leads nowhere, more brackets than a parser can take."""
    watch, heard = _watch(filed, monkeypatch)
    views = filed._warehouse.project.folder / "views"
    (views / "bytes.sql").write_bytes(bytes(range(256)))
    (views / "empty.sql").touch()
    (views / "folder.sql").mkdir()
    (views / "nowhere.sql").symlink_to(views / "gone")
    watch.poll()
    assert _notes_of(heard).keys().isdisjoint({"sold", "kept"})
    (views / "deep.sql").write_text("SELECT " + "(" * 20_000 + "1" + ")" * 20_000)
    watch.poll()
    assert "" not in _notes_of(heard).values()
    assert filed.status().broken


def test_a_metric_says_which_files_differ(filed: Project) -> None:
    monitor = Monitor(filed)
    monitor.sampler.poll()
    assert monitor.sampler.last.file_differs == {"sold": False, "kept": False}
    (filed._warehouse.project.folder / "views" / "kept.sql").unlink()
    monitor.sampler.poll()
    assert monitor.sampler.last.file_differs == {"sold": False, "kept": True}


@pytest.mark.parametrize("jump", [7200.0, -7200.0, 11.0])
def test_a_clock_that_is_set_is_reported_once(
    watched: Project, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    heard: list[Event] = []
    watched.subscribe(heard.append)
    watch = ClockWatch(watched._warehouse.events)
    watch.poll()
    assert heard == []
    ahead = time.time() - time.monotonic() + jump
    monkeypatch.setattr(upkeep, "_ahead", lambda: ahead)
    watch.poll()
    watch.poll()
    (event,) = heard
    assert isinstance(event, ClockJumped)
    assert event.seconds == pytest.approx(jump, abs=1.0)


def test_a_clock_that_is_corrected_a_little_is_not_reported(
    watched: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Event] = []
    watched.subscribe(heard.append)
    watch = ClockWatch(watched._warehouse.events)
    ahead = time.time() - time.monotonic() + 2.0
    monkeypatch.setattr(upkeep, "_ahead", lambda: ahead)
    watch.poll()
    assert heard == []


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="only glibc gives memory back")
def test_memory_that_nothing_uses_is_given_back() -> None:
    pieces = [bytearray(1000) for _ in range(100_000)]
    kept = pieces[::100]
    before = _resident_megabytes()
    del pieces
    give_back()
    assert len(kept) == 1000
    assert before - _resident_megabytes() > 60, "what is kept stands in the way of the rest"


def _resident_megabytes() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024
