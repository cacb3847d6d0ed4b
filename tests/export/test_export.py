"""Exported policies act as ours do, in their own runtimes and without JAX or Trellis."""

import dataclasses
import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

from trellis.cli.main import main
from trellis.config import EstimationConfig, PolicyConfig, TrainConfig
from trellis.export import ExportError, check, export_policy, numpy_format, numpy_policy, write
from trellis.export.build import build_program
from trellis.export.check import verify
from trellis.export.observations import random_observations
from trellis.export.program import input_arrays
from trellis.moments import Moments
from trellis.policies.build import build_policy
from trellis.policies.policy import Policy
from trellis.policies.saved import SavedPolicy
from trellis.spaces import moments_shape, observation_encoder

ROOT = Path(__file__).resolve().parents[2]
OLD_RUNS = ROOT / "tests" / "data" / "runs"
WITHOUT_US = """
import sys

class Blocked:
    def find_spec(self, name, *_):
        if name.split(".")[0] in ("jax", "jaxlib", "trellis"):
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Blocked())
import numpy as np
"""
"""Start of a program that can import neither JAX nor Trellis."""
VECTOR = spaces.Box(-np.inf, np.inf, (5,), np.float64)
PICTURE = spaces.Box(0, 255, (2, 22, 19), np.uint8)
COLOURS = spaces.Box(0, 255, (22, 19, 3), np.uint8)
LARGE = spaces.Box(0, 255, (2, 20, 140, 3), np.uint8)  # Two frames that are reduced.
TREE = spaces.Dict(
    {
        "place": spaces.Box(-1.0, 1.0, (2, 3), np.float32),
        "kind": spaces.Discrete(3, start=-1),
        "parts": spaces.Tuple((spaces.MultiDiscrete([2, 4]), spaces.MultiBinary(3))),
    }
)
CAMERAS = spaces.Dict(left=COLOURS, joints=VECTOR, right=PICTURE, kind=spaces.Discrete(3, start=1))
TORQUE = spaces.Box(-1.0, 1.0, (2,), np.float32)
ONE_SIDED = spaces.Box(np.array([-2.0, 0.0, -np.inf]), np.array([6.0, np.inf, 1.0]), (3,))
ACTIONS = {
    "mean": TORQUE,
    "stretched": spaces.Box(np.array([-3.0, 0.0]), np.array([5.0, 0.1]), (2,), np.float32),
    "one-sided": ONE_SIDED,
    "unbounded": spaces.Box(-np.inf, np.inf, (2, 2), np.float32),
    "double": spaces.Box(-0.4, 0.4, (3,), np.float64),
    "discrete": spaces.Discrete(5, start=2),
    "factored": spaces.MultiDiscrete([3, 3, 2]),
    "table": spaces.MultiDiscrete(np.array([[2, 3], [4, 2]]), start=np.array([[0, 1], [5, 0]])),
    "binary": spaces.MultiBinary(4),
    "mixed": spaces.Dict(
        move=spaces.Box(-2.0, 1.0, (2,), np.float32),
        tool=spaces.Tuple((spaces.Discrete(3, start=1), spaces.Box(-np.inf, np.inf, (1, 2)))),
        keys=spaces.MultiBinary(2),
    ),
    "pair": spaces.Tuple((spaces.Discrete(2), spaces.MultiDiscrete([3, 2]))),
}
OBSERVATIONS = {
    "vector": VECTOR,
    "picture": PICTURE,
    "colour picture": COLOURS,
    "large picture": LARGE,
    "tree": TREE,
    "masked": spaces.Dict(place=VECTOR, action_mask=spaces.MultiBinary(5)),
    "masked factors": spaces.Dict(
        place=VECTOR, action_mask=spaces.Box(0, 1, (8,), np.int8), rest=spaces.Discrete(2)
    ),
    "masked mixed": spaces.Dict(action_mask=spaces.MultiBinary(7), place=VECTOR),
    "cameras": CAMERAS,
    "masked picture": spaces.Dict(screen=PICTURE, action_mask=spaces.MultiBinary(5)),
    "masked cameras": spaces.Dict(**CAMERAS.spaces, action_mask=spaces.MultiBinary(7)),
}
GRU, LSTM = {"memory": "gru", "memory_units": 5}, {"memory": "lstm", "memory_units": 4}
CASES = [
    *(("vector", action, {}) for action in ACTIONS),
    *(("picture", action, {}) for action in ("mean", "discrete", "factored")),
    ("colour picture", "discrete", {}),
    ("large picture", "mean", {}),
    *(("tree", action, {}) for action in ("stretched", "table")),
    ("masked", "discrete", {}),
    ("masked factors", "factored", {}),
    ("vector", "mean", {"normalize_observations": False}),
    ("picture", "discrete", {"normalize_observations": False}),
    ("vector", "mean", {"hidden": (), "hidden_biases": False}),
    ("vector", "discrete", {"hidden": (7,), "hidden_biases": False}),
    ("vector", "mean", {"squashed_actions": True}),
    ("vector", "stretched", {"state_dependent_std": True}),
    ("vector", "stretched", {"squashed_actions": True, "state_dependent_std": True}),
    ("tree", "mixed", {"state_dependent_std": True}),
    ("masked mixed", "mixed", {}),
    ("masked mixed", "pair", {}),
    ("cameras", "mean", {}),
    ("cameras", "mixed", {}),
    ("cameras", "discrete", {"normalize_observations": False}),
    ("masked picture", "discrete", {}),
    ("masked cameras", "mixed", {}),
    ("vector", "mean", GRU),
    ("vector", "mean", LSTM),
    ("vector", "discrete", {**GRU, "hidden": ()}),
    ("picture", "discrete", GRU),
    ("cameras", "mixed", LSTM),
    ("masked", "discrete", GRU),
    ("masked cameras", "mixed", {**GRU, "state_dependent_std": True}),
]


def make(observation="vector", action="mean", options=None, seed=0):
    """A policy with random weights and random statistics."""
    options = dict(options or {})
    normalize = options.pop("normalize_observations", True)
    config = TrainConfig(
        "Test-v0",
        policy=PolicyConfig(
            **{"hidden": (8, 6), "channels": (4, 3), "output_scale": 1.0, **options}
        ),
        estimation=EstimationConfig(normalize_observations=normalize),
    )
    pair = OBSERVATIONS[observation], ACTIONS[action]
    policy = build_policy(config.policy, *pair)
    rng = np.random.default_rng(seed)
    shape = moments_shape(observation_encoder(pair[0])[0])
    scale, offset = (40.0, 100.0) if len(shape) == 2 else (2.0, 0.5)
    data = offset + scale * rng.standard_normal((200, *shape))
    if "camera" in observation or observation == "masked picture":  # Pixels, then features.
        data[:, : shape[0] - 8] = 100.0 + 40.0 * rng.standard_normal((200, shape[0] - 8))
    theta = policy.init(rng) + 0.1 * rng.standard_normal(policy.num_params).astype(np.float32)
    return SavedPolicy(policy, theta, Moments.of(data, shape), pair, config)


def name_of(case):
    observation, action, options = case
    return "-".join([observation, action, *map(str, options.values())])


@pytest.mark.parametrize(
    "case",
    [pytest.param(c, marks=[pytest.mark.slow] * (i % 8 > 0)) for i, c in enumerate(CASES)],
    ids=name_of,
)
def test_every_kind_of_policy_is_exported(case, tmp_path):
    saved = make(*case)
    done = export_policy(saved, tmp_path / "policy.npz", format="numpy")
    assert done.error <= 1e-5
    assert done.size == done.path.stat().st_size


def test_stablehlo(tmp_path):
    saved = make("tree", "table")
    done = export_policy(saved, tmp_path / "policy.stablehlo", format="stablehlo")
    assert done.error <= 1e-5
    import jax.export

    exported = jax.export.deserialize(bytearray(done.path.read_bytes()))
    assert set(exported.platforms) == {"cpu", "cuda", "tpu"}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_every_kind_of_policy_is_exported_as_stablehlo(case, tmp_path):
    done = export_policy(make(*case), tmp_path / "policy.stablehlo", format="stablehlo")
    assert done.error <= 1e-5


def run_without_us(script, *args):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_US + script, *map(str, args)],
        capture_output=True,
        text=True,
        env={"PATH": "", "PYTHONPATH": ""},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "cases", [CASES[1::8], pytest.param(CASES, marks=pytest.mark.slow)], ids=["an eighth", "all"]
)
def test_onnx_gives_our_actions_without_jax_and_trellis(cases, tmp_path):
    """Kinds of policies, run by one process that can import neither, for three steps each."""
    expected = {}
    for index, case in enumerate(cases):
        saved = make(*case, seed=index)
        export_policy(saved, tmp_path / f"{index}.onnx")
        program = build_program(saved)
        names = [part.name for part in program.inputs if part.name != "carry"]
        act, steps = saved.episode(deterministic=True), {}
        batches = itertools.islice(random_observations(saved, np.random.default_rng(5)), 3)
        for step, observation in enumerate(batches):
            arrays = input_arrays(program, observation, saved.policy.initial_carry(50))
            pairs = zip(names, arrays, strict=False)  # The process keeps the carry itself.
            steps |= {f"{step}/{name}": array for name, array in pairs}
            actions = act(observation)
            for part in program.outputs:
                value = actions
                for key in part.path:
                    value = value[key]
                if part.name != "next_carry":
                    expected[f"{index}/{step}/{part.name}"] = np.asarray(value)
        np.savez(tmp_path / f"{index}.npz", **steps)
    script = """
import onnxruntime
from pathlib import Path
folder, found = Path(sys.argv[1]), {}
for path in folder.glob("*.onnx"):
    session = onnxruntime.InferenceSession(path)
    shapes = {each.name: each.shape for each in session.get_inputs()}
    names = [each.name for each in session.get_outputs()]
    carry = {"carry": np.zeros((50, shapes["carry"][1]), np.float32)} if "carry" in shapes else {}
    with np.load(path.with_suffix(".npz")) as steps:
        for step in "012":
            inputs = {n[2:]: steps[n] for n in steps.files if n[0] == step}
            outputs = dict(zip(names, session.run(names, inputs | carry)))
            carry = {"carry": outputs.pop("next_carry")} if carry else {}
            found |= {f"{path.stem}/{step}/{n}": value for n, value in outputs.items()}
np.savez(folder / "found.npz", **found)
"""
    run_without_us(script, tmp_path)
    with np.load(tmp_path / "found.npz") as found:
        assert set(found.files) == set(expected)
        for name, actions in expected.items():
            assert found[name].dtype == actions.dtype
            message = f"{name} {cases[int(name.split('/')[0])]}"
            np.testing.assert_allclose(found[name], actions, 1e-5, 1e-5, err_msg=message)


def test_a_wrong_export_is_refused_and_nothing_is_written(tmp_path, monkeypatch):
    saved = make()
    wrong = dataclasses.replace(saved, theta=saved.theta + 1e-3)
    data = numpy_format.serialize(build_program(wrong), {})
    monkeypatch.setattr(numpy_format, "serialize", lambda *_: data)
    with pytest.raises(ExportError, match="differs from ours by"):
        export_policy(saved, tmp_path / "policy.npz", format="numpy")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("action", ["discrete", "factored", "mean"])
def test_the_check_finds_one_wrong_action(action):
    saved = make(action=action)
    program = build_program(saved)
    run = numpy_format.open_policy(numpy_format.serialize(program, {}), program)
    calls = []

    def wrong(arrays):
        (actions,) = run(arrays)
        calls.append(len(actions))
        if len(calls) == 7:
            actions[3] = np.where(actions[3] == 0, 1, 0) + (2 if action == "discrete" else 0)
        return [actions]

    assert verify(saved, program, run) < 1e-5
    with pytest.raises(ExportError, match="differs"):
        verify(saved, program, wrong)
    assert sum(calls) == check.OBSERVATIONS


@pytest.mark.parametrize("output", ["action.move", "action.tool.0", "action.keys", "next_carry"])
def test_the_check_finds_one_wrong_part(output):
    saved = make("vector", "mixed", GRU)
    program = build_program(saved)
    run = numpy_format.open_policy(numpy_format.serialize(program, {}), program)
    index = [part.name for part in program.outputs].index(output)

    def wrong(arrays):
        outputs = run(arrays)
        outputs[index] = outputs[index].copy()
        row = outputs[index][7:8]
        row += 1e-3 if row.dtype.kind == "f" else 1 - 2 * (row == row.max())
        return outputs

    assert verify(saved, program, run) < 1e-5
    with pytest.raises(ExportError, match="differs"):
        verify(saved, program, wrong)


def test_a_file_of_an_earlier_version_is_refused(tmp_path):
    np.savez(tmp_path / "policy.npz", inputs=np.array(["observation"]))
    with pytest.raises(ValueError, match="export it again"):
        numpy_policy.Policy(tmp_path / "policy.npz")


def test_the_exported_memory_matters(tmp_path):
    """The same observation gives other actions after other observations."""
    saved = make("vector", "mean", GRU)
    export_policy(saved, tmp_path / "policy.npz", format="numpy")
    policy = numpy_policy.Policy(tmp_path / "policy.npz")
    observation = np.ones((2, 5), np.float32)
    first = policy(observation, policy.initial_carry(2))
    second = policy(observation, first["next_carry"])
    assert np.abs(second["action"] - first["action"]).min() > 1e-4


def test_the_check_goes_beyond_the_limits():
    """Observations are within, around and far beyond the statistics."""
    saved = make()
    normalized = np.concatenate(
        [saved.normalizer(batch) for batch in random_observations(saved, np.random.default_rng(0))]
    )
    assert (np.abs(normalized) == 10).any(axis=0).all()
    assert (np.abs(normalized) < 1).mean() > 0.2


def test_a_policy_that_is_not_finite_is_refused(tmp_path):
    saved = make()
    broken = dataclasses.replace(saved, theta=np.full_like(saved.theta, np.nan))
    with pytest.raises(ExportError, match="finite"):
        export_policy(broken, tmp_path / "policy.npz", format="numpy")


def test_a_network_of_your_own_is_refused(tmp_path):
    saved = make()

    @dataclasses.dataclass(frozen=True)
    class Mine:
        inner: object

        def __getattr__(self, name):
            return getattr(object.__getattribute__(self, "inner"), name)

    mine = Policy(Mine(saved.policy.network), saved.policy.distribution)
    with pytest.raises(ExportError, match="class Mine"):
        export_policy(dataclasses.replace(saved, policy=mine), tmp_path / "policy.onnx")


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(write.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ExportError, match=r"pip install 'trellis-rl\[export\]'"):
        export_policy(make(), tmp_path / "policy.onnx")


def test_an_unknown_format_is_refused(tmp_path):
    with pytest.raises(ExportError, match="must be one of onnx, stablehlo, numpy"):
        export_policy(make(), tmp_path / "policy.x", format="torch")


@pytest.mark.parametrize(
    "run", ["cartpole", pytest.param("atari", marks=pytest.mark.slow), "hopper"]
)
def test_the_command_exports_runs(run, tmp_path, capsys):
    out = tmp_path / "policy.onnx"
    assert main(["export", str(OLD_RUNS / run), "--out", str(out)]) == 0
    assert "1,000 observations" in capsys.readouterr().out
    import onnx

    about = {entry.key: entry.value for entry in onnx.load(out).metadata_props}
    assert about["environment"] == SavedPolicy.load(OLD_RUNS / run).config.env


def test_the_command_names_what_is_wrong(tmp_path, capsys):
    run = str(OLD_RUNS / "cartpole")
    assert main(["export", run, "--out", str(tmp_path / "policy.onnx"), "--format", "numpy"]) == 2
    assert "ends in .npz" in capsys.readouterr().err
    assert main(["export", str(tmp_path)]) == 2
    assert "is not a run" in capsys.readouterr().err


def test_reading_a_run_imports_no_environment(tmp_path):
    script = f"""
import sys
from trellis.cli.main import main
code = main(["export", {str(OLD_RUNS / "hopper")!r}, "--format", "numpy", "--out", sys.argv[1]])
print(code, sorted({{"mujoco", "ale_py", "trellis.envs", "jax"}} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "policy.npz")],
        capture_output=True,
        text=True,
        env={"PATH": "", "PYTHONPATH": str(ROOT / "src")},
        check=False,
    )
    assert done.stdout.splitlines()[-1] == "0 []", done.stdout + done.stderr


def test_the_numpy_runner_needs_numpy_only(tmp_path):
    saved = make("tree", "table")
    export_policy(saved, tmp_path / "policy.npz", format="numpy")
    observation = next(iter(random_observations(saved, np.random.default_rng(2))))
    arrays = input_arrays(build_program(saved), observation)
    np.savez(tmp_path / "inputs.npz", *arrays)
    script = """
sys.path.insert(0, sys.argv[1])
from numpy_policy import Policy
policy = Policy(sys.argv[1] + "/policy.npz")
with np.load(sys.argv[1] + "/inputs.npz") as inputs:
    np.save(sys.argv[1] + "/actions.npy", policy(*inputs.values()))
print(policy.inputs)
"""
    names = run_without_us(script, tmp_path)
    assert "observation.parts.1" in names
    expected = saved.act(observation, deterministic=True)
    np.testing.assert_array_equal(np.load(tmp_path / "actions.npy"), expected)


def test_the_example_runs_without_us(tmp_path):
    export_policy(SavedPolicy.load(OLD_RUNS / "cartpole"), tmp_path / "policy.onnx")
    script = """
import runpy
example = runpy.run_path(sys.argv[1])
print(example["main"](sys.argv[2], episodes=1))
"""
    example = ROOT / "examples" / "run_exported_policy.py"
    out = run_without_us(script, example, tmp_path / "policy.onnx")
    assert float(out.splitlines()[-1]) >= 8
