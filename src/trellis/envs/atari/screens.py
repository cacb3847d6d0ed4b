"""From an Atari screen to what a policy sees: three protocols, each by its own name.

| name | who | frame |
|---|---|---|
| `paper` | the paper's 33,500 parameters come out for it | 52×40, means of 4×4 blocks |
| `mnih-2013` | Mnih et al. 2013, whom the paper follows | 110×84, cropped to 84×84 |
| `gymnasium` | Gymnasium's wrapper, after Mnih et al. 2015 | 84×84, maximum of two screens |

All are of grayscale bytes. The maximum undoes the flicker of sprites that are drawn in every other
frame only; the other two show the last screen as it is. `AtariGame` is all that a game depends on
besides seeds and actions. Nothing here knows of JAX: the emulators' processes load it.
"""

from dataclasses import dataclass
from typing import Any, Literal

Actions = Literal["minimal", "full", "factored"]

MOST_FRAMES = 108_000
"""Half an hour of play, as in Gymnasium's ids."""
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
"""Games whose saved state leaves out what their future depends on, in ale-py 0.12.1 (upstream's
pull requests 732 and 739, and what we found when we tried all games): restored ones go wrong, and
Q*bert may even write outside its memory. These are put back by playing the episode again from its
seed, which is exact and takes its time."""
RELOADED = ("miniature_golf", "pitfall2", "yars_revenge")
"""Of these, the ones that a reset does not bring back to the start either: the game is loaded
anew."""


@dataclass(frozen=True)
class Preprocessing:
    """How a screen (210×160, or the few rows more of some games) becomes a frame."""

    height: int
    width: int
    pools: bool = False
    """Whether the maximum of the last two screens is shown."""
    middle: int | None = None
    """Rows of the screen that are used; all by default."""
    whole: int | None = None
    """Rows that these are shrunk to, of which the frame is a part; the frame's by default."""
    above: int = 0
    """How many of them are above the frame."""


PREPROCESSINGS = {
    # 210 = 1 + 52·4 + 1; taller screens are of a few games that the paper has not played.
    "paper": Preprocessing(52, 40, middle=208),
    "mnih-2013": Preprocessing(84, 84, whole=110, above=18),
    "gymnasium": Preprocessing(84, 84, pools=True),
}


@dataclass(frozen=True)
class AtariGame:
    """A game and the rules that it is played by."""

    rom: str
    """As ale-py spells it: space_invaders."""
    preprocessing: str = "gymnasium"
    """paper, mnih-2013 or gymnasium."""
    action_repeat: int | None = None
    """Frames that an action is held for, of which the agent sees the last. Four, but three in
    Space Invaders by `paper` and `mnih-2013`: its shots blink and would be invisible (Mnih et al.
    2013)."""
    frame_stack: int = 4
    """Frames in an observation, the newest last."""
    noop_max: int = 30
    """An episode starts after 1 to so many frames of doing nothing, drawn from its seed (Mnih et
    al. 2015); 0 for none. The emulator itself draws no random numbers: without these, and without
    sticky actions, all episodes start alike whatever their seed."""
    sticky_actions: float = 0.0
    """The probability, frame by frame, that the emulator goes on with the action before (Machado et
    al. 2018)."""
    end_on_lost_life: bool = False
    """Terminate with every lost life instead of with the game."""
    max_frames: int = MOST_FRAMES
    """After which a game is truncated."""
    mode: int | None = None
    """Of the game, where it has several."""
    difficulty: int | None = None
    """Likewise."""

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
        if self.noop_max < 0:
            raise ValueError(f"noop_max must be 0 or more, got {self.noop_max}")
        if not 0 <= self.sticky_actions < 1:
            raise ValueError(f"sticky_actions must be in [0, 1), got {self.sticky_actions}")
        if not 1 <= self.max_frames <= MOST_FRAMES:
            raise ValueError(f"max_frames must be 1 to {MOST_FRAMES}, got {self.max_frames}")

    @property
    def repeat(self) -> int:
        """Frames that an action is held for."""
        if self.action_repeat is not None:
            return self.action_repeat
        blinks = self.rom == "space_invaders" and self.preprocessing != "gymnasium"
        return 3 if blinks else 4

    @property
    def most_steps(self) -> int:
        """Of an episode."""
        return -(-self.max_frames // self.repeat)

    @property
    def seen(self) -> Preprocessing:
        """What a screen goes through."""
        return PREPROCESSINGS[self.preprocessing]

    @property
    def observation_shape(self) -> tuple[int, int, int]:
        """(frames, height, width)."""
        return self.frame_stack, self.seen.height, self.seen.width

    @property
    def is_replayed(self) -> bool:
        """Whether its states are put back by playing again."""
        return self.rom in REPLAYED


def emulator(game: AtariGame) -> Any:
    """A new emulator with the game in it, at its start."""
    import ale_py
    from ale_py import roms

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.setInt("random_seed", 0)
    ale.setFloat("repeat_action_probability", 0.0)
    ale.setInt("max_num_frames_per_episode", game.max_frames)
    load(ale, game, roms.get_rom_path(game.rom))
    return ale


def load(ale: Any, game: AtariGame, path: Any) -> None:
    """Puts the game into the emulator, anew if it is there already."""
    ale.loadROM(path)
    if game.mode is not None:
        ale.setMode(game.mode)
    if game.difficulty is not None:
        ale.setDifficulty(game.difficulty)
    ale.reset_game()
