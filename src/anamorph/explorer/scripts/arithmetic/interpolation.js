// Linear interpolation on periodic grids of 2 or 3 axes: pull, push, and what shooting needs of them.
//
// Fields are component after component, (components, *space), displacements (d, *space) in voxels.
// A row along the last axis is located first (`RowCells`): in which cells its points lie and where
// in them; loops over components then only read and weigh the corners.

/** Sizes of a grid: planes, rows and columns; a picture is a volume of one plane. */
export class Grid {
  constructor(space) {
    this.space = space;
    this.d = space.length;
    [this.nz, this.ny, this.nx] = this.d === 3 ? space : [1, ...space];
    this.plane = this.ny * this.nx;
    this.nVoxels = this.nz * this.plane;
  }
}

/** The cells in which the points x + scale * s(x) of a row lie. */
class RowCells {
  constructor(grid) {
    this.grid = grid;
    this.corner = Array.from({ length: 4 }, () => new Int32Array(grid.nx)); // within the plane
    this.before = new Int32Array(grid.nx); // first voxel of the plane before the point, and after
    this.after = new Int32Array(grid.nx);
    this.fy = new Float64Array(grid.nx);
    this.fx = new Float64Array(grid.nx);
    this.fz = new Float64Array(grid.nx);
  }

  locate(z, y, field, scale) {
    const { d, nz, ny, nx, plane, nVoxels } = this.grid;
    const { before, after, fy, fx, fz } = this, [a, b, c, e] = this.corner;
    const row = z * plane + y * nx, alongY = (d - 2) * nVoxels, alongX = (d - 1) * nVoxels;
    for (let x = 0; x < nx; x++) {
      const py = y + scale * field[alongY + row + x], px = x + scale * field[alongX + row + x];
      const floorY = Math.floor(py), floorX = Math.floor(px);
      fy[x] = py - floorY;
      fx[x] = px - floorX;
      const y0 = wrapped(floorY, ny), x0 = wrapped(floorX, nx);
      const y1 = y0 + 1 === ny ? 0 : y0 + 1, x1 = x0 + 1 === nx ? 0 : x0 + 1;
      a[x] = y0 * nx + x0;
      b[x] = y0 * nx + x1;
      c[x] = y1 * nx + x0;
      e[x] = y1 * nx + x1;
    }
    if (d === 2) return;
    for (let x = 0; x < nx; x++) {
      const pz = z + scale * field[row + x], floorZ = Math.floor(pz);
      const z0 = wrapped(floorZ, nz);
      fz[x] = pz - floorZ;
      before[x] = z0 * plane;
      after[x] = (z0 + 1 === nz ? 0 : z0 + 1) * plane;
    }
  }

  /** Write a component, from `start` on, at the located points, to out[to, to + nx). */
  pullRow(field, start, out, to) {
    const { before, after, fy, fx, fz } = this, [a, b, c, e] = this.corner, { nx, d } = this.grid;
    if (d === 2) {
      for (let x = 0; x < nx; x++) {
        const p = field[start + a[x]], q = field[start + b[x]];
        const r = field[start + c[x]], s = field[start + e[x]];
        const upper = p + fx[x] * (q - p), lower = r + fx[x] * (s - r);
        out[to + x] = upper + fy[x] * (lower - upper);
      }
      return;
    }
    for (let x = 0; x < nx; x++) {
      const i = start + before[x], j = start + after[x], f = fx[x], g = fy[x];
      let p = field[i + a[x]], r = field[i + c[x]];
      let upper = p + f * (field[i + b[x]] - p), lower = r + f * (field[i + e[x]] - r);
      const near = upper + g * (lower - upper);
      p = field[j + a[x]];
      r = field[j + c[x]];
      upper = p + f * (field[j + b[x]] - p);
      lower = r + f * (field[j + e[x]] - r);
      const far = upper + g * (lower - upper);
      out[to + x] = near + fz[x] * (far - near);
    }
  }

  /** Add values of a row, shared out among corners, to a component: the transpose of `pullRow`. */
  pushRow(values, out, start) {
    const { before, after, fy, fx, fz } = this, [a, b, c, e] = this.corner, { nx, d } = this.grid;
    for (let x = 0; x < nx; x++) {
      const value = values[x], f = fx[x], g = fy[x];
      const far = d === 2 ? 0 : fz[x] * value, near = value - far;
      const i = d === 2 ? start : start + before[x];
      let lower = g * near, upper = near - lower;
      out[i + a[x]] += upper - f * upper;
      out[i + b[x]] += f * upper;
      out[i + c[x]] += lower - f * lower;
      out[i + e[x]] += f * lower;
      if (d === 2) continue;
      const j = start + after[x];
      lower = g * far;
      upper = far - lower;
      out[j + a[x]] += upper - f * upper;
      out[j + b[x]] += f * upper;
      out[j + c[x]] += lower - f * lower;
      out[j + e[x]] += f * lower;
    }
  }
}

/** Warps on one grid; keeps the room that they need. */
export class Warper {
  constructor(grid) {
    this.grid = grid;
    this.cells = new RowCells(grid);
    this.values = new Float64Array(grid.nx);
  }

  /** Fill `out` with fields of n components at x + displacement(x). */
  pull(fields, n, displacement, out) {
    const { nz, ny, nx, plane, nVoxels } = this.grid, cells = this.cells;
    for (let z = 0; z < nz; z++) {
      for (let y = 0; y < ny; y++) {
        cells.locate(z, y, displacement, 1);
        const row = z * plane + y * nx;
        for (let c = 0; c < n; c++) cells.pullRow(fields, c * nVoxels, out, c * nVoxels + row);
      }
    }
  }

  /** Fill `out` with psi o (id - step * v), as displacements. */
  compose(displacement, velocity, step, out) {
    const { nz, ny, nx, plane, nVoxels, d } = this.grid, cells = this.cells;
    for (let z = 0; z < nz; z++) {
      for (let y = 0; y < ny; y++) {
        cells.locate(z, y, velocity, -step);
        for (let i = 0; i < d; i++) {
          const row = i * nVoxels + z * plane + y * nx;
          cells.pullRow(displacement, i * nVoxels, out, row);
          for (let x = row; x < row + nx; x++) out[x] -= step * velocity[x];
        }
      }
    }
  }

  /** Fill `out` with push(D(id - step * v)' u, id + step * v). */
  carry(momentum, velocity, step, out) {
    const { nz, ny, nx, plane, nVoxels, d } = this.grid, { cells, values } = this;
    out.fill(0);
    for (let z = 0; z < nz; z++) {
      for (let y = 0; y < ny; y++) {
        cells.locate(z, y, velocity, step);
        const row = z * plane + y * nx;
        for (let j = 0; j < d; j++) {
          for (let x = 0; x < nx; x++) values[x] = momentum[j * nVoxels + row + x];
          for (let i = 0; i < d; i++) this.turnRow(z, y, i, j, momentum, velocity, step);
          cells.pushRow(values, out, j * nVoxels);
        }
      }
    }
  }

  /** Take step * (d_j v_i) u_i from the values of a row. */
  turnRow(z, y, i, j, momentum, velocity, step) {
    const { nz, ny, nx, plane, nVoxels, d } = this.grid, values = this.values;
    const start = i * nVoxels, row = start + z * plane + y * nx, factor = 0.5 * step;
    if (j === d - 1) {
      for (let x = 0; x < nx; x++) {
        const after = velocity[row + (x + 1 === nx ? 0 : x + 1)];
        const before = velocity[row + (x === 0 ? nx - 1 : x - 1)];
        values[x] -= factor * (after - before) * momentum[row + x];
      }
      return;
    }
    const [position, length, stride] = j === d - 2 ? [y, ny, nx] : [z, nz, plane];
    const after = row + (position + 1 === length ? 1 - length : 1) * stride;
    const before = row + (position === 0 ? length - 1 : -1) * stride;
    for (let x = 0; x < nx; x++) {
      values[x] -= factor * (velocity[after + x] - velocity[before + x]) * momentum[row + x];
    }
  }
}

/** Fill `out`, (n, *to), with fields (n, *from) of the same periodic box, times a factor each. */
export function resample(fields, n, from, to, factors, out) {
  const source = new Grid(from), target = new Grid(to);
  const [zs, ys, xs] = ["nz", "ny", "nx"].map((name) => placesAlong(source[name], target[name]));
  for (let c = 0, place = 0; c < n; c++) {
    const start = c * source.nVoxels, factor = factors[c];
    const at = (z, y, x) => fields[start + z * source.plane + y * source.nx + x];
    for (let z = 0; z < target.nz; z++) {
      for (let y = 0; y < target.ny; y++) {
        const z0 = zs.before[z], z1 = zs.after[z], fz = zs.fraction[z];
        const y0 = ys.before[y], y1 = ys.after[y], fy = ys.fraction[y];
        for (let x = 0; x < target.nx; x++, place++) {
          const x0 = xs.before[x], x1 = xs.after[x], fx = xs.fraction[x];
          const near = between4(at(z0, y0, x0), at(z0, y0, x1), at(z0, y1, x0), at(z0, y1, x1), fy, fx);
          const far = fz === 0 ? near
            : between4(at(z1, y0, x0), at(z1, y0, x1), at(z1, y1, x0), at(z1, y1, x1), fy, fx);
          out[place] = factor * (near + fz * (far - near));
        }
      }
    }
  }
}

function placesAlong(from, to) {
  const before = new Int32Array(to), after = new Int32Array(to), fraction = new Float64Array(to);
  for (let i = 0; i < to; i++) {
    const x = (i * from) / to;
    before[i] = Math.floor(x);
    after[i] = (before[i] + 1) % from;
    fraction[i] = x - before[i];
  }
  return { before, after, fraction };
}

function between4(a, b, c, d, fy, fx) {
  const upper = a + fx * (b - a), lower = c + fx * (d - c);
  return upper + fy * (lower - upper);
}

function wrapped(i, n) {
  return i >= 0 && i < n ? i : ((i % n) + n) % n;
}
