// The operator L of velocities and its inverse G as symbols: d x d matrices at every frequency.
//
// With k_i the angular frequency along axis i, h_i the voxel size, e_i = (2 - 2 cos k_i) / h_i^2 and
// lap = sum_i e_i, component (i, i) is h_i^2 [w0 + w1 lap + w2 lap^2 + w3 (lap + e_i) + w4 e_i], and
// component (i, j) is (w3 + w4) sin k_i sin k_j. Matrices are packed: the diagonal first, then 12,
// 13, 23. All are computed in float64: in float32, w0 would be lost in w2.

/** Return the symbols of L and G, divided by the number of voxels, at the frequencies kept. */
export function operatorSymbols(space, penalty, voxelSize) {
  const d = space.length, nPacked = (d * (d + 1)) / 2;
  const nVoxels = space.reduce((a, b) => a * b, 1);
  const lengths = [...space.slice(0, -1), Math.floor(space[d - 1] / 2) + 1];
  const nFrequencies = lengths.reduce((a, b) => a * b, 1);
  const operator = new Float32Array(nPacked * nFrequencies);
  const inverse = new Float32Array(nPacked * nFrequencies);
  const place = new Array(d).fill(0), matrix = new Array(nPacked), inverted = new Array(nPacked);
  for (let f = 0; f < nFrequencies; f++) {
    fillSymbol(matrix, place, space, penalty, voxelSize);
    invertPacked(matrix, inverted);
    for (let p = 0; p < nPacked; p++) {
      operator[p * nFrequencies + f] = matrix[p] / nVoxels;
      inverse[p * nFrequencies + f] = inverted[p] / nVoxels;
    }
    for (let axis = d - 1; axis >= 0 && ++place[axis] === lengths[axis]; axis--) place[axis] = 0;
  }
  return { operator, inverse, nFrequencies };
}

function fillSymbol(matrix, place, space, [w0, w1, w2, w3, w4], voxelSize) {
  const d = space.length;
  const angles = place.map((k, i) => (2 * Math.PI * k) / space[i]);
  const second = angles.map((k, i) => ((2 * Math.sin(k / 2)) / voxelSize[i]) ** 2);
  const lap = second.reduce((a, b) => a + b, 0);
  const scalar = w0 + w1 * lap + w2 * lap * lap;
  for (let i = 0, p = d; i < d; i++) {
    matrix[i] = voxelSize[i] ** 2 * (scalar + w3 * (lap + second[i]) + w4 * second[i]);
    for (let j = i + 1; j < d; j++, p++) {
      matrix[p] = (w3 + w4) * Math.sin(angles[i]) * Math.sin(angles[j]);
    }
  }
}

/** Invert a packed symmetric matrix of 2 or 3 rows; the inverse of zero is zero. */
export function invertPacked(matrix, out) {
  if (matrix.every((value) => value === 0)) {
    out.fill(0);
    return;
  }
  if (matrix.length === 3) {
    const [a, b, c] = matrix, determinant = a * b - c * c;
    out[0] = b / determinant;
    out[1] = a / determinant;
    out[2] = -c / determinant;
    return;
  }
  const [a, b, c, ab, ac, bc] = matrix;
  const aa = b * c - bc * bc, abCofactor = ac * bc - ab * c, acCofactor = ab * bc - b * ac;
  const determinant = a * aa + ab * abCofactor + ac * acCofactor;
  out[0] = aa / determinant;
  out[1] = (a * c - ac * ac) / determinant;
  out[2] = (a * b - ab * ab) / determinant;
  out[3] = abCofactor / determinant;
  out[4] = acCofactor / determinant;
  out[5] = (ab * ac - a * bc) / determinant;
}
