// A volume as a NIfTI-1 file: float32 intensities, or int16 labels of the most probable classes.

const HEADER = 352;
const FLOAT32 = 16;
const INT16 = 4;

/** Return the bytes of a file, not compressed, of an expected image (C, *space). */
export function niftiBytes(image, facts) {
  const { space, nChannels, holdsClasses } = facts;
  const nVoxels = space.reduce((a, b) => a * b, 1), nFields = holdsClasses ? 1 : nChannels;
  const width = holdsClasses ? 2 : 4;
  const buffer = new ArrayBuffer(HEADER + nVoxels * nFields * width), view = new DataView(buffer);
  writeHeader(view, facts, nFields);
  const place = placesInFile(space);
  for (let c = 0; c < nFields; c++) {
    for (let x = 0; x < nVoxels; x++) {
      const at = HEADER + (c * nVoxels + place(x)) * width;
      if (holdsClasses) view.setInt16(at, facts.classLabels[mostProbable(image, x, nVoxels, nChannels)], true);
      else view.setFloat32(at, image[c * nVoxels + x], true);
    }
  }
  return new Uint8Array(buffer);
}

function writeHeader(view, { space, voxelSize, affine, holdsClasses }, nFields) {
  view.setInt32(0, 348, true);
  const dim = nFields > 1 ? [5, ...space, ...Array(4 - space.length).fill(1), nFields] : [space.length, ...space];
  for (let i = 0; i < 8; i++) view.setInt16(40 + 2 * i, dim[i] ?? 1, true);
  view.setInt16(70, holdsClasses ? INT16 : FLOAT32, true);
  view.setInt16(72, holdsClasses ? 16 : 32, true);
  view.setFloat32(76, 1, true);
  for (let i = 0; i < 3; i++) view.setFloat32(80 + 4 * i, voxelSize[i] ?? 1, true);
  view.setFloat32(108, HEADER, true);
  view.setFloat32(112, 1, true);
  view.setUint8(123, 2); // mm
  view.setInt16(254, affine ? 1 : 2, true); // sform: of a scanner, or one that was made up
  const rows = affine ?? [0, 1, 2].map((i) => [0, 1, 2, 3].map((j) => (i === j ? (voxelSize[i] ?? 1) : 0)));
  for (let i = 0; i < 3; i++) {
    for (let j = 0; j < 4; j++) view.setFloat32(280 + 16 * i + 4 * j, rows[i][j], true);
  }
  [0x6e, 0x2b, 0x31, 0].forEach((byte, i) => view.setUint8(344 + i, byte)); // "n+1"
}

/** Return from the place of a voxel in memory, last axis first, to that in a file, first axis first. */
function placesInFile(space) {
  const [n0, n1, n2 = 1] = space;
  return (x) => {
    const k = x % n2, j = Math.floor(x / n2) % n1, i = Math.floor(x / (n2 * n1));
    return i + n0 * (j + n1 * k);
  };
}

function mostProbable(image, x, nVoxels, nChannels) {
  let best = 0;
  for (let c = 1; c < nChannels; c++) if (image[c * nVoxels + x] > image[best * nVoxels + x]) best = c;
  return best;
}

/** Return bytes compressed with gzip. */
export async function gzipped(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new CompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
