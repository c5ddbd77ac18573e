// Elements of the page. Texts become text nodes, never markup, so that no name can run as code.

/** Return an element with attributes, listeners (on...) and children, which may be texts. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "value") made.value = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** Return a button with a visible text and, where that says too little, a longer label. */
export function button(text, onclick, attributes = {}) {
  return element("button", { type: "button", onclick, ...attributes }, text);
}

/** Return a list to choose from: pairs of value and text. */
export function choice(label, pairs, onchange, attributes = {}) {
  const select = element("select", { "aria-label": label, ...attributes });
  for (const [value, text] of pairs) select.append(element("option", { value }, text));
  select.addEventListener("change", () => onchange(select.value));
  return select;
}

/** Return buttons of which one is pressed: pairs of value and text. */
export function segmented(label, pairs, chosen, onchange) {
  const group = element("div", { role: "group", "aria-label": label, class: "segmented" });
  const show = (value) => {
    for (const one of group.children) one.setAttribute("aria-pressed", String(one.dataset.value === value));
  };
  for (const [value, text] of pairs) {
    const one = button(text, () => {
      show(value);
      onchange(value);
    });
    one.dataset.value = value;
    group.append(one);
  }
  show(chosen);
  group.show = show;
  return group;
}

/** Return a button that stays pressed until it is pressed again. */
export function toggle(text, isPressed, onchange, attributes = {}) {
  const one = button(text, () => {
    const next = one.getAttribute("aria-pressed") !== "true";
    one.show(next);
    onchange(next);
  }, attributes);
  one.show = (next) => one.setAttribute("aria-pressed", String(next));
  one.show(isPressed);
  return one;
}

/** Return a number with at most two decimals, and a minus as wide as a plus. */
export function shortNumber(value) {
  const text = Math.abs(value) >= 1000 ? value.toFixed(0) : String(Number(value.toFixed(2)));
  return text.replace("-", "\u2212");
}
