"""Run folders that somebody made to do harm: what each has, and who must refuse it.

A payload is a function that changes a copy of a good run. `outside` is a folder whose content no
command may change, and `trap` a file that only malicious code would create.
"""

from tests.faults.payloads import checkpoints, files, modules, settings
from tests.faults.payloads.base import Payload, Place

PAYLOADS: list[Payload] = [
    *modules.modules(),
    *files.kinds_of_files(),
    *files.links_to_write_through(),
    *files.sizes(),
    *settings.config_content(),
    *settings.log_content(),
    *checkpoints.checkpoint_content(),
    *checkpoints.tensors(),
    *checkpoints.kept_policies(),
    *checkpoints.descriptions(),
]

__all__ = ["PAYLOADS", "Payload", "Place"]
