"""`trellis pretrained` and `share`: package the policies of runs."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from trellis.cli.consent import Import, TrustEnv, allow_env, import_modules
from trellis.cli.errors import UsageError, require_writable, say, usage_errors
from trellis.cli.options import unset
from trellis.cli.runs import Best, Last, Run, open_policy, open_to_render

if TYPE_CHECKING:
    from trellis.analysis.publish import Card
    from trellis.policies.saved import SavedPolicy

VIDEO_HELP = "Leave out the video. By default: RUN/video.mp4 if it exists, otherwise a new one."
Episodes = Annotated[int, tyro.conf.arg(help="Number of episodes that make the score.")]


def pretrained(
    run: Annotated[
        Path | None,
        tyro.conf.Positional,
        unset("list the policies", metavar="[RUN]", help="Run whose policy to add."),
    ] = None,
    *,
    to: Annotated[Path | None, unset("the package's own folder", metavar="FOLDER")] = None,
    episodes: Episodes = 100,
    best: Best = False,
    last: Last = False,
    trust_env: TrustEnv = False,
    import_: Import = (),
) -> int:
    """List the trained policies that come with Trellis, or add one.

    With RUN, the policy of that run is evaluated and added, or replaces the policy for the same
    environment. Without RUN, the command lists all policies and their scores.

    Args:
        to: Folder that holds the policies.
    """
    with usage_errors():
        from trellis.analysis.publish import write_policy
        from trellis.policies import pretrained as found

        folder = to or found.FOLDER
        if run is None:
            return _list(folder)
        saved, card = _score(run, best, last, episodes, trust_env, import_)
        target = folder / saved.config.env
        if not target.resolve().is_relative_to(folder.resolve()):
            raise UsageError(f"{saved.config.env} cannot be the name of a folder")
        write_policy(saved, card, target)
    print(f"{target}: {card.score} over {card.episodes} episodes, {card.steps:,} training steps")
    return 0


def share(
    run: Run,
    *,
    to: Annotated[Path, tyro.conf.arg(metavar="FOLDER", help_behavior_hint="(required)")],
    episodes: Episodes = 20,
    video: Annotated[bool, tyro.conf.arg(help=VIDEO_HELP, help_behavior_hint="")] = True,
    upload: Annotated[str | None, unset("do not upload", metavar="USER/NAME")] = None,
    best: Best = False,
    last: Last = False,
    trust_env: TrustEnv = False,
    import_: Import = (),
) -> int:
    """Package the policy of a run with a model card, scores and a video.

    The folder has the layout of the Hugging Face hub. `SavedPolicy.load` and all commands that take
    a run open it.

    Args:
        to: Folder to write.
        upload: Name of a model on the Hugging Face hub to upload the folder to.
    """
    from trellis.analysis.video import prepare_gl

    prepare_gl()
    with usage_errors():
        from trellis.analysis import share as sharing
        from trellis.runs.log import METRICS

        if upload is not None:
            sharing.require_repository(upload)
        require_writable(to, "--to")
        if (to / METRICS).exists():
            raise UsageError(f"{to} holds a training run; choose another --to")
        saved, card = _score(run, best, last, episodes, trust_env, import_)
        replay = _video(run, saved) if video else None
        sharing.write_share(saved, card, to, replay)
        print(f"{to}: {card.score} over {card.episodes} episodes")
        if upload is not None:
            print(sharing.upload(to, upload))
    return 0


def _list(folder: Path) -> int:
    from trellis.analysis.publish import read_card
    from trellis.policies.pretrained import PREFIX, pretrained_ids

    for env_id in pretrained_ids(folder):
        card = read_card(folder / env_id)
        name = f"{PREFIX}/{env_id}"
        print(f"{name:<42}{card.score:>20}  {card.steps:>12,} steps  commit {card.commit}")
    return 0


def _score(
    run: Path, best: bool, last: bool, episodes: int, trust_env: bool, modules: tuple[str, ...]
) -> "tuple[SavedPolicy, Card]":
    """Open the policy of a run and evaluate it."""
    from trellis.analysis.publish import make_card
    from trellis.policies.pretrained import find_run
    from trellis.training.evaluation import evaluate_saved

    if episodes < 1:
        raise ValueError(f"episodes must be at least 1, got {episodes}")
    saved = open_policy(run, best, last)
    import_modules(modules)
    allow_env(saved.config.env, saved.config.env_options, run, trust_env=trust_env)
    say(f"Evaluating {saved.config.env} over {episodes} episodes …")
    result = evaluate_saved(saved, episodes, trust_env=True)
    return saved, make_card(saved, find_run(run), result)


def _video(run: Path, saved: "SavedPolicy") -> bytes | None:
    """Return a video of the run, or of one new episode; None with a warning if that fails."""
    import contextlib

    import numpy as np

    from trellis.analysis import share as sharing
    from trellis.analysis import video
    from trellis.policies.pretrained import find_run

    found = sharing.read_video(find_run(run))
    if found is not None:
        return found
    say(f"Recording one episode of {saved.config.env} …")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / sharing.REPLAY
        try:
            video.check_request(path)
            with contextlib.closing(open_to_render(saved)) as env:
                video.record(env, saved.actor(np.random.default_rng(0)), path)
        except (video.NoPictureError, ImportError, ValueError) as error:
            say(f"warning: there is no video: {error}")
            return None
        return path.read_bytes()
