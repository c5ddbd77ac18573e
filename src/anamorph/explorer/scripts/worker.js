// The worker: holds the model, and answers with pictures, so that the page never waits.
import { displacementLengths, logGrowth } from "./arithmetic/deformation.js";
import { Generator } from "./arithmetic/generator.js";
import { normalsOf, surfaceOf } from "./arithmetic/surface.js";
import { bytesOfBase64, bytesOfDifferences, fieldsOfDifferences, floatsOfPlanes, inflated } from "./files/unpack.js";

const MISSING_BYTE = 255;
const LARGEST_BYTE = 254;

let generator = null;
let facts = null;
let storedImages = [];

const ANSWERS = {
  async load({ facts: given, text }) {
    facts = given;
    const bytes = bytesOfBase64(text), chunks = [];
    let start = 0;
    for (const length of facts.chunks) chunks.push(bytes.subarray(start, (start += length)));
    const next = async () => inflated(chunks.shift());
    const mean = withLastClass(floatsOfPlanes(await next()));
    const appearance = [], shape = [];
    for (const mode of facts.modes) {
      if (mode.appearance !== null) {
        appearance.push(withLastClass(fieldsOfDifferences(await next(), mode.appearanceUnits, facts.space)));
      }
      if (mode.shape !== null) shape.push(fieldsOfDifferences(await next(), mode.shapeUnits, facts.space));
    }
    generator = new Generator(facts, mean, appearance, shape);
    storedImages = chunks;
    return {};
  },

  picture({ z, part, resolution, surface, wantsDisplacement }) {
    const started = performance.now();
    const { image, displacement } = generator.picture(z, part, resolution);
    const surfaces = surface ? surfacesOf(image, displacement, surface) : null;
    const answer = { image, surfaces, milliseconds: 0 };
    if (wantsDisplacement) answer.displacement = displacement;
    answer.milliseconds = performance.now() - started;
    return answer;
  },

  /** The observed image n, in the units of expected images; labels as one channel. */
  async observed({ n }) {
    const bytes = bytesOfDifferences(await inflated(storedImages[n]), facts.space[facts.space.length - 1]);
    const { lowest, highest } = facts.palette, nVoxels = generator.grid.nVoxels;
    const image = Float32Array.from(bytes, (byte, i) => {
      if (byte === MISSING_BYTE) return NaN;
      if (facts.holdsClasses) return byte;
      const c = Math.floor(i / nVoxels);
      return lowest[c] + ((highest[c] - lowest[c]) * byte) / LARGEST_BYTE;
    });
    return { image };
  },
};

/** Return appearances with the class that is not stored, zero everywhere. */
function withLastClass(fields) {
  if (!facts.holdsClasses) return fields;
  const nVoxels = facts.space.reduce((a, b) => a * b, 1);
  const all = new Float32Array(fields.length + nVoxels);
  all.set(fields);
  return all;
}

/** Return the surfaces of all classes but the background, coloured by what is asked for. */
function surfacesOf(image, displacement, colouring) {
  const { grid } = generator, surfaces = [];
  const field = !displacement || colouring === "class" ? null
    : colouring === "growth" ? logGrowth(displacement, grid)
    : displacementLengths(displacement, grid, facts.voxelSize);
  for (let c = 0; c < facts.nChannels; c++) {
    if (facts.holdsClasses && c === facts.background) continue;
    const surface = surfaceOf(image, c * grid.nVoxels, grid, 0.5);
    for (let i = 0; i < surface.vertices.length; i++) {
      surface.vertices[i] *= facts.voxelSize[2 - (i % 3)];
    }
    surface.normals = normalsOf(surface.vertices, surface.triangles);
    surface.values = field && valuesAt(field, surface.vertices, grid);
    surface.channel = c;
    surfaces.push(surface);
  }
  return surfaces;
}

function valuesAt(field, vertices, grid) {
  const values = new Float32Array(vertices.length / 3), size = facts.voxelSize;
  for (let i = 0; i < values.length; i++) {
    const [x, y, z] = [0, 1, 2].map((axis) => Math.round(vertices[3 * i + axis] / size[2 - axis]));
    values[i] = field[z * grid.plane + y * grid.nx + x];
  }
  return values;
}

function buffersIn(answer) {
  const buffers = [];
  const visit = (value) => {
    if (ArrayBuffer.isView(value)) buffers.push(value.buffer);
    else if (value && typeof value === "object") Object.values(value).forEach(visit);
  };
  visit(answer);
  return buffers;
}

self.onmessage = async ({ data: { id, question, ...content } }) => {
  try {
    const answer = await ANSWERS[question](content);
    self.postMessage({ id, answer }, buffersIn(answer));
  } catch (error) {
    self.postMessage({ id, error: String(error) });
  }
};
