"""The centre of mass of a planar body, such as the hopper, from its joint angles.

Each link turns about the y axis, by the sum of the angles before it. With R(φ) a rotation about y,
p_b the place of a link's hinge in its parent, h_b the hinge and c_b the centre of mass in the link,

    hinge_b = origin_parent + R(φ_parent)·p_b        φ_b = φ_parent + angle_b
    origin_b = hinge_b − R(φ_b)·h_b                  centre_b = origin_b + R(φ_b)·c_b
"""

from typing import Any

import numpy as np

from trellis.envs.mujoco.task import Values

COLUMNS = 9
"""Numbers that describe a link."""


def planar_links(model: Any) -> Values:
    """Return the links of a planar body, (links, `COLUMNS`), whose first joints are x, z and y.

    Columns: index of the parent, sign of the hinge, x and z of p, h and c, and mass.
    """
    rows = []
    for body in range(1, model.nbody):
        joint = model.body_jntadr[body] + model.body_jntnum[body] - 1  # The hinge comes last.
        hinge, place = model.jnt_pos[joint], model.body_pos[body]
        parent = model.body_parentid[body] - 1
        centre, axis = model.body_ipos[body], model.jnt_axis[joint]
        place = np.zeros(3) if parent < 0 else place + hinge
        vectors = [vector[i] for vector in (place, hinge, centre) for i in (0, 2)]
        rows.append([parent, axis[1], *vectors, model.body_mass[body]])
    return np.array(rows)


def centre_of_mass(qpos: Values, links: Values) -> Values:
    """Return the x coordinate of the centre of mass, up to a constant, of each row of `qpos`."""
    angles, origins, total = [], [], 0.0
    for index, (parent, sign, px, pz, hx, hz, cx, cz, mass) in enumerate(links):
        angle, hinge = sign * qpos[:, 2 + index], qpos[:, 0]
        if parent >= 0:
            before = angles[int(parent)]
            hinge = origins[int(parent)] + np.cos(before) * px + np.sin(before) * pz
            angle = before + angle
        origin = hinge - np.cos(angle) * hx - np.sin(angle) * hz
        total = total + mass * (origin + np.cos(angle) * cx + np.sin(angle) * cz)
        angles.append(angle)
        origins.append(origin)
    return total / links[:, -1].sum()
