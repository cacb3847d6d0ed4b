"""Writes a folder about a policy in the layout of the Hugging Face hub, and uploads it.

README.md        the model card, with the metadata that the hub reads
config.json      settings, checkpoints/ the policy, results.json the scores
replay.mp4       a video, which the hub shows on the page of the model
.gitattributes   which files the hub stores as large files
"""

import json
import re
from pathlib import Path

import trellis
from trellis.analysis.publish import Card, write_policy
from trellis.policies.saved import SavedPolicy
from trellis.runs.folder import as_json
from trellis.safe_files import UnsafeFileError, is_there, read_file, write_file

README, REPLAY, ATTRIBUTES = "README.md", "replay.mp4", ".gitattributes"
VIDEO, VIDEO_BYTES = "video.mp4", 64 << 20
"""Video of a run that is shared, and its largest size."""
LARGE_FILES = "".join(
    f"*.{kind} filter=lfs diff=lfs merge=lfs -text\n" for kind in ("mp4", "safetensors", "onnx")
)
TOKEN_ADVICE = (
    "Create a token with write access at https://huggingface.co/settings/tokens, then run"
    " `hf auth login` or set HF_TOKEN"
)


class UploadError(RuntimeError):
    """The folder could not be uploaded; the message says why and what to do."""


def write_share(saved: SavedPolicy, card: Card, folder: Path, video: bytes | None = None) -> None:
    """Write the folder; files that are there are replaced.

    Args:
        saved: The policy.
        card: Its scores.
        folder: Folder to write.
        video: Content of an MP4 file. Default: no video.
    """
    write_policy(saved, card, folder)
    write_file(folder, ATTRIBUTES, LARGE_FILES.encode())
    if video is not None:
        write_file(folder, REPLAY, video)
    write_file(folder, README, model_card(saved, card, has_video=video is not None).encode())


def read_video(run: Path) -> bytes | None:
    """Return the video that `trellis record` wrote into a run; None without one."""
    if not is_there(run, VIDEO):
        return None
    try:
        data = read_file(run, VIDEO, limit=VIDEO_BYTES)
    except UnsafeFileError:
        return None
    return data if data[4:8] == b"ftyp" else None


def model_card(saved: SavedPolicy, card: Card, *, has_video: bool = False) -> str:
    """Return the model card: metadata in YAML, then Markdown."""
    settings = json.dumps(as_json(saved.config), indent=2, ensure_ascii=False)
    actions = "sampled actions" if card.stochastic else "the most probable actions"
    use = "action = policy.act(observation)"
    if saved.policy.carry_size:
        use = "act = policy.episode()  # where an episode starts\naction = act(observation)"
    parts = [
        _metadata(card),
        f"# {card.method} policy for {_code(card.env)}",
        f"A policy trained by Trust Region Policy Optimization with Trellis {trellis.__version__}.",
    ]
    if has_video:
        parts.append(f'<video controls loop muted src="{REPLAY}"></video>')
    rows = {
        "return": f"{card.score} over {card.episodes} episodes, with {actions}",
        "training steps": f"{card.steps:,}",
        "seed": card.seed,
        "policy": f"{card.policy} of the run",
        "observation space": _code(str(saved.spaces[0])[:200]),
        "action space": _code(str(saved.spaces[1])[:200]),
        "commit": _code(card.commit),
    }
    table = "\n".join(f"| {name} | {value} |" for name, value in rows.items())
    parts += [
        f"| | |\n|---|---|\n{table}",
        "## Use",
        _fence(
            "from trellis import SavedPolicy\n\n"
            f'policy = SavedPolicy.load("path/to/this/folder")\n{use}',
            "python",
        ),
        "The folder is only parsed: loading runs no code and imports no environment.",
        "## Train it again",
        _fence(card.command, "sh"),
        "## Settings",
        _fence(settings, "json"),
    ]
    return "\n\n".join(parts) + "\n"


def upload(folder: Path, repository: str) -> str:
    """Upload the folder to the Hugging Face hub and return the address of the model.

    Args:
        folder: Folder that `write_share` has written.
        repository: Name on the hub, USER/NAME; it is created if it does not exist.

    Raises:
        ImportError: The extra `hub` is not installed.
        UploadError: The hub refused, or cannot be reached.
    """
    try:
        import huggingface_hub
    except ImportError as error:
        raise ImportError(
            "--upload needs huggingface_hub: pip install 'trellis-rl[hub]'"
        ) from error
    hub = huggingface_hub.HfApi()
    try:  # What a missing network or token raises depends on the version of the hub's package.
        hub.create_repo(repository, exist_ok=True)
        hub.upload_folder(repo_id=repository, folder_path=str(folder))
    except Exception as error:
        raise UploadError(
            f"{folder} was written, but not uploaded to {repository}: {error}. {TOKEN_ADVICE}"
        ) from error
    return f"https://huggingface.co/{repository}"


def require_repository(name: str) -> None:
    """Raise a ValueError unless this is a name on the hub."""
    if not re.fullmatch(r"\w[\w.-]{0,95}/\w[\w.-]{0,95}", name):
        raise ValueError(f"--upload must be USER/NAME, got {name!r}")


def _metadata(card: Card) -> str:
    """Return the front matter; every value is JSON, which YAML contains."""
    tags = ["reinforcement-learning", "deep-reinforcement-learning", card.method, card.env]
    metric = {
        "type": "mean_reward",
        "name": "mean_reward",
        "value": f"{card.mean_return:.2f} +/- {card.std_return:.2f}",
        "verified": False,
    }
    result = {
        "task": {"type": "reinforcement-learning", "name": "reinforcement-learning"},
        "dataset": {"name": card.env, "type": card.env},
        "metrics": [metric],
    }
    entries = {
        "library_name": "trellis",
        "pipeline_tag": "reinforcement-learning",
        "tags": ["trellis", *tags],
        "model-index": [{"name": f"{card.method}-{card.env}", "results": [result]}],
    }
    lines = [f"{name}: {json.dumps(value)}" for name, value in entries.items()]
    return "\n".join(["---", *lines, "---"])


def _code(text: str) -> str:
    """Return a text as inline code of a table cell."""
    plain = re.sub(r"[`|\n\r]", "'", text)
    return f"`{plain}`"


def _fence(text: str, language: str) -> str:
    """Return a block of code whose fence is longer than any in the text."""
    ticks = max([2, *(len(found) for found in re.findall("`+", text))]) + 1
    return f"{'`' * ticks}{language}\n{text}\n{'`' * ticks}"
