// What a warp does at every voxel: how far it moves, and how much it changes volumes.

/** Return the length of the displacement at each voxel, in the units of the voxel size. */
export function displacementLengths(displacement, grid, voxelSize) {
  const { d, nVoxels } = grid, lengths = new Float32Array(nVoxels);
  for (let x = 0; x < nVoxels; x++) {
    let sum = 0;
    for (let i = 0; i < d; i++) sum += (voxelSize[i] * displacement[i * nVoxels + x]) ** 2;
    lengths[x] = Math.sqrt(sum);
  }
  return lengths;
}

/** Return -ln |D psi|: positive where the image is larger than the mean; NaN where psi folds. */
export function logGrowth(displacement, grid) {
  const { d, nz, ny, nx, plane, nVoxels } = grid, growth = new Float32Array(nVoxels);
  const lengths = d === 3 ? [nz, ny, nx] : [ny, nx], strides = d === 3 ? [plane, nx, 1] : [nx, 1];
  const jacobian = new Float64Array(d * d), position = new Array(d);
  for (let x = 0; x < nVoxels; x++) {
    for (let j = 0; j < d; j++) position[j] = Math.floor(x / strides[j]) % lengths[j];
    for (let j = 0; j < d; j++) {
      const after = x + (position[j] + 1 === lengths[j] ? 1 - lengths[j] : 1) * strides[j];
      const before = x + (position[j] === 0 ? lengths[j] - 1 : -1) * strides[j];
      for (let i = 0; i < d; i++) {
        const start = i * nVoxels;
        jacobian[i * d + j] = (i === j) + 0.5 * (displacement[start + after] - displacement[start + before]);
      }
    }
    growth[x] = -Math.log(determinant(jacobian, d));
  }
  return growth;
}

function determinant(m, d) {
  if (d === 2) return m[0] * m[3] - m[1] * m[2];
  return (
    m[0] * (m[4] * m[8] - m[5] * m[7]) - m[1] * (m[3] * m[8] - m[5] * m[6]) + m[2] * (m[3] * m[7] - m[4] * m[6])
  );
}
