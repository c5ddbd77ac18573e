// An animated GIF: one palette of 256 colours for all frames (median cut), and LZW.

const LEVELS = 32; // of each of red, green and blue, among which the palette is found

/** Return the bytes of a GIF that repeats for ever; frames are RGBA bytes of one size. */
export function gifBytes(frames, width, height, hundredths) {
  const { palette, nearest } = paletteOf(frames);
  const bytes = [...ascii("GIF89a"), ...word(width), ...word(height), 0xf7, 0, 0, ...palette];
  bytes.push(0x21, 0xff, 11, ...ascii("NETSCAPE2.0"), 3, 1, 0, 0, 0);
  const parts = [Uint8Array.from(bytes)];
  for (const frame of frames) {
    const start = [0x21, 0xf9, 4, 4, ...word(hundredths), 0, 0, 0x2c, 0, 0, 0, 0, ...word(width), ...word(height), 0, 8];
    parts.push(Uint8Array.from(start), compressed(indicesOf(frame, nearest)));
  }
  parts.push(Uint8Array.of(0x3b));
  return joinedBytes(parts);
}

function ascii(text) {
  return Array.from(text, (letter) => letter.charCodeAt(0));
}

function word(value) {
  return [value & 255, value >> 8];
}

function joinedBytes(parts) {
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let start = 0;
  for (const part of parts) {
    all.set(part, start);
    start += part.length;
  }
  return all;
}

const keyOf = (frame, i) => ((frame[i] >> 3) * LEVELS + (frame[i + 1] >> 3)) * LEVELS + (frame[i + 2] >> 3);

/** Return 256 colours, and the colour of each of 32^3 cells. */
function paletteOf(frames) {
  const counts = new Float64Array(LEVELS ** 3), sums = [0, 1, 2].map(() => new Float64Array(LEVELS ** 3));
  for (const frame of frames) {
    for (let i = 0; i < frame.length; i += 4) {
      const key = keyOf(frame, i);
      counts[key]++;
      for (let c = 0; c < 3; c++) sums[c][key] += frame[i + c];
    }
  }
  const used = [];
  counts.forEach((count, key) => count && used.push(key));
  const boxes = cutBoxes(used, counts);
  const palette = new Uint8Array(3 * 256), nearest = new Uint8Array(LEVELS ** 3);
  boxes.forEach((box, n) => {
    const total = box.reduce((sum, key) => sum + counts[key], 0);
    for (let c = 0; c < 3; c++) palette[3 * n + c] = Math.round(box.reduce((sum, key) => sum + sums[c][key], 0) / total);
    for (const key of box) nearest[key] = n;
  });
  return { palette, nearest };
}

/** Cut cells at the median of their longest side until there are 256 boxes. */
function cutBoxes(used, counts) {
  const along = [(key) => Math.floor(key / LEVELS ** 2), (key) => Math.floor(key / LEVELS) % LEVELS, (key) => key % LEVELS];
  const spreadOf = (box) => {
    const spreads = along.map((level) => {
      let low = LEVELS, high = 0;
      for (const key of box) {
        low = Math.min(low, level(key));
        high = Math.max(high, level(key));
      }
      return high - low;
    });
    const widest = Math.max(...spreads);
    return { widest, axis: spreads.indexOf(widest), box };
  };
  const boxes = [spreadOf(used)];
  while (boxes.length < 256) {
    boxes.sort((a, b) => b.widest - a.widest || b.box.length - a.box.length);
    const { widest, axis, box } = boxes[0];
    if (widest === 0) break;
    box.sort((a, b) => along[axis](a) - along[axis](b));
    const half = box.reduce((sum, key) => sum + counts[key], 0) / 2;
    let cut = 0, below = 0;
    while (cut < box.length - 1 && (below += counts[box[cut]]) < half) cut++;
    cut = Math.min(box.length - 1, Math.max(1, cut));
    boxes.splice(0, 1, spreadOf(box.slice(0, cut)), spreadOf(box.slice(cut)));
  }
  return boxes.map(({ box }) => box);
}

function indicesOf(frame, nearest) {
  const indices = new Uint8Array(frame.length / 4);
  for (let i = 0; i < indices.length; i++) indices[i] = nearest[keyOf(frame, 4 * i)];
  return indices;
}

/** Return indices as LZW codes in blocks of at most 255 bytes. */
function compressed(indices) {
  const CLEAR = 256, END_OF_IMAGE = 257, MOST_CODES = 4096;
  const bytes = [];
  let bits = 0, nBits = 0, width = 9, table = new Map(), next = 258;
  const write = (code) => {
    bits |= code << nBits;
    nBits += width;
    while (nBits >= 8) {
      bytes.push(bits & 255);
      bits >>>= 8;
      nBits -= 8;
    }
  };
  write(CLEAR);
  let prefix = indices[0];
  for (let i = 1; i < indices.length; i++) {
    const key = prefix * 256 + indices[i], known = table.get(key);
    if (known !== undefined) {
      prefix = known;
      continue;
    }
    write(prefix);
    if (next === MOST_CODES) {
      write(CLEAR);
      [width, table, next] = [9, new Map(), 258];
    } else {
      table.set(key, next);
      if (next === 1 << width) width++;
      next++;
    }
    prefix = indices[i];
  }
  write(prefix);
  write(END_OF_IMAGE);
  if (nBits) bytes.push(bits & 255);
  const blocks = [];
  for (let start = 0; start < bytes.length; start += 255) {
    const block = bytes.slice(start, start + 255);
    blocks.push(Uint8Array.of(block.length), Uint8Array.from(block));
  }
  return joinedBytes([...blocks, Uint8Array.of(0)]);
}
