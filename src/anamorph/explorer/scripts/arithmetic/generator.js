// The generative model of an image: latents z -> appearance a and warp psi -> expected image.
//
//     a = mu + Wa z,   psi = shoot(Wv z),   image = link(a(psi))
//
// Bases may be stored on a coarser grid than the image has. A preview shoots on a grid with half as
// many voxels along each axis, and only its displacement is brought onto the grid of the image.
import { Grid, Warper, resample } from "./interpolation.js";
import { applyLink } from "./links.js";
import { Shooting } from "./shooting.js";

/** Return half as many voxels along every axis. */
export function halved(space) {
  return space.map((length) => Math.max(1, Math.round(length / 2)));
}

/** Return fields that are sums of the columns of a basis, each weighted by its latent. */
export function combine(basis, weights, size) {
  const sum = new Float64Array(size);
  weights.forEach((weight, k) => {
    if (weight === 0) return;
    const column = basis[k];
    for (let i = 0; i < size; i++) sum[i] += weight * column[i];
  });
  return sum;
}

/** What a model says of images with given latents. */
export class Generator {
  /**
   * facts: space, voxelSize, likelihood, nChannels, penalty, nSteps, modes [{appearance, shape}],
   * where each is a column of a basis or null. mean: (C, *space). appearance, shape: arrays of
   * columns (C, *space) and (d, *space).
   */
  constructor(facts, mean, appearance, shape) {
    this.facts = facts;
    this.mean = mean;
    this.appearanceBasis = appearance;
    this.shapeBasis = shape;
    this.grid = new Grid(facts.space);
    this.warper = new Warper(this.grid);
    this.shooting = {};
  }

  /** Return the expected image and the displacement (null without a warp) of latents z. */
  picture(z, part = "both", resolution = "full") {
    const displacement = part === "appearance" ? null : this.displacement(z, resolution);
    const appearance = this.appearance(part === "shape" ? z.map(() => 0) : z);
    let image = appearance;
    if (displacement) {
      image = new Float32Array(appearance.length);
      this.warper.pull(appearance, this.facts.nChannels, displacement, image);
    }
    applyLink(this.facts.likelihood, image, this.facts.nChannels);
    return { image, displacement };
  }

  /** Return a = mu + Wa z, (C, *space). */
  appearance(z) {
    const sum = combine(this.appearanceBasis, this.weights(z, "appearance"), this.mean.length);
    const { mean } = this, appearance = new Float32Array(mean.length);
    for (let i = 0; i < mean.length; i++) appearance[i] = mean[i] + Math.fround(sum[i]);
    return appearance;
  }

  /** Return the displacement of psi = shoot(Wv z), (d, *space); null if nothing moves. */
  displacement(z, resolution) {
    const { d, nVoxels, space } = this.grid, weights = this.weights(z, "shape");
    if (weights.length === 0) return null;
    const coarse = resolution === "full" ? space : halved(space);
    const shooting = (this.shooting[resolution] ??= this.makeShooting(coarse));
    const basis = resolution === "full" ? this.shapeBasis : (this.coarseBasis ??= this.halvedBasis(coarse));
    const velocity = combine(basis, weights, d * shooting.grid.nVoxels);
    const displacement = shooting.shoot(velocity);
    if (coarse === space) return displacement;
    const fine = new Float32Array(d * nVoxels);
    resample(displacement, d, coarse, space, space.map((n, i) => n / coarse[i]), fine);
    return fine;
  }

  makeShooting(space) {
    const { penalty, voxelSize, nSteps } = this.facts;
    const sizes = voxelSize.map((size, i) => (size * this.grid.space[i]) / space[i]);
    return new Shooting(space, penalty, sizes, nSteps);
  }

  /** Return the shape basis on a coarser grid, in voxels of that grid. */
  halvedBasis(coarse) {
    const { d, space } = this.grid, size = d * coarse.reduce((a, b) => a * b, 1);
    const factors = space.map((n, i) => coarse[i] / n);
    return this.shapeBasis.map((column) => {
      const out = new Float32Array(size);
      resample(column, d, space, coarse, factors, out);
      return out;
    });
  }

  /** Return the latents of the columns of a basis. */
  weights(z, basis) {
    const weights = [];
    this.facts.modes.forEach((mode, k) => {
      if (mode[basis] !== null) weights[mode[basis]] = z[k];
    });
    return weights;
  }
}
