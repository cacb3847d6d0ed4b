"""Several devices give what one gives, and send what does not depend on the samples."""

import json
import os
import subprocess
import sys

import pytest

from trellis.training.collectives import Collective, collectives, sent_per_iteration

TEXT = """
  %a = f32[10]{0} all-reduce(%x), to_apply=%add, metadata={op_name="jit(f)/step/while/body/psum"}
  %b = (f32[], f32[4]{0}) all-reduce-start(%y, %z), metadata={op_name="jit(f)/estimation/psum"}
  %c = f32[10]{0} add(%a, %a), metadata={op_name="jit(f)/sampling/add"}
"""


def test_collectives_are_read_from_a_program():
    found = collectives(TEXT)
    assert found == [
        Collective("all-reduce", 40, "jit(f)/step/while/body/psum"),
        Collective("all-reduce", 20, "jit(f)/estimation/psum"),
    ]
    assert [each.in_loop for each in found] == [True, False]
    assert not any(each.in_sampling for each in found)
    assert sent_per_iteration(found, cg_iterations=10, evaluations=3) == (11, 420)


@pytest.mark.slow
def test_eight_devices_agree_with_one():
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.training.devices_program"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    assert answers["float32"] < 1e-3
    assert answers["float64"] < 1e-9
    assert answers["run"] < 1e-3
    assert answers["resumes"]
    assert answers["independent"]
    assert answers["named"]
    assert answers["in_sampling"] == 0
    assert answers["collectives"] > 10
