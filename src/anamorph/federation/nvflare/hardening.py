"""NVFLARE's configuration of parties and jobs: installed programs may run, and nothing else.

Jobs ship no code, name no other class and start no shell. Logs and jobs stay in the kit; by default
NVFLARE streams logs to the server and stores jobs in the temporary folder of the system.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anamorph.federation.nvflare.kit import Kit, write_json

SITE_PROGRAM = "anamorph.federation.nvflare.site_program.SiteProgram"
COORDINATOR_PROGRAM = "anamorph.federation.nvflare.coordinator_program.CoordinatorProgram"
_CONTROLLER = "nvflare.collab.runtime.controller.CollabController"
_EXECUTOR = "nvflare.collab.runtime.executor.CollabExecutor"
_HANDLERS = "anamorph.federation.nvflare.event_handlers"
_COMMON = "nvflare.app_common"
_STORAGE = f"{_COMMON}.storages.filesystem_storage.FilesystemStorage"

# NVFLARE requires a mail address here, but sends no mail.
ADMIN, ROLE = "coordinator@consortium.invalid", "lead"
_LOG_BYTES, _LOG_FILES = 20_000_000, 3
#: Seconds between a site's heartbeats, and until it notices that a server is back.
HEARTBEAT = 2
_HEARTBEAT_TIMEOUT = 16  # seconds after which a silent site counts as disconnected
_SCHEDULE_INTERVAL = 1.0
_MOST_SITES = 1000  # sites may be added while the server runs; `Doorkeeper` knows them
_SYNCHRONISATION = 60  # seconds that sites may take to load their program
_POLL = 0.2  # seconds between checks whether the other end is ready, when a job begins

# Rights of the holder of the coordinator's kit; nobody else has any.
_PERMITTED = ("submit_job", "manage_job", "view")
_FORBIDDEN = (
    *("clone_job", "download_job", "operate", "shell_commands", "byoc"),
    "server-predeployed-flwr",
)

# A log in a file of the kit; nothing goes to the terminal.
_LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {
            "()": "nvflare.fuel.utils.log_utils.BaseFormatter",
            "fmt": "%(asctime)s - %(name)s - %(levelname)s - %(fl_ctx)s - %(message)s",
        }
    },
    "handlers": {
        "logFileHandler": {
            "class": "logging.handlers.RotatingFileHandler",
            "level": "INFO",
            "formatter": "line",
            "filename": "log.txt",
            "maxBytes": _LOG_BYTES,
            "backupCount": _LOG_FILES,
        }
    },
    "loggers": {
        "root": {"level": "INFO", "handlers": ["logFileHandler"]},
        "nvflare.collab": {"level": "WARNING"},  # at INFO it logs every call
    },
}


# Processes of one party talk through a port of the loopback, which everybody on that computer can
# reach. By default NVFLARE takes whoever connects there; with this, both ends show certificates.
_COMMUNICATION = {
    "format_version": 2,
    "allow_adhoc_conns": False,
    "internal": {
        "scheme": "tcp",
        "resources": {"host": "localhost", "connection_security": "mtls"},
    },
}


def harden(kit: Kit) -> None:
    """Write the configuration of a party into its kit."""
    kit.work.mkdir(exist_ok=True)
    rights = dict.fromkeys(_PERMITTED, "any") | dict.fromkeys(_FORBIDDEN, "none")
    resources = {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        **(_site_resources() if kit.is_site else _coordinator_resources(kit)),
    }
    write_json(kit.local / "resources.json", resources)
    write_json(
        kit.local / "authorization.json", {"format_version": "1.0", "permissions": {ROLE: rights}}
    )
    write_json(kit.local / "log_config.json", _LOGGING)
    write_json(kit.local / "comm_config.json", _COMMUNICATION)
    if kit.is_site:
        write_json(kit.startup / "fed_client.json", _client_address(kit))
    else:
        write_json(kit.startup / "fed_server.json", _server_address(kit))
        write_json(kit.admin / "startup" / "fed_admin.json", _admin_address(kit))


def write_job(folder: Path, sites: Sequence[str]) -> None:
    """Write the files of a job: configuration only, which names the installed programs.

    Parameters
    ----------
    folder : Path
        For the files of the job.
    sites : list of str
        Names of the sites, all of which the job needs.
    """
    controller = _component(
        "controller", _CONTROLLER, server_obj_id="coordinator", sync_task_timeout=_SYNCHRONISATION
    )
    server = {
        "format_version": 2,
        "server": {"task_request_interval": _POLL},
        "workflows": [controller],
        "components": [_component("coordinator", COORDINATOR_PROGRAM)],
    }
    client = {
        "format_version": 2,
        "runner_sync_timeout": _POLL,
        "executors": [
            {"tasks": ["*"], "executor": {"path": _EXECUTOR, "args": {"client_obj_id": "site"}}}
        ],
        "components": [_component("site", SITE_PROGRAM)],
    }
    meta = {
        "name": "anamorph",
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


def _client_address(kit: Kit) -> dict[str, Any]:
    return {
        "format_version": 2,
        "servers": [
            {
                "name": kit.consortium,
                "service": {"target": f"{kit.host}:{kit.port}", "scheme": "tcp"},
                "identity": kit.host[:64],
            }
        ],
        "client": {
            "ssl_private_key": "client.key",
            "ssl_cert": "client.crt",
            "ssl_root_cert": "rootCA.pem",
            "fqsn": kit.name,
            "is_leaf": True,
            "connection_security": "mtls",
        },
    }


def _server_address(kit: Kit) -> dict[str, Any]:
    server = {
        "name": kit.consortium,
        "service": {"target": f"{kit.host}:{kit.port}", "scheme": "tcp"},
        "admin_server": kit.host,
        "admin_port": kit.port,
        "ssl_private_key": "server.key",
        "ssl_cert": "server.crt",
        "ssl_root_cert": "rootCA.pem",
        "connection_security": "mtls",
    }
    return {"format_version": 2, "servers": [server]}


def _admin_address(kit: Kit) -> dict[str, Any]:
    admin = {
        "project_name": kit.consortium,
        "username": ADMIN,
        "server_identity": kit.host[:64],
        "scheme": "tcp",
        "host": kit.host,
        "port": kit.port,
        "connection_security": "mtls",
        "uid_source": "user_input",
        "with_file_transfer": True,
        "upload_dir": "transfer",
        "download_dir": "transfer",
        "client_key": "client.key",
        "client_cert": "client.crt",
        "ca_cert": "rootCA.pem",
    }
    return {"format_version": 1, "admin": admin}


def _site_resources() -> dict[str, Any]:
    manager = f"{_COMMON}.resource_managers.gpu_resource_manager.GPUResourceManager"
    consumer = f"{_COMMON}.resource_consumers.gpu_resource_consumer.GPUResourceConsumer"
    launcher = f"{_COMMON}.job_launcher.client_process_launcher.ClientProcessJobLauncher"
    return {
        "class_allow_list": [_EXECUTOR, SITE_PROGRAM],
        "allow_log_streaming": False,
        "client": {"retry_timeout": 30},
        "components": [
            _component("resource_manager", manager, num_of_gpus=0, mem_per_gpu_in_GiB=0),
            _component("resource_consumer", consumer),
            _component("process_launcher", launcher),
            _component("announcer", f"{_HANDLERS}.Announcer"),
        ],
    }


def _coordinator_resources(kit: Kit) -> dict[str, Any]:
    launcher = f"{_COMMON}.job_launcher.server_process_launcher.ServerProcessJobLauncher"
    snapshots = {"root_dir": str(kit.work / "snapshots"), "uri_root": "/"}
    return {
        "class_allow_list": [_CONTROLLER, COORDINATOR_PROGRAM],
        "servers": [
            {
                "admin_storage": "transfer",
                "max_num_clients": _MOST_SITES,
                "heart_beat_timeout": _HEARTBEAT_TIMEOUT,
                "admin_timeout": 10.0,
            }
        ],
        "snapshot_persistor": {
            "path": f"{_COMMON}.state_persistors.storage_state_persistor.StorageStatePersistor",
            "args": {"uri_root": "/", "storage": {"path": _STORAGE, "args": snapshots}},
        },
        "components": [
            _component(
                "job_scheduler",
                f"{_COMMON}.job_schedulers.job_scheduler.DefaultJobScheduler",
                max_jobs=1,
                min_schedule_interval=_SCHEDULE_INTERVAL,
                max_schedule_interval=_SCHEDULE_INTERVAL,
                max_schedule_count=1_000_000,
            ),
            _component(
                "job_manager",
                "nvflare.apis.impl.job_def_manager.SimpleJobDefManager",
                uri_root=str(kit.work / "jobs"),
                job_store_id="job_store",
            ),
            _component("job_store", _STORAGE),
            _component("process_launcher", launcher),
            _component("doorkeeper", f"{_HANDLERS}.Doorkeeper", folder=str(kit.folder)),
        ],
    }


def _component(name: str, path: str, **arguments: Any) -> dict[str, Any]:
    return {"id": name, "path": path, "args": arguments}
