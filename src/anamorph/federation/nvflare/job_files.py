"""The files of a job: configuration only, which names the installed programs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from anamorph.federation.nvflare.hardening import (
    CONTROLLER,
    COORDINATOR_PROGRAM,
    EXECUTOR,
    SITE_PROGRAM,
)
from anamorph.federation.nvflare.kit import write_json

JOB_NAME = "anamorph"
_SYNCHRONISATION = 60  # seconds that sites may take to load their program
_POLL = 0.2  # seconds between checks whether the other end is ready, when a job begins


def write_job(folder: Path, sites: Sequence[str]) -> None:
    """Write a job.

    Parameters
    ----------
    folder : Path
        For the files of the job.
    sites : list of str
        Names of the sites, all of which the job needs.
    """
    server = {
        "format_version": 2,
        "server": {"task_request_interval": _POLL},
        "workflows": [
            {
                "id": "controller",
                "path": CONTROLLER,
                "args": {"server_obj_id": "coordinator", "sync_task_timeout": _SYNCHRONISATION},
            }
        ],
        "components": [{"id": "coordinator", "path": COORDINATOR_PROGRAM, "args": {}}],
    }
    client = {
        "format_version": 2,
        "runner_sync_timeout": _POLL,
        "executors": [
            {"tasks": ["*"], "executor": {"path": EXECUTOR, "args": {"client_obj_id": "site"}}}
        ],
        "components": [{"id": "site", "path": SITE_PROGRAM, "args": {}}],
    }
    meta = {
        "name": JOB_NAME,
        "resource_spec": {},
        "min_clients": len(sites),
        "mandatory_clients": list(sites),
        "deploy_map": {"app": ["server", *sites]},
    }
    config = folder / "app" / "config"
    config.mkdir(parents=True)
    write_json(folder / "meta.json", meta)
    write_json(config / "config_fed_server.json", server)
    write_json(config / "config_fed_client.json", client)
