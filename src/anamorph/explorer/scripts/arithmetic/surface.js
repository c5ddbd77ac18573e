// Surfaces of volumes: a vertex in every cell that the surface crosses ("surface nets").
//
// The vertex is the mean of the points at which edges of its cell are crossed. Four cells around an
// edge that is crossed make two triangles. The field is not continued beyond its borders.

const EDGES = [];
for (let a = 0; a < 8; a++) {
  for (const bit of [1, 2, 4]) if (!(a & bit)) EDGES.push([a, a | bit]);
}

/** Return vertices (x, y, z in voxels of axes 2, 1, 0) and triangles where a field has a level. */
export function surfaceOf(field, start, grid, level) {
  const { nz, ny, nx, plane } = grid, strides = [1, nx, plane];
  const offsets = Array.from({ length: 8 }, (_, c) => (c & 1) + ((c >> 1) & 1) * nx + (c >> 2) * plane);
  const vertexOf = new Int32Array(grid.nVoxels).fill(-1);
  const vertices = [], triangles = [], values = new Float64Array(8);
  for (let z = 0; z < nz - 1; z++) {
    for (let y = 0; y < ny - 1; y++) {
      for (let x = 0; x < nx - 1; x++) {
        const cell = z * plane + y * nx + x;
        let inside = 0;
        for (let c = 0; c < 8; c++) {
          values[c] = field[start + cell + offsets[c]] - level;
          if (values[c] > 0) inside |= 1 << c;
        }
        if (inside === 0 || inside === 255) continue;
        vertexOf[cell] = vertices.length / 3;
        pushVertex(vertices, values, inside, x, y, z);
        if (x && y && z) pushTriangles(triangles, vertexOf, cell, inside, strides);
      }
    }
  }
  return { vertices: Float32Array.from(vertices), triangles: Uint32Array.from(triangles) };
}

function pushVertex(vertices, values, inside, x, y, z) {
  let sx = 0, sy = 0, sz = 0, n = 0;
  for (const [a, b] of EDGES) {
    if (((inside >> a) & 1) === ((inside >> b) & 1)) continue;
    const t = values[a] / (values[a] - values[b]);
    sx += (a & 1) + t * ((b & 1) - (a & 1));
    sy += ((a >> 1) & 1) + t * (((b >> 1) & 1) - ((a >> 1) & 1));
    sz += (a >> 2) + t * ((b >> 2) - (a >> 2));
    n++;
  }
  vertices.push(x + sx / n, y + sy / n, z + sz / n);
}

/** Add the triangles around the edges from the first corner of a cell. */
function pushTriangles(triangles, vertexOf, cell, inside, strides) {
  const isInside = inside & 1;
  for (let axis = 0; axis < 3; axis++) {
    if (((inside >> (1 << axis)) & 1) === isInside) continue;
    const b = strides[(axis + 1) % 3], c = strides[(axis + 2) % 3];
    const quad = [cell, cell - b, cell - b - c, cell - c].map((place) => vertexOf[place]);
    if (quad.includes(-1)) continue;
    const [p, q, r, s] = isInside ? quad : quad.reverse();
    triangles.push(p, q, r, p, r, s);
  }
}

/** Return normals that point out of the surface, the mean of those of the triangles around. */
export function normalsOf(vertices, triangles) {
  const normals = new Float32Array(vertices.length);
  for (let t = 0; t < triangles.length; t += 3) {
    const [a, b, c] = [0, 1, 2].map((i) => 3 * triangles[t + i]);
    const u = [0, 1, 2].map((i) => vertices[b + i] - vertices[a + i]);
    const v = [0, 1, 2].map((i) => vertices[c + i] - vertices[a + i]);
    for (const place of [a, b, c]) {
      normals[place] += u[1] * v[2] - u[2] * v[1];
      normals[place + 1] += u[2] * v[0] - u[0] * v[2];
      normals[place + 2] += u[0] * v[1] - u[1] * v[0];
    }
  }
  for (let i = 0; i < normals.length; i += 3) {
    const length = Math.hypot(normals[i], normals[i + 1], normals[i + 2]) || 1;
    for (let j = i; j < i + 3; j++) normals[j] /= length;
  }
  return normals;
}
