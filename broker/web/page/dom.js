// Makes and updates elements. Text is set as text, never as HTML: it comes from records and names.

const SVG = "http://www.w3.org/2000/svg";

function fill(made, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((each) => each !== null && each !== undefined && each !== false));
  return made;
}

/** An element with attributes (on… are listeners) and children; strings become text. */
export const el = (tag, props = {}, ...children) => fill(document.createElement(tag), props, children);

/** The same for SVG. */
export const svg = (tag, props = {}, ...children) => fill(document.createElementNS(SVG, tag), props, children);

/** Sets the text of a node if it differs; returns whether it did. */
export function say(node, text) {
  const wanted = String(text);
  if (node.textContent === wanted) return false;
  node.textContent = wanted;
  return true;
}

/** Makes the children of `parent` those of `items`, in order; those that stay keep their focus and scroll. */
export function sync(parent, items, key, make, update) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let before = null;
  for (const item of items) {
    const name = key(item);
    let child = known.get(name);
    known.delete(name);
    if (!child) {
      child = make(item);
      child.dataset.key = name;
    }
    update(child, item);
    const next = before ? before.nextElementSibling : parent.firstElementChild;
    if (child !== next) parent.insertBefore(child, next);
    before = child;
  }
  for (const gone of known.values()) gone.remove();
}

/** Marks a node for a moment, because it has changed. */
export function flash(node) {
  node.classList.remove("changed");
  void node.offsetWidth; // the animation starts again
  node.classList.add("changed");
}

/** Replaces the children of `node` if what they are made of has changed; returns whether it has. */
export function redo(node, value, make) {
  const text = JSON.stringify(value);
  if (node.dataset.made === text) return false;
  const first = node.dataset.made === undefined;
  node.dataset.made = text;
  node.replaceChildren(...[make(value)].flat());
  return !first;
}

const whole = new Intl.NumberFormat("en");

export const number = (value) => (value === null || value === undefined ? "–" : whole.format(value));

export const plural = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;

/** The time of day of a moment in ms since 1970, with tenths of a second. */
export function clock(ms) {
  const at = new Date(ms);
  const two = (value) => String(value).padStart(2, "0");
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${Math.floor(at.getMilliseconds() / 100)}`;
}

export function span(seconds) {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return `${Math.round(seconds / 3600)} h`;
}

/** The class with a broker's color: brokers keep their colors while the page is open. */
const colors = new Map();
export function color(broker) {
  if (!colors.has(broker)) colors.set(broker, (broker + 8) % 9);
  return `b${colors.get(broker)}`;
}
