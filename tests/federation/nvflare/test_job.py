"""Jobs: requests and configuration go out, events come back."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("nvflare")

from anamorph.federation import ConsortiumError
from anamorph.federation.nvflare.hardening import COORDINATOR_PROGRAM, SITE_PROGRAM, write_job
from anamorph.federation.nvflare.job import EventReader
from anamorph.federation.nvflare.kit import Kit
from anamorph.federation.nvflare.request import (
    FitRequest,
    StatisticsRequest,
    read_request,
    write_request,
)
from anamorph.federation.site.append_only import JsonLines


def test_a_job_is_configuration_only(tmp_path):
    write_job(tmp_path, ["london", "rome"])
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".json"}
    about = json.loads((tmp_path / "meta.json").read_text())
    assert about["deploy_map"] == {"app": ["server", "london", "rome"]}
    assert about["mandatory_clients"] == ["london", "rome"]
    named = "".join(path.read_text() for path in files)
    assert SITE_PROGRAM in named
    assert COORDINATOR_PROGRAM in named


def test_events_are_read_once_from_where_the_reader_began(tmp_path):
    path = tmp_path / "events.jsonl"
    writer = JsonLines(path, "events")
    writer.append(kind="done", n=0)
    reader = EventReader(path)
    assert list(reader.read_new()) == []
    writer.append(kind="began", sites=["london"])
    writer.append(kind="iteration", n=1)
    expected = [{"kind": "began", "sites": ["london"]}, {"kind": "iteration", "n": 1}]
    assert list(reader.read_new()) == expected
    assert list(reader.read_new()) == []


def test_half_an_event_is_left_until_it_is_whole(tmp_path):
    path = tmp_path / "events.jsonl"
    reader = EventReader(path)
    assert list(reader.read_new()) == []
    path.write_text('{"kind": "be')
    assert list(reader.read_new()) == []
    with path.open("a") as file:
        file.write('gan"}\n')
    assert list(reader.read_new()) == [{"kind": "began"}]


@pytest.mark.parametrize(
    "request_",
    [
        FitRequest({"n_components": 2}, "model", "checkpoint", False, 3.0, True),
        StatisticsRequest("model", "table", ["case"], "diagnosis", "weight", False, 3.0),
    ],
)
def test_the_process_of_a_job_finds_what_was_asked_for(tmp_path, request_):
    kit = Kit(tmp_path, "coordinator", "trio", "localhost", 8002, ("london",))
    kit.work.mkdir()
    write_request(request_, kit)
    assert read_request(kit) == request_


def test_a_request_of_another_kind_is_refused(tmp_path):
    kit = Kit(tmp_path, "coordinator", "trio", "localhost", 8002, ("london",))
    kit.work.mkdir()
    (kit.work / "request.json").write_text('{"kind": "latents"}')
    with pytest.raises(ConsortiumError, match="one of fit, statistics, got 'latents'"):
        read_request(kit)
