// Numbers out of the text of the page: base64, inflate, differences summed up again.

/** Return the bytes of a base64 text. */
export function bytesOfBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text), bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/** Return the bytes that a zlib stream holds. */
export async function inflated(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Return float32 numbers whose bytes stand in four planes. */
export function floatsOfPlanes(bytes) {
  const n = bytes.length / 4, words = new Uint32Array(n);
  for (let plane = 0; plane < 4; plane++) {
    for (let i = 0; i < n; i++) words[i] |= bytes[plane * n + i] << (8 * plane);
  }
  return new Float32Array(words.buffer);
}

/** Return fields (n, *space) from 16-bit differences along each axis, times the unit of each. */
export function fieldsOfDifferences(bytes, units, space) {
  const size = bytes.length / 2, integers = new Int16Array(size);
  for (let i = 0; i < size; i++) integers[i] = bytes[i] | (bytes[size + i] << 8);
  let stride = 1;
  for (let axis = space.length - 1; axis >= 0; axis--) {
    sumAlong(integers, space[axis], stride);
    stride *= space[axis];
  }
  const fields = new Float32Array(size);
  units.forEach((unit, n) => {
    for (let i = n * stride; i < (n + 1) * stride; i++) fields[i] = integers[i] * unit;
  });
  return fields;
}

/** Return bytes (*, length) from differences along the last axis. */
export function bytesOfDifferences(bytes, length) {
  const sums = Uint8Array.from(bytes);
  sumAlong(sums, length, 1);
  return sums;
}

/** Sum up along an axis in place; integers wrap around as their differences did. */
function sumAlong(integers, length, stride) {
  const block = length * stride;
  for (let start = 0; start < integers.length; start += block) {
    for (let i = start + stride; i < start + block; i++) integers[i] += integers[i - stride];
  }
}
