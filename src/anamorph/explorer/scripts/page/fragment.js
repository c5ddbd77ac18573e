// The view as the fragment of an address, which restores it: #z=1:0.5,3:-2&part=shape

const PARTS = ["both", "shape", "appearance"];

/** Return the fragment of latents (in standard deviations, by their number in the model) and options. */
export function writeFragment(latents, options, cursor) {
  const moved = latents.modes.map((mode, k) => [mode.latent, Number(latents.values[k].toFixed(3))]).filter(([, value]) => value);
  const parts = [];
  if (moved.length) parts.push(`z=${moved.map(([name, value]) => `${name}:${value}`).join(",")}`);
  if (options.part !== "both") parts.push(`part=${options.part}`);
  if (options.grid) parts.push("grid=1");
  if (options.convention === "radiological") parts.push("convention=radiological");
  if (options.surface !== "class") parts.push(`surface=${options.surface}`);
  if (cursor.length === 3) parts.push(`at=${cursor.join(",")}`);
  return `#${parts.join("&")}`;
}

/** Set latents and options from a fragment; what it does not say, or says wrongly, is as at first. */
export function readFragment(fragment, latents, options, space) {
  const said = new URLSearchParams(fragment.replace(/^#/, ""));
  const values = Array.from(latents.values);
  for (const pair of (said.get("z") ?? "").split(",")) {
    const [name, value] = pair.split(":").map(Number);
    const k = latents.modes.findIndex((mode) => mode.latent === name);
    if (k >= 0 && Number.isFinite(value)) values[k] = value;
  }
  latents.setAll(values, { evenLocked: true });
  options.part = PARTS.includes(said.get("part")) ? said.get("part") : "both";
  options.grid = said.get("grid") === "1";
  options.convention = said.get("convention") === "radiological" ? "radiological" : "neurological";
  options.surface = ["growth", "displacement"].includes(said.get("surface")) ? said.get("surface") : "class";
  const at = (said.get("at") ?? "").split(",").map(Number);
  if (at.length === space.length && at.every((i, axis) => Number.isInteger(i) && i >= 0 && i < space[axis])) options.cursor = at;
}
