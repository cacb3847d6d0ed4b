"""Defines Atari games, their rules, and three ways to preprocess their screens (Sec. 8.2).

| name | source | frame |
|---|---|---|
| `paper` | matches the paper's 33,500 parameters | 52×40, means of 4×4 blocks |
| `mnih-2013` | Mnih et al. 2013, which the paper follows | 110×84, cropped to 84×84 |
| `gymnasium` | Gymnasium's wrapper, after Mnih et al. 2015 | 84×84, maximum of two screens |

All frames are grayscale bytes. The maximum of two screens removes the flicker of sprites that are
visible in every other screen only; the other two preprocessings show the last screen unchanged.
`AtariGame` is everything that a game depends on, except seeds and actions. This module does not
import JAX, because worker processes load it.
"""

from dataclasses import dataclass
from typing import Any

MOST_NOOPS = 1000
"""Largest number of screens without action at the start."""
MOST_FRAMES = 108_000
"""Length of the longest episode in screens: half an hour of play, as in Gymnasium's ids."""
REPLAYED = (
    "amidar",
    "koolaid",
    "miniature_golf",
    "pitfall2",
    "qbert",
    "tetris",
    "trondead",
    "yars_revenge",
)
"""Games whose emulator state is incomplete in ale-py 0.12.1, according to upstream's pull requests
732 and 739 and a test of all games. A restored game would continue differently, and Q*bert may even
write outside its memory. These games are restored by replaying the episode from its seed, which is
exact but slow."""
RELOADED = ("miniature_golf", "pitfall2", "yars_revenge")
"""Replayed games that a reset does not return to their start, so that their ROM is loaded again."""


@dataclass(frozen=True)
class Preprocessing:
    """Conversion of a screen (210×160, a few rows more in some games) to a frame."""

    height: int
    """Height of the frame."""
    width: int
    """Width of the frame."""
    pools: bool = False
    """Whether a frame shows the maximum of the last two screens."""
    middle: int | None = None
    """Number of rows of the screen that are used, centred; all by default."""
    whole: int | None = None
    """Number of rows after shrinking, before cropping; the height of the frame by default."""
    above: int = 0
    """Number of rows that are cropped above the frame."""


PREPROCESSINGS = {
    # 210 = 1 + 52·4 + 1. A few games that are not in the paper have taller screens.
    "paper": Preprocessing(52, 40, middle=208),
    "mnih-2013": Preprocessing(84, 84, whole=110, above=18),
    "gymnasium": Preprocessing(84, 84, pools=True),
}


@dataclass(frozen=True)
class AtariGame:
    """Atari game and its rules."""

    rom: str
    """Name of the game in ale-py, such as space_invaders."""
    preprocessing: str = "gymnasium"
    """Name of the preprocessing: paper, mnih-2013 or gymnasium."""
    action_repeat: int | None = None
    """Number of screens that an action is repeated for; the agent sees the last one. Default: 4,
    but 3 in Space Invaders with `paper` and `mnih-2013`, because its shots blink and would be
    invisible (Mnih et al. 2013)."""
    frame_stack: int = 4
    """Number of frames in an observation; the newest is last."""
    noop_max: int = 30
    """Largest number of screens without action at the start of an episode (Mnih et al. 2015); 0 for
    none. The seed determines a number from 1 to `noop_max`. The emulator is deterministic: without
    these screens and without sticky actions, all episodes start in the same way."""
    sticky_actions: float = 0.0
    """Probability per screen that the previous action is repeated (Machado et al. 2018)."""
    end_on_lost_life: bool = False
    """Whether an episode terminates with every lost life instead of with the game."""
    max_frames: int = MOST_FRAMES
    """Number of screens after which a game is truncated."""
    mode: int | None = None
    """Mode of the game, if it has several; None for the default."""
    difficulty: int | None = None
    """Difficulty of the game, if it has several; None for the default."""

    def __post_init__(self):
        if self.preprocessing not in PREPROCESSINGS:
            raise ValueError(
                f"preprocessing must be one of {', '.join(PREPROCESSINGS)},"
                f" got {self.preprocessing!r}"
            )
        if self.action_repeat is not None and not 1 <= self.action_repeat <= 13:
            raise ValueError(f"action_repeat must be 1 to 13, got {self.action_repeat}")
        if not 1 <= self.frame_stack <= 16:
            raise ValueError(f"frame_stack must be 1 to 16, got {self.frame_stack}")
        if not 0 <= self.noop_max <= MOST_NOOPS:
            raise ValueError(f"noop_max must be 0 to {MOST_NOOPS}, got {self.noop_max}")
        if not 0 <= self.sticky_actions < 1:
            raise ValueError(f"sticky_actions must be in [0, 1), got {self.sticky_actions}")
        if not 1 <= self.max_frames <= MOST_FRAMES:
            raise ValueError(f"max_frames must be 1 to {MOST_FRAMES}, got {self.max_frames}")

    @property
    def repeat(self) -> int:
        """Number of screens that an action is repeated for."""
        if self.action_repeat is not None:
            return self.action_repeat
        blinks = self.rom == "space_invaders" and self.preprocessing != "gymnasium"
        return 3 if blinks else 4

    @property
    def most_steps(self) -> int:
        """Number of steps of the longest episode."""
        return -(-self.max_frames // self.repeat)

    @property
    def frame(self) -> Preprocessing:
        """Preprocessing that converts a screen to a frame."""
        return PREPROCESSINGS[self.preprocessing]

    @property
    def observation_shape(self) -> tuple[int, int, int]:
        """Shape of an observation, (frames, height, width)."""
        return self.frame_stack, self.frame.height, self.frame.width

    @property
    def is_replayed(self) -> bool:
        """Whether snapshots are restored by replaying the episode."""
        return self.rom in REPLAYED


def emulator(game: AtariGame) -> Any:
    """Return a new emulator with the game loaded, at its start."""
    import ale_py
    from ale_py import roms

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.setInt("random_seed", 0)
    ale.setFloat("repeat_action_probability", 0.0)
    ale.setInt("max_num_frames_per_episode", game.max_frames)
    load_rom(ale, game, roms.get_rom_path(game.rom))
    return ale


def load_rom(ale: Any, game: AtariGame, path: Any) -> None:
    """Load the ROM into the emulator, even if it is already loaded."""
    ale.loadROM(path)
    if game.mode is not None:
        ale.setMode(game.mode)
    if game.difficulty is not None:
        ale.setDifficulty(game.difficulty)
    ale.reset_game()
