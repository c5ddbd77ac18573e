"""NVFLARE's configuration of a party: it may run the installed programs, and nothing else.

Jobs ship no code, name no other class and start no shell. Logs and jobs stay in the kit; by default
NVFLARE streams logs to the server and stores jobs in the temporary folder of the system.
"""

from __future__ import annotations

from typing import Any

from anamorph.federation.nvflare.kit import Kit, write_json

SITE_PROGRAM = "anamorph.federation.nvflare.site_program.SiteProgram"
COORDINATOR_PROGRAM = "anamorph.federation.nvflare.coordinator_program.CoordinatorProgram"
CONTROLLER = "nvflare.collab.runtime.controller.CollabController"
EXECUTOR = "nvflare.collab.runtime.executor.CollabExecutor"
_DOORKEEPER = "anamorph.federation.nvflare.event_handlers.Doorkeeper"
_ANNOUNCER = "anamorph.federation.nvflare.event_handlers.Announcer"

ROLE = "lead"
_LOG_BYTES, _LOG_FILES = 20_000_000, 3
#: Seconds between a site's heartbeats, and until it notices that a server is back.
HEARTBEAT = 4
_HEARTBEAT_TIMEOUT = 16  # seconds after which a silent site counts as disconnected
_SCHEDULE_INTERVAL = 1.0


def harden(kit: Kit) -> None:
    """Write the configuration of a party into its kit."""
    kit.work.mkdir(exist_ok=True)
    resources = _site_resources() if kit.is_site else _coordinator_resources(kit)
    for name, content in {
        "resources.json": _allowed_classes(kit) | resources,
        "authorization.json": _permissions(),
        "log_config.json": _logging(),
    }.items():
        write_json(kit.local / name, content)


def _allowed_classes(kit: Kit) -> dict[str, Any]:
    return {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": (
            [EXECUTOR, SITE_PROGRAM] if kit.is_site else [CONTROLLER, COORDINATOR_PROGRAM]
        ),
    }


def _site_resources() -> dict[str, Any]:
    return {
        "allow_log_streaming": False,
        "client": {"retry_timeout": 30},
        "components": [
            _component(
                "resource_manager",
                "nvflare.app_common.resource_managers.gpu_resource_manager.GPUResourceManager",
                num_of_gpus=0,
                mem_per_gpu_in_GiB=0,
            ),
            _component(
                "resource_consumer",
                "nvflare.app_common.resource_consumers.gpu_resource_consumer.GPUResourceConsumer",
            ),
            _component(
                "process_launcher",
                "nvflare.app_common.job_launcher.client_process_launcher.ClientProcessJobLauncher",
            ),
            _component("announcer", _ANNOUNCER),
        ],
    }


def _coordinator_resources(kit: Kit) -> dict[str, Any]:
    storage = "nvflare.app_common.storages.filesystem_storage.FilesystemStorage"
    return {
        "servers": [
            {
                "admin_storage": "transfer",
                "max_num_clients": len(kit.sites),
                "heart_beat_timeout": _HEARTBEAT_TIMEOUT,
                "admin_timeout": 10.0,
            }
        ],
        "snapshot_persistor": {
            "path": "nvflare.app_common.state_persistors.storage_state_persistor."
            "StorageStatePersistor",
            "args": {
                "uri_root": "/",
                "storage": {
                    "path": storage,
                    "args": {"root_dir": str(kit.work / "snapshots"), "uri_root": "/"},
                },
            },
        },
        "components": [
            _component(
                "job_scheduler",
                "nvflare.app_common.job_schedulers.job_scheduler.DefaultJobScheduler",
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
            _component("job_store", storage),
            _component(
                "process_launcher",
                "nvflare.app_common.job_launcher.server_process_launcher.ServerProcessJobLauncher",
            ),
            _component("doorkeeper", _DOORKEEPER, sites=list(kit.sites)),
        ],
    }


def _component(name: str, path: str, **arguments: Any) -> dict[str, Any]:
    return {"id": name, "path": path, "args": arguments}


def _permissions() -> dict[str, Any]:
    """Return the rights of the holder of the coordinator's kit; nobody else has any."""
    return {
        "format_version": "1.0",
        "permissions": {
            ROLE: {
                "submit_job": "any",
                "manage_job": "any",
                "view": "any",
                "clone_job": "none",
                "download_job": "none",
                "operate": "none",
                "shell_commands": "none",
                "byoc": "none",
                "server-predeployed-flwr": "none",
            }
        },
    }


def _logging() -> dict[str, Any]:
    """Return a configuration that logs to a file in the kit, and not to the terminal."""
    return {
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
