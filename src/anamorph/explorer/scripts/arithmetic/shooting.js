// Geodesic shooting: from an initial velocity to the displacement of the diffeomorphism psi.
//
//     u = L v;  psi = id - v/T
//     repeat T - 1 times:
//         u = push(D(id - v/T)' u, id + v/T)
//         v = G u
//         psi = psi o (id - v/T)
//
// The total of v stays the same along the path. It is kept, not recomputed: G would multiply what
// rounding does to the total of u by 1/w0.
import { RealTransform } from "./fft.js";
import { Grid, Warper } from "./interpolation.js";
import { operatorSymbols } from "./symbols.js";

/** Shooting on one grid; keeps its symbols and its room. */
export class Shooting {
  constructor(space, penalty, voxelSize, nSteps) {
    this.grid = new Grid(space);
    this.nSteps = nSteps;
    this.isPenalised = penalty[0] > 0;
    this.transform = new RealTransform(space);
    this.symbols = operatorSymbols(space, penalty, voxelSize);
    this.warper = new Warper(this.grid);
    const size = this.grid.d * this.grid.nVoxels;
    this.velocity = new Float32Array(size);
    this.momentum = new Float32Array(size);
    this.spare = new Float32Array(size);
    const n = this.transform.nFrequencies;
    this.re = Array.from({ length: this.grid.d }, () => new Float32Array(n));
    this.im = Array.from({ length: this.grid.d }, () => new Float32Array(n));
  }

  /** Return the displacement, (d, *space) in voxels, of an initial velocity. */
  shoot(initial) {
    const { velocity, momentum, spare, warper, symbols, nSteps } = this, step = 1 / nSteps;
    velocity.set(initial);
    const totals = this.totals(initial);
    this.multiply(symbols.operator, velocity, momentum, null);
    let displacement = Float32Array.from(velocity, (v) => -step * v);
    let next = new Float32Array(displacement.length);
    for (let n = 1; n < nSteps; n++) {
      warper.carry(momentum, velocity, step, spare);
      momentum.set(spare);
      this.multiply(symbols.inverse, momentum, velocity, totals);
      warper.compose(displacement, velocity, step, next);
      [displacement, next] = [next, displacement];
    }
    return displacement;
  }

  /** Return the sum over space of each component. */
  totals(fields) {
    const { d, nVoxels } = this.grid;
    return Array.from({ length: d }, (_, i) => {
      let total = 0;
      for (let x = i * nVoxels; x < (i + 1) * nVoxels; x++) total += fields[x];
      return this.isPenalised ? total : 0;
    });
  }

  /** Multiply fields by a symbol; `totals` are those of the result, where they are known. */
  multiply(symbol, fields, out, totals) {
    const { transform, re, im } = this, { d, nVoxels } = this.grid;
    for (let i = 0; i < d; i++) transform.forward(fields, i * nVoxels, re[i], im[i]);
    const n = transform.nFrequencies;
    for (const part of [re, im]) {
      if (d === 2) multiply2(symbol, n, part[0], part[1]);
      else multiply3(symbol, n, part[0], part[1], part[2]);
    }
    for (let i = 0; i < d; i++) {
      if (totals) {
        re[i][0] = totals[i] / nVoxels;
        im[i][0] = 0;
      }
      transform.inverse(re[i], im[i], out, i * nVoxels);
    }
  }
}

function multiply2(s, n, a, b) {
  for (let f = 0; f < n; f++) {
    const x = a[f], y = b[f], xy = s[2 * n + f];
    a[f] = s[f] * x + xy * y;
    b[f] = xy * x + s[n + f] * y;
  }
}

function multiply3(s, n, a, b, c) {
  for (let f = 0; f < n; f++) {
    const x = a[f], y = b[f], z = c[f];
    const xy = s[3 * n + f], xz = s[4 * n + f], yz = s[5 * n + f];
    a[f] = s[f] * x + xy * y + xz * z;
    b[f] = xy * x + s[n + f] * y + yz * z;
    c[f] = xz * x + yz * y + s[2 * n + f] * z;
  }
}
