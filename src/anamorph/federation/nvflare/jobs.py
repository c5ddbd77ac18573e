"""Jobs: configuration only, which names the installed programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anamorph.federation.nvflare.hardening import (
    CONTROLLER,
    COORDINATOR_PROGRAM,
    EXECUTOR,
    SITE_PROGRAM,
)

JOB_NAME = "anamorph"
_SYNCHRONISATION = 60  # seconds that sites may take to load their program
# Seconds between looks whether the other end is ready, which a job begins with.
_LOOK = 0.2


def write_job(folder: Path, sites: Sequence[str]) -> None:
    """Write a job for some sites, all of which it needs."""
    server = {
        "format_version": 2,
        "server": {"task_request_interval": _LOOK},
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
        "runner_sync_timeout": _LOOK,
        "executors": [
            {"tasks": ["*"], "executor": {"path": EXECUTOR, "args": {"client_obj_id": "site"}}}
        ],
        "components": [{"id": "site", "path": SITE_PROGRAM, "args": {}}],
    }
    about = {
        "name": JOB_NAME,
        "resource_spec": {},
        "min_clients": len(sites),
        "mandatory_clients": list(sites),
        "deploy_map": {"app": ["server", *sites]},
    }
    _write(folder / "meta.json", about)
    _write(folder / "app" / "config" / "config_fed_server.json", server)
    _write(folder / "app" / "config" / "config_fed_client.json", client)


def _write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
